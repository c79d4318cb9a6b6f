"""Which pods still hold their slices, by the watch and by the kubelet's record."""

from __future__ import annotations

from pumice.node.pods import NodePod
from pumice.node.slices import VANISHED, Owners
from pumice.wire.objects import convert


def pod(uid: str, phase: str = "Running") -> NodePod:
    return convert(NodePod, {"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "status": {"phase": phase}})


def named(*uids: str) -> set[tuple[str, str]]:
    return {(uid, "c") for uid in uids}


def test_a_pod_holds_until_it_has_ended_whatever_the_record_says() -> None:
    owners = Owners()
    owners.look([pod("a"), pod("b", "Succeeded"), pod("c", "Pending")], 0)
    owners.ask(named("a", "b"))
    assert [owners.holds(uid) for uid in "abc"] == ["ns/a", "", "ns/c"]


def test_a_pod_that_was_seen_to_end_holds_nothing_once_it_is_gone() -> None:
    """The kubelet takes pods out of its record late."""
    owners = Owners()
    owners.look([pod("a")], 0)
    owners.look([pod("a", "Failed")], 1)
    owners.look([], 2)
    owners.ask(named("a"))
    assert owners.holds("a") == ""
    assert owners.vanishing == 0


def test_one_that_vanished_while_it_ran_holds_for_a_while_if_the_record_names_it() -> None:
    owners = Owners()
    owners.look([pod("a"), pod("b")], 0)
    owners.look([], 5)
    owners.ask(named("a"))
    assert [owners.holds(uid) for uid in "ab"] == ["ns/a", ""], "nobody names b"
    assert owners.vanishing == VANISHED
    owners.look([], 5 + VANISHED)
    owners.ask(named("a"))
    assert owners.holds("a") == ""
    assert owners.vanishing == 0


def test_one_that_vanished_while_nobody_watched_is_found_by_the_record() -> None:
    owners = Owners()
    owners.look([], 100)
    owners.ask(named("a"))
    assert owners.holds("a") == "of UID a"
    owners.look([], 100 + VANISHED)
    owners.ask(named("a"))
    assert owners.holds("a") == ""


def test_without_a_record_only_the_watch_counts() -> None:
    owners = Owners()
    owners.look([pod("a")], 0)
    owners.look([], 1)
    owners.ask(None)
    assert owners.holds("a") == ""
