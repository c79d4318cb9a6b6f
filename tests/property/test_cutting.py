"""Cards are recut again and again by a process that is killed at any of its calls: journal and cards agree afterwards, nobody
else's slice was touched, and no running pod lost its own without being told of."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
from kit.machines import Programs, cards_of
from kit.seeds import chosen_seed
from tests.property.cutting import CuttingWorld

from pumice.adapters.journal import FileJournal
from pumice.adapters.nvml.slices import NvmlSlices
from pumice.ports.slices import Phase, Place
from pumice_lab.machine import FaultModel


def histories(model: str, count: int, seed: int) -> dict[str, int]:
    """Return the results of so many histories on a machine of such cards."""
    print("seed", seed)
    with cards_of(model) as (_, cards):
        uuids = [card.uuid for card in cards.facts()]
        for uuid in uuids:
            pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByUUID(uuid), 1)
        driver = NvmlSlices()
        sums = dict.fromkeys(("kills", "cuts", "refusals", "boots"), 0)
        for number in range(count):
            world = CuttingWorld(driver, uuids, random.Random(f"{seed}/{number}"))
            for _ in range(12):
                world.step()
            world.wipe()
            for key in sums:
                sums[key] += getattr(world, key)
    return sums


@pytest.mark.parametrize("model", ["2xA100-SXM4-40GB", "A30", "H200"])
def test_whoever_is_killed_while_it_cuts_leaves_what_the_next_one_puts_right(model: str) -> None:
    sums = histories(model, 100, chosen_seed())
    assert sums["kills"] > 50, sums
    assert sums["cuts"] > 50, sums
    assert sums["refusals"] > 10, sums


@pytest.mark.soak
def test_ten_thousand_histories_of_kills_leave_nothing_wrong() -> None:
    assert histories("2xA100-SXM4-40GB", 10_000, chosen_seed())["kills"] > 10_000


CUT = """
import sys
from pathlib import Path
from pumice.adapters.journal import FileJournal
from pumice.adapters.nvml import NvmlCards
from pumice.adapters.nvml.slices import NvmlSlices
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter
from pumice.ports.slices import Place
cards, cutter = NvmlCards(), Cutter(NvmlSlices(), FileJournal(Path(sys.argv[1])))
card = cards.facts()[0].uuid
cutter.start([card], lambda uid: "")
for text in sys.argv[2:]:
    profile, start = text.split("@")
    given = cutter.cut([Place(card, profile, int(start))], "uid-" + text, lambda uid: "")
    assert not isinstance(given, str), given
"""
CALLS = ("nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance", "nvmlComputeInstanceDestroy",
         "nvmlGpuInstanceDestroy")  # fmt: skip


def killed(count: int, folder: Path) -> None:
    """So many processes that end amid a call of the driver by SIGKILL, and beside them a slice of somebody else."""
    rng, path = random.Random(chosen_seed()), folder / "mig.json"
    with cards_of("A100-SXM4-40GB") as (machine, cards):
        card = cards.facts()[0].uuid
        pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByUUID(card), 1)
        driver, theirs = NvmlSlices(), Place(card, "1g.5gb", 6)
        driver.make(theirs)
        uuid, programs = driver.fill(theirs), Programs(machine)

        def child(*places: str) -> int:
            words = (sys.executable, "-c", CUT, str(path), *places)
            return subprocess.run(words, env=programs.environment, timeout=60, capture_output=True).returncode

        ends = 0
        for _ in range(count):
            machine.set_fault(FaultModel(rng.choice(CALLS), first=rng.choice((1, 1, 2)), count=1, crash=True))
            ends += child(*(rng.choice(("2g.10gb@0", "2g.10gb@2", "3g.20gb@0", "1g.5gb@1", "1g.5gb@3")) for _ in range(3)))
            machine.clear_faults()
            assert child() == 0
            seen = {slice_.place: slice_.uuid for slice_ in driver.slices(card)}
            assert seen.pop(theirs) == uuid
            entries = FileJournal(path).read()
            assert {entry.phase for entry in entries} <= {Phase.MADE}
            assert {entry.place: entry.uuid for entry in entries} == seen
        assert ends < 0
        assert ends % signal.SIGKILL == 0, "each ended well or was killed"


def test_processes_that_are_killed_amid_a_call_leave_what_the_next_one_puts_right(tmp_path: Path) -> None:
    killed(6, tmp_path)


@pytest.mark.soak
def test_two_hundred_processes_that_are_killed_leave_nothing_wrong(tmp_path: Path) -> None:
    killed(200, tmp_path)
