"""binpack and nodeorder reproduce hand-computed scores (Volcano pkg/scheduler/plugins/nodeorder, Volcano
pkg/scheduler/plugins/binpack), by arrays and one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.objects import node, pod

from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf

GPU = "nvidia.com/gpu"


def engine_with(plugin: str, arguments: dict[str, Any], *objects: dict[str, Any]) -> Engine:
    lines = "".join(f"      {key}: {value}\n" for key, value in arguments.items())
    head = f'actions: "allocate"\ntiers:\n- plugins:\n  - name: {plugin}\n'
    engine = Engine(parse_scheduler_conf(head + (f"    arguments:\n{lines}" if lines else "")))
    for obj in objects:
        if obj["kind"] == "Node":
            engine.state.bookings.put_node(convert(Node, obj))
        else:
            engine.state.pods.put(convert(Pod, obj))
    return engine


def scores(engine: Engine, incoming: dict[str, Any]) -> dict[str, float]:
    cls = engine.state.classes.of(convert(Pod, incoming))
    table = engine.state.ledger.table
    found = engine.framework.scores(engine.state, cls, table.live_rows())
    relative = engine.framework.relative(engine.state, cls, table.live)
    assert found is not None
    result = {}
    for row, score in zip(table.live_rows(), found, strict=True):
        have, in_use = table.alloc[row].tolist(), table.used[row].tolist()
        assert sum(scorer(int(row), have, in_use) for scorer in engine.framework.scorers(engine.state, cls)) == score
        result[table.name(int(row))] = float(score) + (float(relative[row]) if relative is not None else 0.0)
    return result


def used(name: str, where: str, **shape: Any) -> dict[str, Any]:
    return pod(name, nodeName=where, scheduler="default-scheduler", **shape)


BINPACK = [
    # (arguments, used, asked, score): node of 10 cpu, 100 memory, 4 of nvidia.com/gpu
    ({}, {"cpu": "2", "memory": "20"}, {"cpu": "1", "memory": "10"}, (0.3 + 0.3) / 2 * 100),
    ({"binpack.weight": 10}, {"cpu": "2", "memory": "20"}, {"cpu": "1", "memory": "10"}, 300),
    ({"binpack.cpu": 3}, {"cpu": "4"}, {"cpu": "1", "memory": "10"}, (3 * 0.5 + 0.1) / 4 * 100),
    ({"binpack.cpu": 0}, {"cpu": "4"}, {"cpu": "1", "memory": "10"}, 10),
    ({"binpack.cpu": -5}, {"cpu": "4"}, {"cpu": "1"}, 50),
    ({"binpack.resources": GPU, f"binpack.resources.{GPU}": 2}, {"limits": {GPU: "1"}},
     {"cpu": "1", "limits": {GPU: "1"}}, (0.1 + 2 * 0.5) / 3 * 100),
    ({}, {"limits": {GPU: "1"}}, {"cpu": "1", "limits": {GPU: "1"}}, 10),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "have", "ask", "score"), BINPACK)
def test_binpack(arguments: dict[str, Any], have: dict[str, Any], ask: dict[str, Any], score: float) -> None:
    engine = engine_with("binpack", arguments, node("n1", cpu="10", memory="100", extra={GPU: "4"}), used("u", "n1", **have))
    assert scores(engine, pod("a", **ask))["n1"] == pytest.approx(score)


def test_binpack_of_weight_zero_has_no_say() -> None:
    engine = engine_with("binpack", {"binpack.weight": 0}, node("n1"))
    cls = engine.state.classes.of(convert(Pod, pod("a", cpu="1")))
    assert engine.framework.scores(engine.state, cls, None) is None


ONLY = {"leastrequested.weight": 0, "balancedresource.weight": 0}
NODEORDER = [
    ({**ONLY, "leastrequested.weight": 1}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, (70 + 80) // 2),
    ({**ONLY, "mostrequested.weight": 1}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, (30 + 20) // 2),
    ({**ONLY, "balancedresource.weight": 1}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, 75),
    ({**ONLY, "balancedresource.weight": 1}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "3"}, 50 + (50 + 80 - 95) // 2),
    ({**ONLY, "balancedresource.weight": 1}, {"cpu": "4"}, {"memory": "4Gi"}, 50 + (50 + 100 - 80) // 2),
    ({}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, 75 + 75),
    # a container that asks for nothing counts as 100m and 200 MiB
    ({**ONLY, "leastrequested.weight": 1}, {"cpu": "2", "memory": "1Gi"}, {}, (79 + 88) // 2),
]


@pytest.mark.parametrize(("arguments", "have", "ask", "score"), NODEORDER)
def test_nodeorder(arguments: dict[str, Any], have: dict[str, Any], ask: dict[str, Any], score: float) -> None:
    engine = engine_with("nodeorder", arguments, node("n1", cpu="10", memory="10Gi"), used("u", "n1", **have))
    assert scores(engine, pod("a", **ask))["n1"] == score


def test_nodeorder_prefers_nodes_by_affinity_and_taints() -> None:
    soft = {"key": "old", "value": "", "effect": "PreferNoSchedule"}
    engine = engine_with("nodeorder", ONLY | {"mostrequested.weight": 1}, node("n1", labels={"disk": "ssd"}),
                         node("n2", taints=[soft]), node("n3"))  # fmt: skip
    wish = {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    found = scores(engine, pod("a", affinity=affinity))
    assert (found["n1"] - found["n3"], found["n3"] - found["n2"]) == (2 * 100, 3 * 100)


def test_untolerated_soft_taints_count_in_whole_points() -> None:
    """One of three: 100 - 100 × 1 / 3, the division truncated (Kubernetes' integers)."""
    soft = [{"key": f"t{i}", "value": "", "effect": "PreferNoSchedule"} for i in range(3)]
    arguments = {**ONLY, "mostrequested.weight": 1, "tainttoleration.weight": 1}
    engine = engine_with("nodeorder", arguments, node("n1", taints=soft), node("n2", taints=soft[:1]))
    found = scores(engine, pod("a"))
    assert found["n2"] - found["n1"] == 67


def test_pods_that_request_nothing_are_not_balanced() -> None:
    engine = engine_with("nodeorder", {**ONLY, "balancedresource.weight": 1}, node("n1", cpu="10", memory="10Gi"))
    assert scores(engine, pod("a", mib=100)) == {"n1": 0.0}
    assert scores(engine, pod("a", cpu="1"))["n1"] > 0


def test_init_containers_and_overhead_count_in_what_is_spread() -> None:
    """Used and asked are the whole pod's, the defaults filled in per container (Kubernetes' non-zero request)."""
    requested = pod("a", cpu="1", memory="1Gi", overhead={"cpu": "1"},
                initContainers=[{"name": "i", "resources": {"requests": {"cpu": "3"}}}])  # fmt: skip
    engine = engine_with("nodeorder", {**ONLY, "leastrequested.weight": 1}, node("n1", cpu="10", memory="10Gi"))
    assert scores(engine, requested)["n1"] == (60 + 90) // 2


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(["binpack", "nodeorder"]),
)
def test_one_by_one_equals_by_arrays(loads: list[tuple[int, int]], ask: tuple[int, int], plugin: str) -> None:
    objects = []
    for number, (cpu, memory) in enumerate(loads):
        objects.append(node(f"n{number}", cpu="8", memory="8Gi"))
        objects.append(used(f"u{number}", f"n{number}", cpu=str(cpu), memory=f"{memory}Gi"))
    engine = engine_with(plugin, {}, *objects)
    found = scores(engine, pod("a", cpu=str(ask[0]), memory=f"{ask[1]}Gi")) if plugin == "nodeorder" or any(ask) else {}
    assert all(np.isfinite(value) for value in found.values())
