"""The last hour as lines: where they lie, where they break, and the words beside them."""

from __future__ import annotations

from pumice.node.history import PodHistory, ShareHistory
from pumice.web.drawing import charts

MIB = 1 << 20


def told(memory: list[int | None], cores: list[int | None] | None = None, limit: int = 3000) -> PodHistory:
    share = ShareHistory("main", "GPU-0", limit * MIB, 30, [None if v is None else v * MIB for v in memory], cores or [])
    return PodHistory(1000.0, 15.0, [share])


def test_a_line_ends_at_the_right_edge_and_is_broken_where_nothing_was_told() -> None:
    (chart,) = charts(told([0, 3000, None, 1500]))
    assert [line.split()[0] for line in chart.lines] == ["236,60.0", "239,31.4"]
    assert chart.lines[0].split()[1] == f"237,{chart.limit_y}"
    assert "0 MiB to 3000 MiB, at last 1500 MiB, limit 3000 MiB" in chart.label
    assert chart.rows == ((1000.0, "1500 MiB"), (970.0, "3000 MiB"), (955.0, "0 MiB"))


def test_a_lone_point_is_a_short_line_and_what_is_above_the_limit_is_not_cut_off() -> None:
    (chart,) = charts(told([6000]))
    assert chart.lines == ("239,2.9 240,2.9",)
    assert chart.limit_y is not None
    assert 2.9 < chart.limit_y < 60


def test_cores_have_a_picture_of_their_own_where_they_are_told() -> None:
    memory, cores = charts(told([1, 2], [None, 20]))
    assert (memory.title[:6], cores.title[:5], cores.rows) == ("Memory", "Cores", ((1000.0, "20 %"),))


def test_an_hour_is_a_table_of_a_few_rows_and_nothing_told_is_no_picture() -> None:
    (chart,) = charts(told(list(range(240))))
    assert len(chart.rows) == 12
    assert chart.rows[0] == (1000.0, "239 MiB")
    assert charts(told([None, None])) == []
    assert charts(PodHistory()) == []
