"""Network topology in annotations, and in a PodGroup."""

from __future__ import annotations

from typing import Any

import pytest

from pumice.wire.objects import convert
from pumice.wire.topology import NetworkTopology, annotated, written

MODE, TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"


@pytest.mark.parametrize(("annotations", "meant"), [
    ({}, None),
    ({MODE: ""}, None),
    ({MODE: "hard"}, {"mode": "hard"}),
    ({MODE: "Soft", TIER: "2"}, {"mode": "soft", "highestTierAllowed": 2}),
    ({TIER: "1"}, {"mode": "hard", "highestTierAllowed": 1}),
    ({MODE: "firm"}, {"mode": "hard"}),
    ({MODE: "hard", TIER: "one"}, {"mode": "hard"}),
    ({MODE: "hard", TIER: "-1"}, {"mode": "hard"}),
    ({MODE: "hard", TIER: "9" * 5000}, {"mode": "hard"}),
])  # fmt: skip
def test_annotations_ask_for_what_upstreams_controller_reads_of_them(
    annotations: dict[str, str], meant: dict[str, Any] | None
) -> None:
    requested = annotated(annotations)
    assert (None if requested is None else written(requested)) == meant
    if requested is not None:
        assert convert(NetworkTopology, written(requested)) == requested, "what is written is read back"


def test_a_named_tier_is_written_too() -> None:
    assert written(NetworkTopology("", None, "rack")) == {"mode": "hard", "highestTierName": "rack"}
