"""The reservation on a PodGroup is read back as it was written."""

from __future__ import annotations

import pytest

from pumice.wire.volcano import PodGroupCondition, given_back, held, nodes_of, since


def test_what_is_written_is_read_back() -> None:
    nodes = frozenset({"n1", "gpu-7.example.com"})
    written = held(nodes, 1_700_000_000.0)
    assert (nodes_of(written), since(written)) == (nodes, 1_700_000_000.0)
    assert nodes_of(given_back("TimeOver", "it took too long", 1_700_000_600.0)) == frozenset()


@pytest.mark.parametrize("written", [
    PodGroupCondition(), PodGroupCondition("Reserved", "True"), PodGroupCondition("Reserved", "True", message="by hand: n1"),
    PodGroupCondition("Reserved", "True", last_transition_time="never", message="Nothing of lower rank is placed on "),
])  # fmt: skip
def test_what_nobody_can_read_holds_nothing(written: PodGroupCondition) -> None:
    assert not nodes_of(written)
    assert since(written) == 0.0
