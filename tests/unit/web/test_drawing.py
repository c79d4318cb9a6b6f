"""Bars: what is beyond 100 % stays visible, and the words say what the picture shows."""

from __future__ import annotations

from pumice.web.drawing import WIDTH, cores_bar, memory_bar, part_bar, percent
from pumice.web.values import CardView, Held, Slot


def card(*held: Held, total: int = 1000, slots: tuple[Slot, ...] = ()) -> CardView:
    memory, cores = sum(each.memory for each in held), sum(each.cores for each in held)
    return CardView("n", "vgpu", 0, "GPU-0", "T4", "hami-core", total, "MiB", memory, cores, 10, held=held, slots=slots)


def test_one_segment_a_share_side_by_side() -> None:
    bar = memory_bar(card(Held("d/a", 0, 250, 250, 10), Held("d/b", 0, 500, 500, 20)))
    assert [(s.x, s.width) for s in bar.segments] == [(0, 25), (25, 50)]
    assert bar.full == WIDTH
    assert "750 of 1000 MiB" in bar.label
    assert bar.segments[0].title == "d/a: 250 MiB"


def test_what_is_promised_twice_lies_beyond_the_mark_and_is_not_cut_off() -> None:
    found = card(Held("d/a", 0, 1000, 1000, 60), Held("d/b", 0, 1000, 1000, 60))
    bar = memory_bar(found)
    assert (bar.full, sum(s.width for s in bar.segments)) == (50, WIDTH)
    assert "100 % more than there is" in bar.label
    assert round(cores_bar(found).full, 1) == 83.3
    assert found.overcommitted


def test_slots_lie_where_they_are_cut_and_the_free_ones_are_shown() -> None:
    bar = memory_bar(card(slots=(Slot("3g.20gb", 20, 0.0, 0.5, "d/a"), Slot("", 0, 0.5, 0.125), Slot("1g.5gb", 5, 0.625, 0.125))))
    assert [(s.x, s.width, s.kind) for s in bar.segments] == [(0, 50, "share"), (50, 12.5, "slot"), (62.5, 12.5, "slot")]
    assert "free" in bar.segments[2].title


def test_a_pod_that_leaves_is_told_apart() -> None:
    (segment,) = memory_bar(card(Held("d/a", 0, 10, 10, 0, leaving=True))).segments
    assert (segment.kind, "leaving" in segment.title) == ("leaving", True)


def test_only_nothing_is_0_percent_and_only_all_is_100() -> None:
    assert [percent(part, 1000) for part in (0, 1, 500, 999, 1000, 2000)] == ["0 %", "<1 %", "50 %", ">99 %", "100 %", "200 %"]
    assert percent(1, 0) == "-"


def test_nothing_of_nothing_is_drawn_without_a_fault() -> None:
    assert memory_bar(card(total=0)).segments == ()
    assert part_bar("x", 0, 0).segments == ()
