"""What a cutter says of cards where something of the machine is out of order."""

from __future__ import annotations

import os
from pathlib import Path

from kit.mig_rules import RuledSlices

from pumice.adapters.journal import FileJournal
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter


def test_a_card_is_closed_with_the_reason_while_the_journal_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mig.json")
    cutter = Cutter(RuledSlices({"GPU-a": "A30"}), FileJournal(tmp_path / "mig.json"))
    assert cutter.closed(["GPU-a"]) == {"GPU-a": f"cannot read {tmp_path}/mig.json: not a regular file"}
