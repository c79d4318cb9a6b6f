"""Annotations of a pod are written by the scheduler or by the pod's owner: nobody gets more than his spec asks for, nor what
somebody else holds, nor another pod's turn."""

from __future__ import annotations

import pytest
from kit.node_objects import A, B, allocator, card, container, gives, pod

from pumice.devices.nvidia_vgpu.node.allocator import Record, VgpuAllocator
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.node.pods import NodePod
from pumice.node.protocol import Conflict, Refuse, Serve
from pumice.wire import names
from pumice.wire.kubernetes import MIRROR
from pumice.wire.nvidia_vgpu import LIMIT, PodDevice, parse_handed_out, render_handed_out


def serve(at: VgpuAllocator, pods: list[NodePod], *ids: str) -> Serve:
    decision = at.allocate(pods, list(ids) or ["x"])
    assert isinstance(decision, Serve), decision
    decision.work.pod.metadata.annotations.update(decision.patch.annotations if decision.patch else {})
    at.committed(decision)
    return decision


@pytest.mark.parametrize(
    ("device_requests", "written", "reason"),
    [
        (container("c", 1, 3000, 50), gives(A, 3001), "memory 3001 of card"),
        (container("c", 1, 3000, 50), gives(A, 3000, 51), "cores 51 of card"),
        (container("c", 1, 3000, 50), gives(A, 3000, 0), "cores 0 of card"),
        (container("c", 1, 3000, 50), gives(A, 4294967295), "memory 4294967295 of card"),
        (container("c", 2, 3000, 50), gives(A) + gives(A), "more than once"),
        (container("c", 1, 3000, 50), gives(A) + gives(B), "asks for 1 cards and was assigned 2"),
        (container("c", 2, 3000, 50), gives(A), "asks for 2 cards and was assigned 1"),
        ({"name": "c", "resources": {"limits": {names.VGPU_NUMBER: "1", names.VGPU_MEMORY_PERCENTAGE: "10"}}},
         gives(A, 3277, 0), "memory 3277 of card"),
        (container("c", 1, 3000, 50), gives("GPU-of-another-node"), "is not on this node"),
    ],
)  # fmt: skip
def test_nothing_is_given_beyond_what_the_container_asks_for(device_requests, written, reason):
    count = int(device_requests["resources"]["limits"][names.VGPU_NUMBER])
    decision = allocator().allocate([pod("p", written, device_requests)], [f"i{n}" for n in range(count)])
    assert isinstance(decision, Refuse)
    assert reason in decision.reason


def test_cards_that_another_pod_holds_are_not_given_again_not_even_after_a_restart_with_its_annotation_emptied():
    victim, thief = pod("victim", gives(A, 32768, 100)), pod("thief", gives(A, 1000, 0))
    at = allocator()
    serve(at, [victim], "v")
    victim.metadata.annotations.update({names.VGPU_IDS: "", names.DEVICES_TO_ALLOCATE: ""})
    victim.status.phase = "Running"
    decision = at.allocate([victim, thief], ["t"])
    assert isinstance(decision, Conflict)
    assert decision.pod.key == "ns1/thief"
    assert "ns1/victim holds" in decision.reason
    later = allocator()
    later.resume(at.record.text(), [victim, thief], frozenset())
    assert isinstance(later.allocate([victim, thief], ["t"]), Conflict)
    victim.status.phase = "Succeeded"
    serve(later, [victim, thief], "t")


def test_a_pod_that_was_served_before_there_were_books_is_taken_over_by_an_assignment_that_can_be_true():
    good, bad, never = pod("good", gives(A, 9000, 10)), pod("bad", gives(A), container("c", 2)), pod("never", gives(B))
    record = Record("node-a", Sharing())
    cards = allocator()._cards
    record.resume("", [good, bad, never], frozenset({("uid-good", "train"), ("uid-bad", "c")}), cards)
    assert parse_handed_out(record.text()).keys() == {"uid-good"}


@pytest.mark.parametrize("both_were_served", [True, False])
def test_a_plugin_killed_between_the_calls_of_two_containers_books_both_when_it_comes_back(both_were_served):
    first, second = container("first", 1, 3000, 50), container("second", 1, 3000, 50)
    two = pod("two", f"{gives(A)};{gives(B)}", first, second)
    at, cards = Record("node-a", Sharing()), allocator()._cards
    at.resume("uid-two " + f"{gives(A)};" + "\n", [two], frozenset(), cards)  # published after the first call
    published = at.text()
    later = Record("node-a", Sharing())
    served = {("uid-two", "first"), *([("uid-two", "second")] if both_were_served else [])}
    later.resume(published, [two], frozenset(served), cards)
    cards_of = [[device.uuid for device in part] for part in parse_handed_out(later.text())["uid-two"].containers]
    assert cards_of == [[A], [B] if both_were_served else []]


