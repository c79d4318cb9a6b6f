"""The writer of feedback without a monitor: one arbiter, by the monitor's rule, as long as a card is contested."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec
from tests.unit.local.test_several_cards import booked

from pumice.adapters.bookings.book import Booking, opened
from pumice.adapters.region import read_region
from pumice.adapters.region.extension import OFFSET
from pumice.adapters.region.writer import PULSE, create_region, write_feedback
from pumice.local.arbiter import LOCK, arbitrate, contested, play
from pumice.local.request import Request
from pumice.node.feedback import WAIT


def program(directory: Path, number: str, priority: int, *cards: str) -> Booking:
    """A living program with a region, on these cards."""
    share = booked(Request(memory=100, cards=cards or ("0",), count=len(cards) or 1), number)
    region = directory / "regions" / number / "vgpu.cache"
    made = msgspec.structs.replace(share, region=str(region), priority=priority)
    with opened(directory) as bookings:  # which sweeps away regions that nobody booked
        create_region(region, share.limits, priority)
        bookings.add(made)
        bookings.save()
    return made


def recent(share: Booking) -> int:
    return read_region(share.region).recent_kernel


def launch(share: Booking) -> None:
    """As the library tells of a launch: not while it waits."""
    if recent(share) >= 0:
        write_feedback(share.region, 2)


def test_only_unlike_priorities_on_one_card_need_an_arbiter(tmp_path: Path) -> None:
    low, high = program(tmp_path, "r1", 1, "0"), program(tmp_path, "r2", 0, "1")
    assert not contested([low, high])
    assert not contested([low, program(tmp_path, "r3", 1, "0")])
    assert contested([low, program(tmp_path, "r4", 0, "2", "0")])


def test_the_less_important_waits_while_the_more_important_works_and_keeps_its_limit(tmp_path: Path) -> None:
    low, high = program(tmp_path, "r1", 1), program(tmp_path, "r2", 0)
    for _ in range(3):
        launch(low)
        launch(high)
        play([low, high])
        assert recent(low) == WAIT
        assert recent(high) >= 0
    play([low, high])  # the other has stopped
    assert recent(low) == 0
    assert [read_region(share.region).utilization_switch for share in (low, high)] == [1, 1]


def test_who_begins_between_two_rounds_is_waited_for_at_once_and_nobody_is_counted_down(tmp_path: Path) -> None:
    low, high = program(tmp_path, "r1", 1), program(tmp_path, "r2", 0)
    for _ in range(3):
        play([low, high])
    assert (recent(low), recent(high)) == (0, 0)
    launch(low)
    launch(high)
    for _ in range(20):
        play([low, high], aged=False)
        assert (recent(low), recent(high)) == (WAIT, 2)
    play([low, high])
    play([low, high])
    assert (recent(low), recent(high)) == (0, 0)


def pulse(share: Booking) -> tuple[int, int]:
    with open(share.region, "rb") as file:
        file.seek(OFFSET + 16)
        beats, every_ms = PULSE.unpack(file.read(PULSE.size))
    return beats, every_ms


def test_who_waits_hears_a_pulse_and_nobody_else_does(tmp_path: Path) -> None:
    """Should the arbiter be killed, the library goes on by itself once it misses the pulse."""
    low, high = program(tmp_path, "r1", 1), program(tmp_path, "r2", 0)
    for turn in range(1, 4):
        launch(high)
        play([low, high])
        play([low, high], aged=False)
        assert pulse(low) == (turn, 1000)
        assert pulse(high) == (0, 0)
    for _ in range(2):
        play([low, high])
    assert recent(low) == 0
    assert pulse(low) == (0, 0)


def test_a_region_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    low, high = program(tmp_path, "r1", 1), program(tmp_path, "r2", 0)
    gone = program(tmp_path, "r3", 0)
    os.unlink(gone.region)
    launch(high)
    play([low, high, gone])
    assert recent(low) == WAIT


def test_the_arbiter_ends_when_nothing_is_contested_leaves_nobody_waiting_and_makes_room_for_the_next(tmp_path: Path) -> None:
    low, high = program(tmp_path, "r1", 1), program(tmp_path, "r2", 0)
    lock = os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    waited = []

    def nap(seconds: float) -> None:
        waited.append(recent(low))
        if len(waited) == 3:
            with opened(tmp_path) as bookings:
                bookings.remove(high.id)
                bookings.save()
        else:
            launch(high)

    arbitrate(tmp_path, lock, nap)
    assert waited == [WAIT] * 3
    assert recent(low) == 0
    again = os.open(tmp_path / LOCK, os.O_RDWR)
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    os.close(lock)


def test_an_arbiter_whose_book_is_damaged_gives_up_some_time(tmp_path: Path) -> None:
    (tmp_path / "bookings.json").write_bytes(b"{")
    naps: list[float] = []
    arbitrate(tmp_path, -1, naps.append)
    assert 10 < len(naps) < 1000
