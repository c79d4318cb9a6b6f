"""Kubernetes' time stamps, as others write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.wire.times import seconds, stamp


@given(st.integers(0, 253_402_300_799))
def test_what_is_written_as_a_time_stamp_reads_back_to_the_second(moment: int) -> None:
    assert seconds(stamp(moment)) == seconds(stamp(moment, 6)) == moment


@pytest.mark.parametrize(
    "text",
    ["", None, "yesterday", "2026-11-23", "2026-11-23 02:04:05Z", "20261123T020405Z", "2026-W47-1T02:04:05Z", "2026-11-23T02:04Z",
     "2026-02-30T02:04:05Z", "2026-11-23T02:04:65Z", "-"*40],
)  # fmt: skip
def test_what_is_no_time_stamp_of_kubernetes_counts_as_no_time(text: str | None) -> None:
    assert seconds(text) == 0