def test_a_plugin_that_comes_back_knows_what_a_pod_got_of_which_the_owner_wrote_that_it_is_of_another_node():
    first, second = container("first", 1, 3000, 50), container("second", 1, 3000, 50)
    two = pod("two", f"{gives(A)};{gives(B)}", first, second, annotations={names.VGPU_NODE: "nonsense"})
    elsewhere = pod("elsewhere", gives("GPU-of-another-node"), annotations={names.VGPU_NODE: "node-b"})
    later, served = Record("node-a", Sharing()), {("uid-two", "first"), ("uid-two", "second"), ("uid-elsewhere", "train")}
    later.resume(f"uid-two {gives(A)};\n", [two, elsewhere], frozenset(served), allocator()._cards)
    books = parse_handed_out(later.text())
    assert books.keys() == {"uid-two"}
    assert [[device.uuid for device in part] for part in books["uid-two"].containers] == [[A], [B]]


def test_a_pod_that_names_its_node_and_cards_itself_was_bound_by_nobody_and_gets_nothing():
    forged, honest = pod("forged", gives(A, 32768, 100)), pod("honest", gives(A, 32768, 100))
    forged.status.conditions, forged.arrival, honest.arrival = [], 1, 2
    at = allocator()
    refused = at.allocate([forged, honest], ["x"])
    assert isinstance(refused, Refuse)
    assert "no scheduler bound it" in refused.reason
    assert serve(at, [forged, honest]).work.pod.key == "ns1/honest"


def test_a_mirror_pod_takes_nobodys_turn():
    for written in (None, gives(A)):
        orphan, victim = pod("orphan", written, container("c", 1), annotations={MIRROR: "x"}), pod("victim", gives(B))
        orphan.arrival, victim.arrival = 1, 2
        assert serve(allocator(), [orphan, victim]).work.pod.key == "ns1/victim"


def test_a_pod_that_only_says_that_it_is_half_served_does_not_come_first():
    two = (container("a", 1, 3000, 50), container("b", 1, 3000, 50))
    first, forged = pod("first", gives(A)), pod("forged", f"{gives(B)};{gives(B)}", *two, left=f";{gives(B)}")
    first.arrival, forged.arrival = 1, 2
    decision = allocator().allocate([forged, first], ["x"], frozenset())
    assert isinstance(decision, Serve)
    assert decision.work.pod.key == "ns1/first"


def test_a_call_that_may_be_for_one_of_two_pods_with_different_shares_is_refused_and_neither_is_marked():
    one, other = pod("one", gives(A, 3000)), pod("other", gives(B, 8000))
    decision = allocator().allocate([one, other], ["x"])
    assert isinstance(decision, Refuse)
    assert "ns1/one or ns1/other" in decision.reason
    assert decision.effects == ()
    one.arrival, other.arrival = 1, 2  # told apart
    serve(allocator(), [one, other])


def test_two_pods_with_equal_shares_may_be_told_apart_by_nothing_and_are_served():
    at, pods = allocator(), [pod("one", gives(A)), pod("other", gives(B))]
    assert {serve(at, pods, each).work.pod.key for each in "xy"} == {"ns1/one", "ns1/other"}


def test_the_books_of_ten_thousand_pods_do_not_outgrow_an_annotation():
    allocated = {f"uid-{n:032d}": ((PodDevice(A, 3000, 50),),) for n in range(10_000)}
    text = render_handed_out(allocated)
    assert len(text) <= LIMIT
    assert len(parse_handed_out(text)) > 500


def test_a_full_card_of_a_smaller_size_is_told_apart_from_a_large_one():
    small = (card(0, A, mib=4000), card(1, B, mib=32768))
    at = allocator(cards=small)
    serve(at, [pod("one", gives(A, 3000, 0))], "a")
    pods = [pod("one", "", uid="uid-one", phase="Running"), pod("two", gives(A, 3000, 0))]
    assert isinstance(at.allocate(pods, ["b"]), Conflict)
    assert isinstance(at.allocate([pod("three", gives(B, 3000, 0))], ["c"]), Serve)
