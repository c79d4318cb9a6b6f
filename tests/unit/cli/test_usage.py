"""``pumice usage`` writes the record of share-hours as CSV that a spreadsheet takes."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kit.command_line import call

from pumice.cli import question
from pumice.cli.usage import app
from pumice.model.errors import BadInput
from pumice.ports.cluster import ApiError
from pumice.wire.share_hours import DAY, MEASURES, Day, config_map_of, render

HOUR = 3600_000


class Record:
    """An API server that has a record of one day."""

    def __init__(self, day: Day) -> None:
        self.day = day

    async def get(self, resource: Any, name: str, namespace: str = "") -> dict[str, Any]:
        if name != config_map_of(self.day.number):
            raise ApiError(404, "NotFound", name)
        return {"metadata": {"name": name, "resourceVersion": "1"}, "data": render(self.day)}


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Day:
    number = int(time.time() // DAY) - 1
    day = Day(number, (number + 1) * DAY * 1000)

    def ask(kubeconfig: Any, what: str, do: Callable[[Any], Awaitable[Any]]) -> Any:
        return asyncio.run(do(Record(day)))  # type: ignore[arg-type]

    monkeypatch.setattr(question, "ask", ask)
    return day


def test_csv_has_a_column_for_each_group_and_measure_and_a_row_for_each_sum(record: Day) -> None:
    for namespace, hours in (("team-a", 2), ("team-b", 1)):
        record.rows[9, (namespace, "default", "A100", "card")] = [hours * HOUR, hours * HOUR // 2, *[0] * (len(MEASURES) - 2)]
    called = call(app, ["--since", "3d", "--by", "namespace", "-o", "csv"])
    assert called.exit_code == 0, called.stderr
    rows = list(csv.DictReader(io.StringIO(called.stdout)))
    assert {row["namespace"]: (row["sharesHours"], row["memoryHours"]) for row in rows} == {
        "team-a": ("2.0000", "1.0000"), "team-b": ("1.0000", "0.5000"),
    }  # fmt: skip
    assert list(rows[0])[:4] == ["namespace", "sharesHours", "memoryHours", "coresHours"]


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)"])
def test_a_name_that_a_spreadsheet_would_reckon_with_stays_text(record: Day, name: str) -> None:
    record.rows[9, (name, "default", "A100", "card")] = [HOUR, *[0] * (len(MEASURES) - 1)]
    called = call(app, ["--since", "3d", "--by", "namespace", "-o", "csv"])
    (row,) = csv.DictReader(io.StringIO(called.stdout))
    assert row["namespace"] == f"'{name}"


def test_a_record_of_other_days_is_said_to_say_nothing_and_an_output_that_does_not_exist_has_a_neighbour(record: Day) -> None:
    early = call(app, ["--since", "2020-01-01", "--until", "2020-01-02", "-o", "csv"])
    assert isinstance(early.exception, BadInput)
    assert "no record of share-hours" in str(early.exception)
    odd = call(app, ["-o", "cvs"])
    assert isinstance(odd.exception, BadInput)
    assert "did you mean 'csv'" in str(odd.exception)
