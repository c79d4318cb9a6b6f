"""Rows of ``docs/reference/claims.md``: Kubernetes 1.36.1 does what is said there, and we do not.

One that fails after a change of version has been mended there: take the row out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.claim_answers import Kubernetes
from kit.claims import DRIVER, Cluster, asks, claim, device, published, shared_card, with_counters

Case = tuple[Cluster, dict[str, Any]]


EXCLUSIVE = "!device.allowMultipleAllocations"
FEW = {"capacity": {"memory": "1Gi", "cores": "1"}}


def _draws(memory: str, of: str = "card") -> list[dict[str, Any]]:
    return [{"counterSet": of, "counters": {"memory": {"value": memory}}}]


def c_01() -> Case:
    cluster = Cluster(*with_counters(shared_card("shared", consumesCounters=_draws("80Gi")), device("p0", "40Gi")))
    cluster.gives(claim(asks(**FEW)))
    return cluster, claim(asks(expression=EXCLUSIVE))


def c_02() -> Case:
    other = {"name": "other", "counters": {"memory": {"value": "80Gi"}}}
    both = [device(name, consumesCounters=_draws("80Gi", "other")) for name in ("b0", "b1")]
    cluster = Cluster(*with_counters(device("a0", "80Gi"), driver="a.example.com"),
                      *with_counters(*both, driver="b.example.com", sets=[other]))  # fmt: skip
    return cluster, claim(asks(count=3))  # b0 and b1 draw on the same counters


def c_03() -> Case:
    unhealthy = {"taints": [{"key": "sick", "value": "xid", "effect": "NoSchedule"}]}
    return Cluster(*with_counters(device("p0", "60Gi", **unhealthy), device("p1", "60Gi"))), claim(asks())


def c_04() -> Case:
    cluster = Cluster(*with_counters(device("p0", "60Gi"), device("p1", "60Gi")))
    cluster.gives(claim(asks()))
    cluster.publish(*with_counters(device("p1", "60Gi")))
    return cluster, claim(asks())


def c_05() -> Case:
    cluster = Cluster(*with_counters(device("p0", "80Gi")))
    cluster.gives(claim(asks()))
    return cluster, claim(asks(adminAccess=True))


def c_06() -> Case:
    cluster = Cluster(published(shared_card(), shared_card("card-1")))
    cluster.gives(claim(asks(capacity={"memory": "80Gi"})))
    return cluster, claim(asks(allocationMode="All", capacity={"memory": "1Gi", "cores": "0"}))


def c_07() -> Case:
    half = {"default": "1", "validRange": {"min": "0", "step": "500m"}}
    return Cluster(published(shared_card(capacity={"m": {"value": "1", "requestPolicy": half}}))), claim(
        asks("a", capacity={"m": "500m"}), asks("b", capacity={"m": "500m"})
    )


def c_08() -> Case:
    racks = [device(f"d{at}", attributes={"rack": {"string": rack}}) for at, rack in enumerate("xyx")]
    return Cluster(published(*racks)), claim(asks(count=3), constraints=[{"distinctAttribute": f"{DRIVER}/rack"}])


def c_09() -> Case:
    return Cluster(*with_counters(device("p0", "40Gi"))), claim(asks(allocationMode="All"))


def c_10() -> Case:
    devices = [device(f"d{at}", attributes={"rack": {"string": rack}, "all": {"bool": at == 2}}) for at, rack in enumerate("xyy")]
    everything = asks("all", allocationMode="All", expression=f'device.attributes["{DRIVER}"].all')
    return Cluster(published(*devices)), claim(asks("one"), everything, constraints=[{"matchAttribute": f"{DRIVER}/rack"}])


def c_11() -> Case:
    near, far = device("a", nodeName="n1", attributes={"x": {"bool": False}}), device("b", nodeName="n2", attributes={})
    return Cluster(published(near, far, perDeviceNodeSelection=True)), claim(asks(expression=f'device.attributes["{DRIVER}"].x'))


def c_12() -> Case:
    broken = with_counters(device("p0", "1Gi"), pool="n2")[1]
    broken["spec"]["nodeName"] = "n2"
    return Cluster(published(device("d")), broken), claim(asks(allocationMode="All"))


def c_13() -> Case:
    sizes = [{"name": name, "counters": {"memory": {"value": "80Gi"}}} for name in "ab"]
    parts = [device(name, consumesCounters=_draws("40Gi", name[0])) for name in ("a0", "a1", "b0")]
    cluster = Cluster(*with_counters(*parts, sets=sizes))
    cluster.gives(claim(asks(count=2)))
    cluster.publish(*with_counters(*parts, sets=[{"name": "a", "counters": {"memory": {"value": "60Gi"}}}, sizes[1]]))
    return cluster, claim(asks())


@pytest.mark.parametrize(("row", "kubernetes_says", "we_give"), [
    (c_01, "ok p0", ""), (c_02, "ok a0 b0 b1", ""), (c_03, "none", "g p1"), (c_04, "ok p1", ""), (c_05, "none", "g p0"),
    (c_06, "ok card-1", ""), (c_07, "none", "a card-0 b card-0"), (c_08, "ok d0 d1 d2", ""), (c_09, "error nil pointer", "g p0"),
    (c_10, "error constraint would not be satisfied", "one d1 all d2"), (c_11, "error no such key: x", ""),
    (c_12, "error currently being updated", "g d"), (c_13, "none", "g b0"),
])  # fmt: skip
def test_row(row: Callable[[], Case], kubernetes_says: str, we_give: str, allocator: Kubernetes) -> None:
    cluster, requested = row()
    kind, said = allocator(cluster.question(requested))
    results = [one["device"] for allocation in said for one in allocation["devices"]["results"]] if kind == "ok" else []
    text = " ".join([kind, *results]) if kind == "ok" else f"{kind} {said}"
    assert (text == kubernetes_says) if kind == "ok" else all(word in text for word in kubernetes_says.split(" ", 1)), text
    given = cluster.gives(requested)
    assert " ".join(given) == we_give if we_give else "cannot be allocated" in given[0]
