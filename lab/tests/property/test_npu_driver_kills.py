"""The container runtime's hooks, killed at every call of the emulated driver: two sweeps later nothing of theirs is left, and
the slice that somebody made by hand is."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.npu_nodes import NpuMachine, npu_machine

from pumice_lab.machine.npus import NpuFaultModel, clear_npu_faults, end_containers, set_npu_fault

CONTAINER = "ab" * 16
KEEPER = """
import json, sys
from pathlib import Path
from pumice.adapters.dcmi import DcmiVnpus
from pumice.adapters.journal import FileJournal
from pumice_lab.machine.native import library_dir
from pumice.devices.ascend_hami.node.keeper import Keeper
from pumice.ports.slices import Place
vnpus = DcmiVnpus(str(library_dir()))
chips = vnpus.chips()
keeper = Keeper(vnpus, FileJournal(Path({journal!r})))
if {claim}:
    keeper.claim([Place(chips[0], "vir02", 0)], "pod", {{}})
swept = [keeper.sweep(chips, lambda uid: "", {{}}).destroyed for _ in range({sweeps})]
print(json.dumps(sum(map(len, swept))))
"""
MAKE = ["dcmi_get_device_die_v2", "dcmi_create_vdevice", "pumice_npu_use"]
DESTROY = ["dcmi_get_device_info", "pumice_npu_use", "dcmi_set_destroy_vdevice"]


def keeper(machine: NpuMachine, *, claim: bool = False, sweeps: int = 0) -> int:
    program = KEEPER.format(journal=str(machine.directory / "journal.json"), claim=claim, sweeps=sweeps)
    found: int = machine.python(program)
    return found


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("words", "call"), [
    *[pytest.param(("make", "0", "vir02", CONTAINER), call, id=f"make-{call}") for call in MAKE],
    *[pytest.param(("destroy", CONTAINER), call, id=f"destroy-{call}") for call in DESTROY],
])  # fmt: skip
def test_nothing_is_left_of_a_hook_that_was_killed(tmp_path: Path, words: tuple[str, ...], call: str, when: str) -> None:
    machine = npu_machine(tmp_path / "m")
    theirs = machine.make("vir02")
    keeper(machine, claim=True)
    if words[0] == "destroy":
        assert machine.hook("make", "0", "vir02", CONTAINER).stdout.strip() == "101"
    set_npu_fault(machine.directory, NpuFaultModel(call, crash=when))
    killed = machine.hook(*words).returncode
    clear_npu_faults(machine.directory)
    left = len(machine.slices()) - 1
    if call in ("dcmi_create_vdevice", "dcmi_set_destroy_vdevice", "pumice_npu_use") or when == "before":
        assert killed == -9
    end_containers(machine.directory, ())
    assert keeper(machine, sweeps=3) == left
    assert machine.slices() == [(theirs, "vir02")]


def test_a_plugin_that_is_killed_while_it_destroys_forgets_what_is_gone(tmp_path: Path) -> None:
    machine = npu_machine(tmp_path / "m")
    keeper(machine, claim=True)
    machine.hook("make", "0", "vir02", CONTAINER)
    end_containers(machine.directory, ())
    set_npu_fault(machine.directory, NpuFaultModel("dcmi_set_destroy_vdevice", crash="after"))
    with pytest.raises(AssertionError):
        keeper(machine, sweeps=3)
    clear_npu_faults(machine.directory)
    assert machine.slices() == []
    theirs = machine.make("vir02")
    assert keeper(machine, sweeps=4) == 0, "the same id, and somebody else's"
    assert machine.slices() == [(theirs, "vir02")]


CUTTER = """
import json
from pathlib import Path
from pumice.adapters.dcmi import DcmiVnpus
from pumice.adapters.journal import FileJournal
from pumice_lab.machine.native import library_dir
from pumice.devices.ascend_mindcluster.node.keeper import ChipKeeper
from pumice.model.hardware.npu import slice_kinds
from pumice.ports.slices import Place
vnpus = DcmiVnpus(str(library_dir()))
chips = vnpus.chips()
class Pods:
    def runs(self, uid):
        return {holds!r}
    holds = runs
keeper = ChipKeeper("Ascend310P", vnpus, FileJournal(Path({journal!r})))
if {give}:
    keeper.give([Place(chips[0], "vir02_1c", 0)], "pod", ["npu-core-0", "npu-core-1"], chips, Pods())
print(json.dumps([place.start for place in keeper.sweep(chips, Pods(), {{}}, set()).destroyed]))
"""


def cutter(machine: NpuMachine, *, give: bool = False, holds: str = "") -> list[int]:
    """Return the slices that MindCluster's collection destroys."""
    program = CUTTER.format(journal=str(machine.directory / "cut.json"), give=give, holds=holds)
    found: list[int] = machine.python(program)
    return found


@pytest.mark.parametrize(("call", "when"), [
    ("dcmi_get_device_die_v2", "before"), ("dcmi_get_device_info", "before"),
    *((call, when) for call in ("dcmi_create_vdevice", "dcmi_set_destroy_vdevice") for when in ("before", "after")),
])  # fmt: skip
def test_the_plugin_that_is_killed_in_a_call_knows_afterwards_what_it_made(tmp_path: Path, call: str, when: str) -> None:
    machine = npu_machine(tmp_path / "m")
    theirs = machine.make("vir02_1c")
    made = call == "dcmi_set_destroy_vdevice" or (call == "dcmi_create_vdevice" and when == "after")
    if call == "dcmi_set_destroy_vdevice":
        assert cutter(machine, give=True, holds="pod") == []
    set_npu_fault(machine.directory, NpuFaultModel(call, crash=when))
    with pytest.raises(AssertionError):
        cutter(machine, give=call != "dcmi_set_destroy_vdevice")
    clear_npu_faults(machine.directory)
    assert cutter(machine, holds="pod") == [], "its pod may still be there"
    assert [ident for ident, _ in machine.slices()] == [theirs, *([theirs + 1] if made else [])], "made again where it had gone"
    assert cutter(machine) == ([theirs + 1] if made else [])
    assert machine.slices() == [(theirs, "vir02_1c")]
