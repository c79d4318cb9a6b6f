"""`--mig-strategy mixed` on a node whose driver of claims cuts cards: its slices are no resources, and none is had twice."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from kit.mig_rules import RuledSlices

from pumice.adapters.journal import FileJournal
from pumice.devices.nvidia_vgpu.node.allocator import VgpuAllocator
from pumice.devices.nvidia_vgpu.node.answer import ResponseOptions
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter, StaticSlices
from pumice.devices.nvidia_vgpu.node.sharing import Flags, effective
from pumice.devices.nvidia_vgpu.plugin import daemon
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Place
from pumice.wire.device_config import NvidiaConfig

CARD = CardFacts(0, "GPU-0", "NVIDIA A100-SXM4-80GB", 80 << 30, minor=0, mig=True)
RESOURCE = "volcano.sh/mig-1g.10gb"


def test_slices_that_the_driver_of_claims_has_made_are_no_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices, journal = RuledSlices({"GPU-0": "A100-SXM4-80GB"}), FileJournal(tmp_path / "mig.json")
    Cutter(slices, journal).cut([Place("GPU-0", "1g.10gb", 4)], "a/gpu-0-mig-1g10gb-19-4", lambda uid: "")
    Cutter(slices, journal).cut([Place("GPU-0", "1g.10gb", 5)], "0b5d", lambda uid: "")
    administrators = Place("GPU-0", "1g.10gb", 6)
    slices.make(administrators)
    slices.fill(administrators)
    monkeypatch.setattr(daemon, "_there", lambda nvml, given: ((CARD,), list(slices.slices("GPU-0"))))
    assert [str(slice_.place) for slice_ in daemon._cut_already("", journal)] == ["1g.10gb@5", "1g.10gb@6"]


@pytest.mark.parametrize(("claimed", "why"), [
    ({}, ""), ({"GPU-1": "held by claims: default/b"}, ""),
    ({"GPU-0": "held by claims: default/b (slice 1g.10gb@4)"}, "card GPU-0 is held by claims: default/b (slice 1g.10gb@4)"),
    ({"": "not known to be free of claims: damaged"}, "card GPU-0 is not known to be free of claims: damaged"),
])  # fmt: skip
def test_no_slice_is_given_of_a_card_that_a_claim_holds(claimed: dict[str, str], why: str) -> None:
    slices, place = RuledSlices({"GPU-0": "A100-SXM4-80GB"}), Place("GPU-0", "1g.10gb", 4)
    slices.make(place)
    slices.fill(place)
    sharing = replace(effective(NvidiaConfig(), (), Flags()), static_mig=True)
    plugin = VgpuAllocator("n1", sharing, ResponseOptions(), random.Random(1), [CARD],
                           static=StaticSlices(slices.slices("GPU-0")), claimed=lambda: claimed)  # fmt: skip
    answer = plugin.give(RESOURCE, [unit.id for unit in plugin.units(RESOURCE)])
    assert answer == why if why else not isinstance(answer, str)
