"""Which pod an Allocate call for AI cores is for, and what it is given (MindCluster ascend-device-plugin, example B24)."""

from __future__ import annotations

from typing import Any

import pytest

from pumice.devices.ascend_mindcluster.node.allocator import ChipAllocator
from pumice.effects.vocabulary import PatchPod
from pumice.model.hardware.npu import slice_kinds
from pumice.node.pods import NodePod
from pumice.node.protocol import Partition, Refuse, Serve
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Place, Slice
from pumice.wire.objects import Node, convert

CORE, TAKEN = "huawei.com/npu-core", "18446744073709551615"
SOFT = "huawei.com/scheduler.softShareDev.hbmQuota"
BOUND = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
CHIPS = tuple(CardFacts(at, f"U{at}", "310P3", 24 << 30, minor=at) for at in range(2))


def waiting(
    name: str, cores: int, given: str | None, time: int | str = 1, *, arrival: int = 0, asking: int = 1, **more: Any
) -> NodePod:
    notes = {} if given is None else {CORE: given, "predicate-time": str(time)}
    notes |= more.get("notes", {})
    containers = [{"name": f"c{at}", "resources": {"limits": {CORE: str(cores)}}} for at in range(asking)]
    found = convert(NodePod, {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": notes, **more.get("meta", {})},
        "spec": {"nodeName": "n1", "containers": containers}, "status": more.get("status", BOUND),
    })  # fmt: skip
    found.arrival = arrival
    return found


def allocator(unhealthy: dict[str, str] | None = None) -> ChipAllocator:
    found = ChipAllocator("n1", slice_kinds()["Ascend310P"], 8)
    found.show(CHIPS, unhealthy or {})
    return found


def ids(count: int) -> list[str]:
    return [f"npu-core-{at}" for at in range(count)]


def served(decision: Any, number: str = "100") -> Serve:
    assert isinstance(decision, Partition)
    return decision.then({place: Slice(place, 0, number) for place in decision.places if place.profile})


def test_of_two_pods_with_as_many_cores_the_one_that_was_placed_first_is_served_and_marked() -> None:
    pods = [waiting("p1", 2, "0-vir02", 5), waiting("p2", 2, "1-vir02_1c", 3)]
    decision = allocator().allocate(pods, ids(2))
    assert isinstance(decision, Partition)
    assert (decision.pod.key, decision.places) == ("ns/p2", (Place("U1", "vir02_1c", 1),))
    serve = served(decision)
    assert isinstance(serve.patch, PatchPod)
    assert (serve.patch.name, dict(serve.patch.annotations)) == ("p2", {"predicate-time": TAKEN})


def test_a_number_of_cores_that_nobody_waits_for_gets_no_pod() -> None:
    found = allocator()
    assert found.allocate([waiting("p1", 2, "0-vir02"), waiting("p2", 2, "1-vir02")], ids(8)) is None
    assert found.nobody(8).startswith("not get valid pod")


@pytest.mark.parametrize(("time", "first"), [("", "p2"), ("soon", "p2"), (9, "p2"), (2, "p1")])
def test_a_missing_or_bad_time_counts_as_the_latest(time: Any, first: str) -> None:
    decision = allocator().allocate([waiting("p1", 1, "0-vir01", time), waiting("p2", 1, "1-vir01", 3)], ids(1))
    assert isinstance(decision, Partition)
    assert decision.pod.metadata.name == first


def test_pods_that_came_while_we_watched_are_served_as_they_came_because_the_kubelet_admits_them_so() -> None:
    pods = [waiting("late", 2, "0-vir02_1c", 3, arrival=2), waiting("early", 2, "1-vir02_1c", 5, arrival=1)]
    decision = allocator().allocate(pods, ids(2))
    assert isinstance(decision, Partition)
    assert decision.pod.metadata.name == "early"


