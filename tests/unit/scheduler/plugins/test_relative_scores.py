"""Scores that depend on which other nodes fit: soft spread and preferred pod affinity, by hand (Volcano
pkg/scheduler/plugins/nodeorder)."""

from __future__ import annotations

from typing import Any

import pytest
from kit.objects import node, pod
from kit.scheduler_confs import conf
from tests.unit.scheduler.plugins.test_node_scores import used

from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf

ZONE, HOST = "zone", "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}
WEIGHTS = {"nodeaffinity.weight": 0, "tainttoleration.weight": 0, "podaffinity.weight": "%d", "podtopologyspread.weight": "%d"}
CONF = conf("predicates", {"nodeorder": WEIGHTS}, actions="allocate")


def relative(objects: list[dict[str, Any]], incoming: dict[str, Any], *, pods: int = 0, spread: int = 0) -> dict[str, float]:
    """Score per node that passes the filters."""
    engine = Engine(parse_scheduler_conf(CONF % (pods, spread)))
    for obj in objects:
        if obj["kind"] == "Node":
            engine.state.bookings.put_node(convert(Node, obj))
        else:
            engine.state.pods.put(convert(Pod, obj))
    cls, table = engine.state.classes.of(convert(Pod, incoming)), engine.state.ledger.table
    fits = engine.placer.evaluation.fits(cls, None)
    found = engine.framework.relative(engine.state, cls, fits)
    assert found is not None
    return {table.name(int(row)): float(found[row]) for row in table.live_rows() if fits[row]}


def web(name: str, where: str) -> dict[str, Any]:
    return used(name, where, labels={"app": "web"})


ZONES = [node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "a", "disk": "ssd"}),
         node("n3", labels={ZONE: "b", "disk": "ssd"}), node("n4", labels={ZONE: "c"})]  # fmt: skip
PODS = [web("w1", "n1"), web("w2", "n1"), web("w3", "n3")]


def anyway(key: str, skew: int = 1, **more: Any) -> dict[str, Any]:
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": WEB, **more}


# ln 5 = 1.609 per pod over three zones, ln 6 = 1.792 over four hosts, rounded; then 100 × (most + least − own) / most.
SPREAD: dict[str, tuple[list[dict[str, Any]], dict[str, Any], dict[str, float]]] = {
    "fewer in the zone is better": ([anyway(ZONE)], {}, {"n1": 0, "n2": 0, "n3": 33, "n4": 100}),
    "fewer on the node is better": ([anyway(HOST)], {}, {"n1": 0, "n2": 100, "n3": 50, "n4": 100}),
    "a wide skew makes small differences smaller": ([anyway(ZONE, 4)], {}, {"n1": 50, "n2": 50, "n3": 66, "n4": 100}),
    "two rules add up": ([anyway(ZONE), anyway(HOST)], {}, {"n1": 0, "n2": 57, "n3": 57, "n4": 100}),
    "pods where the pod may not go do not count": (
        [anyway(ZONE)], {"nodeSelector": {"disk": "ssd"}}, {"n2": 100, "n3": 0}),
    "they do if the rule says so": (
        [anyway(ZONE, nodeAffinityPolicy="Ignore")], {"nodeSelector": {"disk": "ssd"}}, {"n2": 33, "n3": 100}),
}  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
def test_soft_spread(name: str) -> None:
    rules, more, expected = SPREAD[name]
    incoming = pod("p", cpu="1", labels={"app": "web"}, topologySpreadConstraints=rules, **more)
    assert relative([*ZONES, *PODS], incoming, spread=1) == expected
    assert relative([*ZONES, *PODS], incoming, spread=3) == {name: 3 * score for name, score in expected.items()}


def test_a_node_without_the_label_is_the_last_choice() -> None:
    incoming = pod("p", cpu="1", labels={"app": "web"}, topologySpreadConstraints=[anyway(ZONE)])
    found = relative([*ZONES, node("bare"), *PODS], incoming, spread=1)
    assert found == {"n1": 0, "n2": 0, "n3": 33, "n4": 100, "bare": 0}


def wishes(kind: str, *wished: tuple[int, str]) -> dict[str, Any]:
    terms = [{"weight": weight, "podAffinityTerm": {"labelSelector": WEB, "topologyKey": key}} for weight, key in wished]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


# Pods near by, times the weight, over the term's domain; then the least becomes 0 and the most 100.
AFFINITY: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "near in the zone": (wishes("podAffinity", (5, ZONE)), {"n1": 100, "n2": 100, "n3": 50, "n4": 0}),
    "near on the node": (wishes("podAffinity", (5, HOST)), {"n1": 100, "n2": 0, "n3": 50, "n4": 0}),
    "away from it": (wishes("podAntiAffinity", (5, ZONE)), {"n1": 0, "n2": 0, "n3": 50, "n4": 100}),
    "two wishes": (wishes("podAffinity", (1, ZONE), (3, HOST)), {"n1": 100, "n2": 25, "n3": 50, "n4": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", AFFINITY)
def test_preferred_pod_affinity(name: str) -> None:
    affinity, expected = AFFINITY[name]
    assert relative([*ZONES, *PODS], pod("p", cpu="1", affinity=affinity), pods=1) == expected


def test_what_placed_pods_wish_counts_too() -> None:
    shy = used("shy", "n1", affinity=wishes("podAntiAffinity", (5, ZONE)))
    assert relative([*ZONES, shy], pod("p", cpu="1", labels={"app": "web"}), pods=1) == {"n1": 0, "n2": 0, "n3": 100, "n4": 100}
