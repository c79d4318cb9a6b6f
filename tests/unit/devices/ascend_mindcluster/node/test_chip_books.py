"""Whose a slice is, by the kubelet's own record (ADR 81)."""

from __future__ import annotations

from pumice.devices.ascend_mindcluster.node.keeper import held_by
from pumice.ports.slices import Entry, Phase, Place


def entry(owner: str, ids: str, number: int) -> Entry:
    return Entry(Place("A", "vir01", number), owner, Phase.MADE, ids)


def owners(entries: list[Entry], record: dict[str, str], live: set[str]) -> list[str]:
    return [found.owner for found in held_by(entries, record, live)]


def test_who_has_the_ids_has_what_was_given_for_them() -> None:
    entries = [entry("a", "1", 100), entry("b", "2", 101)]
    assert owners(entries, {"a": "2", "b": "1"}, {"a", "b"}) == ["b", "a"]


def test_a_record_that_still_names_a_pod_that_ended_takes_nothing_from_the_next_one() -> None:
    entries = [entry("ended", "1", 100), entry("next", "1", 101)]
    assert owners(entries, {"ended": "1"}, {"next"}) == ["ended", "next"]
    assert owners(entries, {"ended": "1"}, {"ended", "next"}) == ["ended", "next"], "its end is not known yet"
    assert owners(entries, {"next": "1"}, {"next"}) == ["ended", "next"]


def test_an_owner_that_the_kubelet_has_not_written_down_yet_keeps_what_it_was_given() -> None:
    assert owners([entry("b", "1", 100)], {"a": "1"}, {"a", "b"}) == ["b"]
    assert owners([entry("b", "1", 100)], {"a": "1"}, {"a"}) == ["a"], "it is gone, and a has the ids"
