"""The steps for a pod's placements, and the slices left alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pumice.devices.nvidia_vgpu.node.mig_slices import plan
from pumice.node.slices import Drain, Fill, Make, Plan, Remove, known
from pumice.ports.slices import Entry, Phase, Place, Slice, SliceProfile

CARD = "GPU-a"
OFFERED = {CARD: (SliceProfile("1g.5gb", 1, tuple(range(7))), SliceProfile("2g.10gb", 2, (0, 2, 4)),
                  SliceProfile("3g.20gb", 4, (0, 4)), SliceProfile("7g.40gb", 8, (0,)))}  # fmt: skip
SIZES = {profile.name: profile.size for profile in OFFERED[CARD]}


def place(text: str) -> Place:
    profile, _, start = text.partition("@")
    return Place(CARD, profile, int(start))


def there(text: str, uuid: str = "MIG-1", **more: object) -> Slice:
    at = place(text)
    return Slice(at, SIZES[at.profile], uuid, **more)  # type: ignore[arg-type]


def entry(text: str, owner: str = "gone", uuid: str = "MIG-1", phase: Phase = Phase.MADE) -> Entry:
    return Entry(place(text), owner, phase, uuid)


def planned(*wanted: str, seen: tuple[Slice, ...] = (), records: tuple[Entry, ...] = (),
            holding: Mapping[str, str] | None = None) -> Plan | str:  # fmt: skip
    names = {"me": "ns/me", **(holding or {})}
    return plan(
        seen,
        known(records),
        [place(text) for text in wanted],
        "me",
        offered=OFFERED,
        holds=lambda uid: names.get(uid, ""),
    )


def test_on_an_idle_card_larger_slices_are_made_first_each_at_its_place():
    found = planned("1g.5gb@6", "2g.10gb@2")
    assert isinstance(found, Plan)
    assert found.steps == (Make(place("2g.10gb@2")), Fill(place("2g.10gb@2")), Make(place("1g.5gb@6")), Fill(place("1g.5gb@6")))
    assert {e.phase for e in found.books.values()} == {Phase.MAKING}


def test_a_slice_that_nobody_holds_is_taken_as_it_is():
    found = planned("2g.10gb@2", seen=(there("2g.10gb@2"),), records=(entry("2g.10gb@2"),))
    assert isinstance(found, Plan)
    assert found.steps == ()
    assert found.books[place("2g.10gb@2")] == entry("2g.10gb@2", "me")


def test_what_lies_in_the_way_goes_and_what_stands_beside_stays():
    seen = (there("1g.5gb@0"), there("1g.5gb@1", "MIG-2"), there("2g.10gb@4", "MIG-3"))
    records = (entry("1g.5gb@0"), entry("1g.5gb@1", uuid="MIG-2"), entry("2g.10gb@4", "runs", "MIG-3"))
    found = planned("2g.10gb@0", seen=seen, records=records, holding={"runs": "ns/other"})
    assert isinstance(found, Plan)
    assert found.steps == (
        Drain(place("1g.5gb@0")), Remove(place("1g.5gb@0")), Drain(place("1g.5gb@1")), Remove(place("1g.5gb@1")),
        Make(place("2g.10gb@0")), Fill(place("2g.10gb@0")),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "slice_", "entries", "reason"),
    [
        ("2g.10gb@0", there("1g.5gb@1"), (), "slice 1g.5gb@1 of card GPU-a was made by somebody else and is left alone"),
        ("1g.5gb@1", there("1g.5gb@1"), (), "slice 1g.5gb@1 of card GPU-a was made by somebody else"),
        ("1g.5gb@1", there("1g.5gb@1", "MIG-9"), (entry("1g.5gb@1"),), "was made by somebody else"),
        ("1g.5gb@1", there("1g.5gb@1", parts=2), (entry("1g.5gb@1"),), "was made by somebody else"),
        ("2g.10gb@0", there("1g.5gb@1"), (entry("1g.5gb@1", "runs"),), "pod ns/other holds slice 1g.5gb@1 of card GPU-a"),
        ("1g.5gb@1", there("1g.5gb@1"), (entry("1g.5gb@1", "runs"),), "pod ns/other holds slice 1g.5gb@1 of card GPU-a"),
        ("2g.10gb@0", there("1g.5gb@1", busy=True), (entry("1g.5gb@1"),), "a process still runs on slice 1g.5gb@1 of card GPU-a"),
        ("1g.5gb@1", there("1g.5gb@1", busy=True), (entry("1g.5gb@1"),), "a process still runs on slice 1g.5gb@1 of card GPU-a"),
        ("2g.10gb@0", there("1g.5gb@1"), (entry("1g.5gb@1", "me"),), "is this pod's own and lies in the way"),
        ("2g.10gb@1", there("1g.5gb@6"), (entry("1g.5gb@6"),), "card GPU-a has no slice 2g.10gb@1; its driver offers 1g"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_with_whose_it_is(wanted, slice_, entries, reason):
    found = planned(wanted, seen=(slice_,), records=entries, holding={"runs": "ns/other"})
    assert isinstance(found, str)
    assert reason in found


def test_half_a_slice_of_ours_is_filled():
    begun = entry("3g.20gb@4", uuid="", phase=Phase.MAKING)
    found = planned("3g.20gb@4", seen=(there("3g.20gb@4", "", parts=0),), records=(begun,))
    assert isinstance(found, Plan)
    assert found.steps == (Fill(place("3g.20gb@4")),)


def test_places_over_each_other_are_refused():
    assert "lie over each other" in str(planned("3g.20gb@0", "1g.5gb@3"))