@pytest.mark.parametrize(
    "pod",
    [
        waiting("over", 2, "0-vir02", status={**BOUND, "phase": "Failed"}),
        waiting("refused", 2, "0-vir02", status={**BOUND, "reason": "UnexpectedAdmissionError"}),
        waiting("going", 2, "0-vir02", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        waiting("taken", 2, "0-vir02", TAKEN),
    ],
    ids=lambda pod: pod.metadata.name,
)
def test_who_does_not_wait_is_passed_over(pod: NodePod) -> None:
    assert allocator().allocate([pod], ids(2)) is None


def test_who_was_served_is_served_again_only_where_the_kubelet_has_lost_the_answer() -> None:
    found = allocator()
    pod = waiting("p", 2, "0-vir02", TAKEN)
    assert found.allocate([pod], ids(2), frozenset({("uid-p", "c0")})) is None
    assert isinstance(found.allocate([pod], ids(2), frozenset()), Partition)


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (waiting("own", 2, None), "was not placed by the scheduler"),
        (waiting("forged", 2, "0-vir02", status={"phase": "Pending"}), "was not placed by the scheduler"),
        (waiting("other", 2, "0-vir04"), "does not name what gives it 2 AI cores"),
        (waiting("odd", 2, "0-vir02-1"), "does not name what gives it 2 AI cores"),
        (waiting("soft", 2, "0-vir02", notes={SOFT: "1"}), "nothing here shares NPUs as vCANN-RT does"),
        (waiting("two", 2, "0-vir02", asking=2), "2 of its containers ask"),
        (waiting("unknown", 2, "0-vir02_9c"), "NPUSegmentFailed: Ascend310P has no template 'vir02_9c'"),
        (waiting("nowhere", 2, "7-vir02"), "NoNPUResource: chip Ascend310P-7 is not on this node"),
        (waiting("ill", 2, "1-vir02"), "NoNPUResource: chip Ascend310P-1 takes no pods: its health is Alarm"),
    ],
    ids=lambda value: value.metadata.name if isinstance(value, NodePod) else "",
)
def test_what_cannot_be_given_is_refused_in_words_and_marked(pod: NodePod, reason: str) -> None:
    decision = allocator({"U1": "its health is Alarm"}).allocate([pod], ids(2))
    assert isinstance(decision, Refuse)
    assert reason in decision.reason
    assert PatchPod.of(pod.metadata, {"predicate-time": TAKEN}) in decision.effects


@pytest.mark.parametrize("given", ["0,0", "1,1,0", "0,00"])
@pytest.mark.parametrize("cores", [8, 16, 24])
def test_a_chip_that_is_named_twice_gives_nobody_two(given: str, cores: int) -> None:
    decision = allocator().allocate([waiting("p", cores, given)], ids(cores))
    assert isinstance(decision, Refuse)
    assert "does not name what gives it" in decision.reason


def test_a_slice_is_named_to_the_runtime_as_a_virtual_device() -> None:
    env = served(allocator().allocate([waiting("p", 4, "0-vir04_3c")], ids(4))).answer.env
    assert env["ASCEND_VISIBLE_DEVICES"] == "100"
    assert env["ASCEND_RUNTIME_OPTIONS"] == "VIRTUAL"
    assert {env[key] for key in ("MS_LOCAL_WORKER", "MS_WORKER_NUM", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "CM_WORKER_SIZE",
                                 "CM_LOCAL_WORKER")} == {"1"}  # fmt: skip
    assert env["LOCAL_RANK"] == "0"


def test_whole_chips_are_named_by_their_physical_ids() -> None:
    env = served(allocator().allocate([waiting("p", 16, "0,1")], ids(16))).answer.env
    assert (env["ASCEND_VISIBLE_DEVICES"], env["ASCEND_RUNTIME_OPTIONS"]) == ("0,1", "")
    assert (env["WORLD_SIZE"], env["LOCAL_RANK"]) == ("2", "0,1")


def test_a_chip_that_is_ill_makes_the_list_shorter_and_stays_among_the_nodes_chips() -> None:
    found = allocator({"U1": "its health is Alarm"})
    assert [unit.id for unit in found.units(CORE)] == ids(8)
    (write,) = found.missing(convert(Node, {"metadata": {"name": "n1"}}))
    assert write.annotations["baseDeviceInfos"] == (
        '{"Ascend310P-0":{"IP":"","SuperDeviceID":0},"Ascend310P-1":{"IP":"","SuperDeviceID":0}}'
    )
    assert write.labels == {"accelerator": "huawei-Ascend310P", "servertype": "Ascend310P-8",
                            "node.kubernetes.io/npu.chip.name": "310P3"}  # fmt: skip


def test_what_somebody_said_of_a_chips_cores_stays() -> None:
    (write,) = allocator().missing(convert(Node, {"metadata": {"name": "n1", "labels": {"servertype": "Ascend310P-10"}}}))
    assert "servertype" not in write.labels
