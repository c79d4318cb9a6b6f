"""Arrivals, departures, gangs and failures of nodes in virtual time, and what the auditor says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from kit.scheduler_confs import conf, sharing

from pumice.audit.auditor import Books
from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of
from pumice.simulation import manifests
from pumice.simulation.outcome import Outcome, difference, outcome_of
from pumice.simulation.play import Outage, Simulation, Submission
from pumice.wire import names

CONF = conf("priority", "gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"), actions="enqueue, allocate")
PREEMPTING = conf("priority", "predicates", sharing("VGPU", SchedulePolicy="binpack"), actions="enqueue, allocate, preempt")


def machine(name: str = "n1", cards: int = 2) -> dict[str, Any]:
    return manifests.node(name, cpu="64", memory="256Gi", model="A100-SXM4-80GB", cards=cards, mib=80000)


def share(percent: int = 50, **more: Any) -> dict[str, Any]:
    return manifests.pod({"cpu": "1", names.VGPU_NUMBER: "1", names.VGPU_MEMORY_PERCENTAGE: str(percent)}, **more)


def played(submissions: Sequence[Submission], *nodes: dict[str, Any], outages: Sequence[Outage] = (), conf: str = CONF,
           **more: Any) -> Outcome:  # fmt: skip
    case = ClusterSnapshot(now=1e9, scheduler_conf=conf, objects={"nodes": list(nodes or (machine(),)), **more})
    simulation = Simulation(engine_of(case), case.now, case.objects)
    for _ in simulation.play(submissions, outages):
        pass
    found = outcome_of("a", simulation, len(submissions), len(submissions))
    assert not found.violations
    return found


def test_a_pod_starts_when_it_comes_and_one_that_finds_no_room_when_another_ends() -> None:
    whole = share(100)
    found = played([Submission(10.0 * i, f"p{i}", (whole,), runs=100.0) for i in range(3)])
    assert [found.starts[f"default/p{i}"][0] for i in range(3)] == pytest.approx([0, 0, 80], abs=0.1)
    assert found.whole.pods == found.whole.placed == 3
    assert found.classes.keys() == {"one card"}


def test_the_means_are_over_the_time_in_which_pods_arrive() -> None:
    found = played([Submission(0, "a", (share(100),), runs=50.0), Submission(100.0, "b", (share(50),))])
    assert found.mean["memory"] == pytest.approx(25, abs=0.1)  # one card of two, half of the time
    assert found.end["memory"] == pytest.approx(25, abs=0.1)
    assert found.mean["cpu"] == pytest.approx(100 / 64 / 2, abs=0.1)


def test_fragmentation_is_the_free_memory_that_the_next_pod_finds_no_use_for() -> None:
    large = share(60)
    found = played([Submission(float(i), f"p{i}", (large,)) for i in range(3)])
    assert found.whole.placed == 2
    assert found.end["fragmentation"] == pytest.approx(40)  # 40 % of each card is free and too small
    assert found.waits == ["default/p2"]


def test_a_gang_starts_together_or_not_at_all() -> None:
    small, three = share(100), (share(100),) * 3
    found = played([Submission(0, "a", (small,), runs=60.0), Submission(1.0, "g", three, gang=3)], machine(cards=3))
    assert [found.starts[f"default/g-{i}"][0] for i in range(3)] == pytest.approx([59] * 3, abs=2)


def test_a_pod_without_patience_leaves() -> None:
    found = played([Submission(0, "a", (share(100),), runs=60.0), Submission(1.0, "b", (share(100),), patience=5.0)],
                   machine(cards=1))  # fmt: skip
    assert found.whole.placed == 1
    assert found.whole.wait_p99 == pytest.approx(5)


def test_what_ran_on_a_node_that_fails_starts_anew_and_the_node_comes_back() -> None:
    found = played([Submission(0, "a", (share(100),), runs=100.0), Submission(300.0, "b", (share(50),))], machine(cards=1),
                   outages=[Outage("n1", 40.0, 20.0)])  # fmt: skip
    assert found.failures == 1
    assert found.starts["default/a"][0] == pytest.approx(60, abs=1)  # its last start, after the node came back
    assert found.whole.placed == 2
    never = played([Submission(0, "a", (share(100),))], machine(cards=1), outages=[Outage("n1", 40.0, inf)])
    assert never.whole.placed == 0


def test_pods_of_a_dump_stay_where_they_run_and_those_that_wait_are_played() -> None:
    def of_dump(name: str, **more: Any) -> dict[str, Any]:
        template = share(100)
        meta = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2001-09-09T01:00:00Z"}
        return {**template, "metadata": {**template["metadata"], **meta}, **more}

    running = of_dump("old", status={"phase": "Running"})
    running["spec"]["nodeName"] = "n1"
    running["metadata"]["annotations"][names.VGPU_IDS] = "GPU-n1-0,NVIDIA,80000,0:"
    found = played([], pods=[running, of_dump("new")])
    assert list(found.starts) == ["default/new"]
    assert found.end["memory"] == 100


def test_preempted_pods_are_made_anew() -> None:
    urgent = share(100)
    urgent["spec"]["priorityClassName"] = "high"
    urgent["spec"]["priority"] = 1000
    modest = share(100)
    low, high = Submission(0, "low", (modest,), runs=500.0), Submission(50.0, "high", (urgent,), runs=100.0)
    found = played([low, high], machine(cards=1),
                   conf=PREEMPTING, priorityClasses=[{"metadata": {"name": "high"}, "value": 1000}])  # fmt: skip
    assert found.whole.placed == 2
    assert found.evictions == 1
    assert found.starts["default/high"][0] == pytest.approx(0, abs=1)
    assert found.starts["default/low"][0] == pytest.approx(150, abs=1)  # again, when the other one has ended


def test_a_play_is_the_same_again_and_differences_name_pods() -> None:
    flow = [Submission(i * 0.5, f"p{i}", (share(30 + i % 4 * 20),), runs=20.0) for i in range(60)]
    one, again = played(flow), played(flow)
    assert one.starts == again.starts
    more = played(flow, machine(), machine("n2"))
    found = difference(one, more)
    assert found.sooner
    assert not found.later
    assert not difference(one, again).sooner


def test_pods_larger_than_any_node_are_named() -> None:
    huge = manifests.pod({"cpu": "1000"})
    wide = manifests.pod({names.VGPU_NUMBER: "3", names.VGPU_MEMORY_PERCENTAGE: "100"})
    found = played([Submission(0, "huge", (huge,)), Submission(0, "wide", (wide,)), Submission(0, "a", (share(100),))])
    assert list(found.fits_no_node) == ["default/huge", "default/wide"]
    assert "Insufficient cpu" in found.fits_no_node["default/huge"]


def test_a_play_that_is_cut_short_knows_what_was_until_then() -> None:
    case = ClusterSnapshot(now=1e9, scheduler_conf=CONF, objects={"nodes": [machine()]})
    simulation = Simulation(engine_of(case), case.now, case.objects)
    moments = simulation.play([Submission(float(i), f"p{i}", (share(10),)) for i in range(9)])
    arrived = next(moments)
    found = outcome_of("a", simulation, 9, arrived)
    assert found.interrupted
    assert 1 <= found.whole.placed < 9


def test_what_waits_and_runs_in_a_dump_is_what_fragmentation_is_measured_by() -> None:
    pod = share(60)
    pods = [{**pod, "metadata": {**pod["metadata"], "name": f"p{i}", "namespace": "default", "uid": f"p{i}"}} for i in range(3)]
    found = played([], pods=pods)
    assert found.end["fragmentation"] == pytest.approx(40)
    assert found.classes["share of a card"].placed == 2


def test_pods_of_a_dump_that_lose_their_node_count_from_then_on() -> None:
    template = share(100)
    meta = {"name": "old", "namespace": "default", "uid": "old"}
    running = {**template, "metadata": {**template["metadata"], **meta}, "status": {"phase": "Running"}}
    running["metadata"]["annotations"] = {names.VGPU_IDS: "GPU-n1-0,NVIDIA,80000,0:"}
    running["spec"]["nodeName"] = "n1"
    found = played([], machine(cards=1), pods=[running], outages=[Outage("n1", 40.0, 20.0)])
    assert found.starts["default/old"][0] == pytest.approx(20, abs=1)
    assert found.stayed == []


def test_card_hours_are_the_part_of_a_card_by_the_time_it_is_held() -> None:
    found = played([Submission(0, "a", (share(50),), runs=7200.0), Submission(0, "b", (share(100),), runs=3600.0)])
    assert found.classes["share of a card"].card_hours == pytest.approx(1)
    assert found.whole.card_hours == pytest.approx(2)


@pytest.mark.parametrize("left", range(1, 9))
def test_two_plays_that_end_apart_are_compared_by_the_pods_of_both(left: int) -> None:
    case = ClusterSnapshot(now=1e9, scheduler_conf=CONF, objects={"nodes": [machine()]})
    flow = [Submission(float(i), f"p{i}", (share(10),)) for i in range(9)]
    simulation = Simulation(engine_of(case), case.now, case.objects)
    for arrived in simulation.play(flow):
        if arrived == left:
            break
    cut = outcome_of("b", simulation, 9, left)
    found = difference(played(flow), cut)
    assert not found.placed_only_in_base
    assert not found.placed_only_there


def test_the_auditor_of_a_play_judges_npus_and_legacy_cards_too() -> None:
    node = {"metadata": {"name": "n", "annotations": {"hami.io/node-register-Ascend910B": json.dumps(
        [{"id": "npu-0", "type": "Ascend910B", "devmem": 100, "count": 2}])}},
        "status": {"capacity": {"volcano.sh/gpu-number": 1, "volcano.sh/gpu-memory": 100}}}  # fmt: skip

    def pod(name: str, annotation: str, text: str, **limits: int) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": name, "annotations": {annotation: text}},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": limits}}]}}  # fmt: skip

    kinds = [[pod(f"a{i}", "hami.io/Ascend910B-devices-allocated", "npu-0,Ascend910B,60,0:") for i in range(2)],
             [pod(f"b{i}", "volcano.sh/gpu-index", "0", **{"volcano.sh/gpu-memory": 60}) for i in range(2)],
             [pod(f"c{i}", "huawei.com/npu-core", "0") for i in range(2)]]  # fmt: skip
    for one, two in kinds:
        books = Books([{**node, "status": {**node["status"], "allocatable": {"pods": 9, "volcano.sh/gpu-memory": 200}}}])
        books.take(one)
        assert books.over("n") == []
        books.take(two)
        assert len(books.over("n")) == 1
        books.give(two)
        assert books.over("n") == []


def test_the_auditor_of_a_play_tells_of_a_gang_that_starts_in_part() -> None:
    without_gang = conf("predicates", sharing("VGPU"), actions="allocate")
    case = ClusterSnapshot(now=1e9, scheduler_conf=without_gang, objects={"nodes": [machine()]})
    simulation = Simulation(engine_of(case), case.now, case.objects)
    for _ in simulation.play([Submission(0, "g", (share(100),) * 3, gang=3)]):  # without the plugin gang
        pass
    assert simulation.violations in ([], ["gang default/g: 2 of at least 3 pods have a node"])
    broken = Simulation(engine_of(case), case.now, case.objects)
    broken._new_group(Submission(0, "g", (share(100),) * 3, gang=3))
    broken._bound.add("default/g")
    broken._standing["default/g"] = 2
    broken._audit_gangs()
    assert broken.violations == ["gang default/g: 2 of at least 3 pods have a node"]


def test_the_auditor_of_a_play_tells_what_is_over() -> None:
    case = ClusterSnapshot(now=1e9, scheduler_conf=CONF, objects={"nodes": [machine(cards=1)]})
    engine = engine_of(case)
    two = {"nodes": [manifests.node("n1", cpu="64", memory="256Gi", model="A100-SXM4-80GB", cards=1, mib=40000)]}
    simulation = Simulation(engine, case.now, two)  # the auditor is told of a smaller card than the engine
    for _ in simulation.play([Submission(0, "a", (share(100),))]):
        pass
    assert simulation.violations == ["card GPU-n1-0: memory 80000 of 40000"]


def test_a_gate_that_the_play_opens_is_open_whatever_version_of_the_pod_the_dump_has() -> None:
    template = share(100)
    meta = {"name": "gated", "namespace": "default", "uid": "gated", "resourceVersion": "7",
            "annotations": {names.QUEUE_GATE: "true"}}  # fmt: skip
    spec = {**template["spec"], "schedulingGates": [{"name": names.QUEUE_GATE}]}
    assert list(played([], pods=[{**template, "metadata": meta, "spec": spec}]).starts) == ["default/gated"]
