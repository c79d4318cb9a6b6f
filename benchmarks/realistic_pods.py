"""Pods as clusters have them, for ``decide``: a CoreDNS beside them, applications with their own terms, nodes to be left alone.

Each case is placed in whole cycles of the length that the daemon gives them, and checked: no card over, no two pods of an
application on one node where it forbids that, and a sample of pods goes where a look at every node by every rule would put it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from kit.objects import node, pod, queue

from pumice.apps.service.garbage import Garbage
from pumice.audit.auditor import audit
from pumice.effects.vocabulary import Bind
from pumice.scheduler.engine import Engine
from pumice.scheduler.placing.placer import Placer
from pumice.scheduler.state.ledger import Placement
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue

Json = dict[str, Any]
BUDGET = 0.05
"""Seconds after which the daemon ends a cycle."""
AT_ONCE = 1000
"""Pods that are waiting at most: so many come a few times a second."""
SAMPLE = 40
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SHAPES = [(2048 + 970 * i, 10 + (i * 7) % 21) for i in range(20)]
MORE_CARDS = {"cards": 8, "mib": 81920, "shares": 10, "cpu": "96", "memory": "768Gi"}


def term(key: str, **labels: str) -> Json:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key}


def shy(app: str, *, required: bool) -> Json:
    """Anti-affinity of an application to itself."""
    if required:
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(HOST, app=app)]}}
    wish = {"weight": 100, "podAffinityTerm": term(HOST, app=app)}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def plain(number: int, **shape: Any) -> Json:
    mib, cores = SHAPES[number % len(SHAPES)]
    return pod(f"p{number}", mib=mib, cores=cores, cards=1, cpu="1", memory="4Gi", **shape)


def core_dns(nodes: list[Json]) -> list[Json]:
    """As kubeadm sets it up: two pods that would rather not be on one node."""
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": term(HOST, **{"k8s-app": "kube-dns"})}]}}  # fmt: skip
    return [pod(f"coredns-{n}", namespace="kube-system", cpu="100m", memory="70Mi", labels={"k8s-app": "kube-dns"},
                affinity=affinity, scheduler="default-scheduler", nodeName=nodes[n]["metadata"]["name"])
            for n in range(2)]  # fmt: skip


def applications(count: int, pods: int, *, required: bool) -> list[Json]:
    names = [f"app{i % count}" for i in range(pods)]
    return [plain(i, labels={"app": app}, affinity=shy(app, required=required)) for i, app in enumerate(names)]


def mixture(pods: int) -> list[Json]:
    """Of ten applications three shun themselves, two would rather, one spreads over zones, one must, one wants to be near its
    cache, one tolerates, one has labels alone."""
    made = []
    for i in range(pods):
        app = f"app{i % 500}"
        spread = {"maxSkew": 5, "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
        near = [{"weight": 50, "podAffinityTerm": term(ZONE, app=f"app{(i + 1) % 500}")}]
        shapes: dict[int, Json] = {
            **{kind: {"affinity": shy(app, required=True)} for kind in range(3)},
            3: {"affinity": shy(app, required=False)}, 4: {"affinity": shy(app, required=False)},
            5: {"topologySpreadConstraints": [{**spread, "whenUnsatisfiable": "ScheduleAnyway"}]},
            6: {"topologySpreadConstraints": [{**spread, "whenUnsatisfiable": "DoNotSchedule"}]},
            7: {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": near}}},
            8: {"tolerations": [{"key": "old", "operator": "Exists"}]},
        }  # fmt: skip
        made.append(plain(i, labels={"app": app, "tier": str(i % 3)}, **shapes.get(i % 500 % 10, {})))
    return made


def machines(count: int, *, soft: bool = False) -> list[Json]:
    """In three zones; with ``soft`` one of eight would rather be left alone, for one of three reasons."""
    return [
        node(f"n{i:05d}", labels={ZONE: "abc"[i % 3]}, **MORE_CARDS,
             taints=[{"key": f"old{i % 3 or ''}", "value": "", "effect": "PreferNoSchedule"}] if soft and i % 8 == 0 else ())
        for i in range(count)
    ]  # fmt: skip


CASES: dict[str, Callable[[int], tuple[list[Json], list[Json]]]] = {
    "core_dns": lambda n: ((here := machines(n)), [*core_dns(here), *(plain(i) for i in range(2 * n))]),
    "500_apps_required": lambda n: (machines(n), applications(500, n, required=True)),
    "500_apps_preferred": lambda n: (machines(n), applications(500, n, required=False)),
    "2000_apps_required": lambda n: (machines(n), applications(2000, 4 * n, required=True)),
    "2000_apps_preferred": lambda n: (machines(n), applications(2000, 4 * n, required=False)),
    "prefer_no_schedule": lambda n: (machines(n, soft=True), [plain(i) for i in range(2 * n)]),
    "backlog": lambda n: (machines(n), [plain(i) for i in range(4 * n)]),
    "mixture": lambda n: ((here := machines(n, soft=True)), [*core_dns(here), *mixture(2 * n)]),
}


BACKLOG = "backlog"
"""The case in which all pods wait from the beginning: what it costs that others wait, too."""


def run(conf: str, case: str, node_count: int) -> dict[str, float]:
    """Pods per second of cycles, and the longest cycle in milliseconds."""
    nodes, pods = CASES[case](node_count)
    engine = Engine(parse_scheduler_conf(conf))
    engine.state.groups.put_queue(convert(Queue, queue("default")))
    for obj in nodes:
        engine.state.bookings.put_node(convert(Node, obj))
    by_uid = {obj["metadata"]["uid"]: obj for obj in pods}
    waiting = [obj for obj in pods if not obj["spec"].get("nodeName")]
    for obj in pods:
        if obj["spec"].get("nodeName"):
            engine.state.pods.put(convert(Pod, obj), 0.0)
    lengths: list[float] = []
    come, placed, now = 0, 0, 100.0
    gc.collect()
    garbage = Garbage()  # as the daemon has it
    garbage.hold_back()
    while placed < len(waiting) and (come < len(waiting) or engine.has_work(now)):
        now += 0.05
        coming = waiting[come : None if case == BACKLOG else placed + AT_ONCE]
        come += len(coming)
        for obj in coming:
            engine.state.pods.put(convert(Pod, obj), 0.0)
        began = time.perf_counter()
        effects = engine.cycle(now, budget=BUDGET).effects
        lengths.append(time.perf_counter() - began)
        garbage.tidy(idle=False)
        for effect in effects:
            if isinstance(effect, Bind):
                placed += 1
                engine.bound(effect.uid)
                by_uid[effect.uid]["spec"]["nodeName"] = effect.node
                by_uid[effect.uid]["metadata"]["annotations"].update(effect.annotations)
    garbage.let_go()
    gc.unfreeze()
    assert placed == len(waiting), f"{case}: {placed} of {len(waiting)} placed"
    check(engine, nodes, pods)
    return {"per_second": placed / sum(lengths), "longest_cycle_ms": 1000 * max(lengths)}


def check(engine: Engine, nodes: list[Json], pods: list[Json]) -> None:
    """From the objects alone; then some pods once more, each against a look at every node."""
    found = audit(nodes, pods, [])
    assert not found, found[:5]
    seen: set[tuple[str, str]] = set()
    for obj in pods:
        anti = obj["spec"].get("affinity", {}).get("podAntiAffinity", {})
        if "requiredDuringSchedulingIgnoredDuringExecution" in anti:
            place = (obj["metadata"]["labels"]["app"], obj["spec"]["nodeName"])
            assert place not in seen, f"two pods of one application: {place}"
            seen.add(place)
    for number, obj in enumerate(pods[2 : 2 + SAMPLE * 7 : 7]):
        again = {**obj, "metadata": {**obj["metadata"], "uid": f"again-{number}", "annotations": {}},
                 "spec": {**obj["spec"], "nodeName": ""}}  # fmt: skip
        kind = engine.state.classes.kind(convert(Pod, again))
        cls = engine.state.classes.of(convert(Pod, again))
        ours, expected = engine.placer.choose(cls), rescan(engine, cls)
        assert (ours and ours.node) == expected, f"{ours} is not {expected}"
        if ours is not None:
            engine.state.ledger.reserve(
                Placement(f"again-{number}", ours.node, cls.request, ours.allocations, features=kind.features)
            )


def rescan(engine: Engine, cls: Any) -> str | None:
    """The best node by every rule asked of every node, with nothing remembered."""
    fresh = Placer(engine.state, engine.framework)
    fits = fresh.evaluation.fits(cls, None)
    scores = np.where(fits, fresh.evaluation.scores(cls, None), -np.inf)
    relative = engine.framework.relative(engine.state, cls, scores > -np.inf)
    scores = scores if relative is None else scores + relative
    if scores.max() == -np.inf:
        return None
    table = engine.state.ledger.table
    return min(table.name(int(row)) for row in np.flatnonzero(scores == scores.max()))
