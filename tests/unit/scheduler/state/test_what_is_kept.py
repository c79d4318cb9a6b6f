"""The state of tens of thousands of placed pods: little, shared, and still enough to read their cards again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.device_world import fingerprint
from kit.engine_world import World
from kit.objects import node, pod

from pumice.devices.protocol import Inventory, Marks, WithoutConstraints
from pumice.effects.vocabulary import QueueAllocated
from pumice.model.cards import Allocation, Card, ContainerDevice
from pumice.scheduler.state.card_states import NamedNodes
from pumice.scheduler.state.classes import KINDS_KEPT
from pumice.scheduler.state.node_devices import NodeDevices
from pumice.scheduler.state.nodes import NodeFacts, node_bytes
from pumice.wire.objects import Node, convert


def running(name: str, where: str = "n1", asks: int = 3000, **more: Any) -> dict[str, Any]:
    ids = f"GPU-{where}-0,NVIDIA,3000,10:"
    made = pod(name, mib=asks, cores=10, nodeName=where, annotations={
        "volcano.sh/vgpu-node": where, "volcano.sh/vgpu-ids-new": ids, "volcano.sh/devices-to-allocate": ids,
        "volcano.sh/bind-time": "1", "kubectl.kubernetes.io/last-applied-configuration": "long",
        "example.com/manifest": "of a domain that journals leave out", **more})  # fmt: skip
    made["status"] = {"phase": "Running"}
    return made


def test_of_a_placed_pod_the_annotations_that_tell_of_cards_are_kept_and_its_containers_are_shared() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000), running("a"), running("b"))
    state = world.engine.state
    placed = (state.ledger.placements[world.pods[f"default/{name}"]["metadata"]["uid"]] for name in "ab")
    a, b = map(state.bookings.assignments.pod, placed)
    assert a is not None
    assert b is not None
    assert set(a.metadata.annotations) == {"volcano.sh/vgpu-node", "volcano.sh/vgpu-ids-new"}
    assert (a.key, a.spec.node_name) == ("default/a", "n1")
    assert a.spec.containers is b.spec.containers


def test_shares_of_one_card_that_are_written_alike_are_kept_once() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000), running("a"), running("b"))
    a, b = (world.engine.state.ledger.placements[world.pods[f"default/{name}"]["metadata"]["uid"]] for name in "ab")
    assert a.allocations[0] is b.allocations[0]
    world.delete_pod("a")
    world.add(pod("c", mib=5000, cores=10))
    world.settle()
    assert world.node_of("c") == "n1"


@pytest.mark.parametrize("first", ["honest", "forged"])
def test_an_assignment_that_is_true_of_one_pod_is_not_believed_of_another_that_asks_for_less(first: str) -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000))
    pods = {"honest": running("honest"), "forged": running("forged", asks=1000)}
    for name in sorted(pods, key=lambda name: name != first):
        world.add(pods[name])
    world.add(pod("later", mib=1000, cores=10))
    world.settle()
    assert world.node_of("later") == ""
    (problem,) = (text for about, text in world.engine.state.problems.items() if about.startswith("Pod"))
    assert "pod default/forged holds cards and nothing says for certain which" in problem
    world.delete_pod("forged")
    world.settle()
    assert world.node_of("later") == "n1"


def test_whoever_writes_on_his_pod_that_its_cards_are_of_another_node_closes_no_card_with_it() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000), running("liar", **{"volcano.sh/vgpu-node": "nonsense"}))
    world.add(pod("large", mib=6000), pod("small", mib=5000))
    world.settle()
    assert (world.node_of("large"), world.node_of("small")) == ("", "n1")


def test_a_pod_whose_cards_are_of_another_node_and_are_not_known_here_closes_those_of_its_own() -> None:
    world = World()
    elsewhere = {"volcano.sh/vgpu-node": "n2", "volcano.sh/vgpu-ids-new": "GPU-n2-0,NVIDIA,3000,10:"}
    world.add(node("n1", cards=1, mib=8000), running("liar", **elsewhere))
    world.add(pod("later", mib=1000))
    world.settle()
    assert world.node_of("later") == ""


def test_a_pod_that_says_nothing_of_cards_is_not_kept() -> None:
    world = World()
    plain = pod("plain", cpu="1", nodeName="n1", annotations={"volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,1,1:"})
    silent = pod("silent", mib=3000, nodeName="n1", annotations={"prometheus.io/scrape": "true", "note": "x"})
    world.add(node("n1", cards=1), plain, silent)
    assert [placement.told for placement in world.engine.state.ledger.placements.values()] == [None, None]


def test_pods_seen_before_their_node_and_its_cards_are_charged_when_these_come() -> None:
    world = World()
    world.add(running("a"), running("b"))
    world.add({**node("n1", cards=1), "metadata": {**node("n1")["metadata"]}})
    world.add(node("n1", cards=1, mib=8000))
    book = world.engine.state.ledger.device_tables["nvidia-vgpu"].nodes["n1"]
    assert [(usage.memory, usage.cores) for usage in book.usages] == [(6000, 20)]


def test_labels_that_never_repeat_do_not_pile_up() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000, pods=10_000))
    for number in range(KINDS_KEPT + 50):
        world.add(pod(f"p{number}", cpu="1m", nodeName="n1", labels={"job-name": f"job-{number}"}))
        world.remove("Pod", f"default/p{number}")
    classes = world.engine.state.classes
    assert len(classes._kinds) <= KINDS_KEPT
    assert len(classes._features) <= KINDS_KEPT


def test_a_queue_is_told_when_a_running_bare_pod_comes_and_goes() -> None:
    world = World()
    world.add(node("n1", cpu="8"), pod("a", cpu="2", nodeName="n1"))
    assert QueueAllocated("default", {"cpu": "2", "pods": "1"}) in world.cycle()
    world.delete_pod("a")
    assert world.engine.has_work(world.now)
    assert QueueAllocated("default", {}) in world.cycle()
    assert not world.engine.has_work(world.now)


@pytest.mark.parametrize("change", ["labels", "annotations", "taints", "allocatable", "nothing"])
def test_a_node_is_read_again_when_something_of_it_changed_and_not_after_a_heartbeat(change: str) -> None:
    before = node("n1", cards=2, labels={"zone": "a"})
    after = node("n1", cards=2, labels={"zone": "a"})
    after["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "later"}]
    if change == "labels":
        after["metadata"]["labels"]["zone"] = "b"
    elif change == "annotations":
        after["metadata"]["annotations"]["pumice.io/cordoned-cards"] = "0"
    elif change == "taints":
        after["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    elif change == "allocatable":
        after["status"]["allocatable"]["cpu"] = "1"
    first, second = (node_bytes(convert(Node, obj)) for obj in (before, after))
    assert (first == second) == (change == "nothing")
    kept = NodeFacts("n1", {}, (), False, second).node
    assert kept.metadata.annotations == after["metadata"]["annotations"]
    assert kept.status.allocatable == after["status"]["allocatable"]


NAMES = ("n0", "n1", "n2")
STEPS = st.lists(
    st.tuples(st.sampled_from(["node comes", "node goes", "pod comes", "pod goes", "ask"]), st.sampled_from(NAMES),
              st.integers(0, 3)),
    max_size=30,
)  # fmt: skip


@given(STEPS)
def test_who_names_a_node_is_the_same_whether_it_was_asked_early_or_late(steps: list[tuple[str, str, int]]) -> None:
    nodes: dict[str, NodeDevices] = {}
    early, late = NamedNodes(nodes), NamedNodes(nodes)
    ask = WithoutConstraints(None, frozenset({"GPU-n0", "GPU-n2"}), "default/g", frozenset({1}))
    for what, name, number in steps:
        book = nodes.get(name)
        if what == "node comes" and book is None:
            book = nodes[name] = NodeDevices.empty(name, Inventory((Card(0, f"GPU-{name}", "x", 8000, 10),)))
            early.add(book), late.add(book)
        elif what == "node goes" and book is not None:
            del nodes[name]
            early.forget(book), late.forget(book)
        elif what == "pod comes" and book is not None and str(number) not in book.marks:
            marks = Marks(("default/g", "default/h", "", "default/g")[number], frozenset({number}))
            book.charge(str(number), Allocation("x", name, ((ContainerDevice(0, f"GPU-{name}", 1, 1, 1),),)), marks)
            early.note(book, marks, 1), late.note(book, marks, 1)
        elif what == "pod goes" and book is not None and str(number) in book.marks:
            marks = book.marks[str(number)]
            book.discharge(str(number))
            early.note(book, marks, -1), late.note(book, marks, -1)
        elif what == "ask":
            early.of(ask)
    assert early.of(ask) == late.of(ask)
    assert early.marks == late.marks == sum(len(book.marks) for book in nodes.values())


def test_tables_are_made_anew_after_many_pods_without_losing_any() -> None:
    world = World()
    world.engine.state.pods.tidied_after = 3
    world.add(node("n1", cards=4, mib=8000, pods=1000), running("stays"))
    before = fingerprint(world.engine.state.ledger)
    for number in range(40):
        world.add(running(f"p{number}", "n1"), pod(f"q{number}", cpu="100"))
        world.delete_pod(f"p{number}")
        world.delete_pod(f"q{number}")
    state = world.engine.state
    assert fingerprint(state.ledger) == before
    assert [task.name for task in state.tasks.values()] == ["stays"]
    assert [len(state.jobs), len(state.queues["default"].jobs), len(state.ledger.placements)] == [1, 1, 1]
    assert fingerprint(world.restarted().state.ledger) == before
