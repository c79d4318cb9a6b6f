"""An hour of each share's use: where its points lie, what is unknown, and how much is kept at the most."""

from __future__ import annotations

import tracemalloc

from pumice.node.history import EVERY, POINTS, SHARES, History, Key, Point

A: Key = ("default", "a", "main", "GPU-0")
MIB = 1 << 20


def point(mib: int | None, cores: int | None = 10) -> Point:
    return Point(None if mib is None else mib * MIB, cores, 3000 * MIB, 30)


def test_points_come_back_in_their_order_with_limits_and_what_was_not_told_is_none() -> None:
    history = History()
    for at, mib in enumerate((100, 200, None, 300)):
        history.add(1000.0 + at * EVERY, {A: point(mib, None if mib is None else at)})
    told = history.of("default", "a")
    (share,) = told.shares
    assert share.memory == [100 * MIB, 200 * MIB, None, 300 * MIB]
    assert share.cores == [0, 1, None, 3]
    assert (share.container, share.uuid, share.limit, share.cores_limit) == ("main", "GPU-0", 3000 * MIB, 30)
    assert (told.until, told.every) == (1045.0, EVERY)
    assert history.of("default", "b").shares == []


def test_after_an_hour_the_oldest_point_goes_and_a_share_that_is_gone_goes_with_its_last() -> None:
    history = History()
    for round_ in range(POINTS + 10):
        history.add(float(round_), {A: point(round_)})
    (share,) = history.of("default", "a").shares
    assert share.memory == [mib * MIB for mib in range(10, POINTS + 10)]
    for _ in range(POINTS // 2):
        history.add(0.0, {})
    (share,) = history.of("default", "a").shares
    assert (len(share.memory), share.memory[-1], share.memory[0]) == (POINTS, None, (10 + POINTS // 2) * MIB)
    for _ in range(POINTS // 2):
        history.add(0.0, {})
    assert history.of("default", "a").shares == []


def test_a_share_that_came_late_begins_where_it_came() -> None:
    history = History()
    for round_ in range(5):
        history.add(float(round_), {A: point(1)} | ({("default", "b", "main", "GPU-0"): point(7)} if round_ > 2 else {}))
    assert len(history.of("default", "a").shares[0].memory) == 5
    assert history.of("default", "b").shares[0].memory == [7 * MIB, 7 * MIB]


def test_figures_that_fit_no_point_are_the_greatest_and_the_least_that_do() -> None:
    history = History()
    history.add(0.0, {A: Point(2**62, 100_000, 0, 0)})
    history.add(1.0, {A: Point(-5, -1, 0, 0)})
    (share,) = history.of("default", "a").shares
    assert (share.memory[0] or 0) > 2**43
    assert (share.cores, share.memory[1]) == ([254, 0], 0)


def test_the_shares_of_a_full_node_take_no_more_than_eight_megabytes_and_more_are_counted() -> None:
    tracemalloc.start()
    history = History()
    points = {("namespace", f"pod-{number}", "main", "GPU-0"): point(5) for number in range(SHARES + 7)}
    before = tracemalloc.get_traced_memory()[0]
    for round_ in range(POINTS + 1):
        history.add(float(round_), points if round_ < 2 else dict(list(points.items())[:3]))
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken < 8 << 20
    history.add(0.0, points)
    assert history.left_out == 7
