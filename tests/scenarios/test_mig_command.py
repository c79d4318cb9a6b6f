"""``pumice mig`` on an emulated machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.machines import Programs

from pumice.adapters.journal import FileJournal
from pumice.ports.slices import Entry, Phase, Place
from pumice_lab.machine import Machine, MachineError, create, machine_of, nvml_library


class Run:
    """The command on a machine of two A100, the first in MIG mode."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.folder = folder
        self.cards = [card.uuid.decode() for card in machine.cards()]
        self.programs = Programs(machine)
        self.programs.smi("-i", "0", "-mig", "1")

    def __call__(self, *words: str, code: int = 0) -> str:
        given = () if words[0] == "export" else ("--hook-path", str(self.folder))
        return self.programs.run(sys.executable, "-m", "pumice", "mig", *words, *given, code=code)

    def file(self, text: str) -> str:
        path = self.folder / "wanted.yaml"
        path.write_text(text)
        return str(path)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    try:
        nvml_library()
    except MachineError as error:
        pytest.skip(str(error))
    with create(machine_of("2xA100-SXM4-40GB"), tmp_path / "machine") as machine:
        yield Run(machine, tmp_path)


def wanted(devices: str, enabled: bool = True, name: str = "a") -> str:
    on = str(enabled).lower()
    return f"version: v1\nmig-configs:\n  {name}:\n  - devices: [0]\n    mig-enabled: {on}\n    mig-devices: {{{devices}}}\n"


def test_what_is_applied_is_what_is_exported_and_asserted(run: Run) -> None:
    file = run.file(wanted("3g.20gb: 1, 1g.5gb: 2"))
    assert run("plan", "-f", file) == "card 0 (NVIDIA A100-SXM4-40GB): make 3g.20gb@0, 1g.5gb@4, 1g.5gb@5\n"
    assert "make 3g.20gb@0" in run("assert", "-f", file, code=1)
    run("apply", "-f", file)
    assert run("assert", "-f", file) == ""
    exported = run("export", "--places")
    assert "mig-devices: {3g.20gb: 1, 1g.5gb: 2}" in exported
    assert run("plan", "-f", run.file(exported)).splitlines()[0].endswith("keep 1g.5gb@4, 1g.5gb@5, 3g.20gb@0")
    run("apply", "-f", run.file(wanted("2g.10gb: 1, 3g.20gb: 1")))
    assert sorted(line.split()[1] for line in run.programs.smi("-L").splitlines() if "MIG" in line) == ["2g.10gb", "3g.20gb"]


def test_an_emulated_machine_is_cut_where_nothing_but_its_name_is_given(run: Run) -> None:
    del run.programs.environment["LD_LIBRARY_PATH"]
    run("apply", "-f", run.file(wanted("3g.20gb: 1")))
    assert "mig-devices: {3g.20gb: 1}" in run("export")


def test_a_slice_in_use_stays_and_nothing_else_is_touched_where_it_would_have_to_go(run: Run) -> None:
    run("apply", "-f", run.file(wanted("3g.20gb: 1, 1g.5gb: 1")))
    uuid = next(line.split()[-1].rstrip(")") for line in run.programs.smi("-L").splitlines() if "3g.20gb" in line)
    run.programs.environment["CUDA_VISIBLE_DEVICES"] = uuid
    program = run.programs.hold(100)
    try:
        said = run("apply", "-f", run.file(wanted("1g.5gb: 7")), code=1)
        assert "slice 3g.20gb@0 would have to go: a process runs on slice 3g.20gb@0" in said
        run("apply", "-f", run.file(wanted("3g.20gb: 1, 2g.10gb: 1")))
        assert "2g.10gb" in run.programs.smi("-L")
    finally:
        program.kill()
        program.communicate()


def test_what_the_device_plugin_has_cut_is_left_alone_unless_it_is_asked_for(run: Run) -> None:
    run("apply", "-f", run.file(wanted("2g.10gb: 1")))
    uuid = next(line.split()[-1].rstrip(")") for line in run.programs.smi("-L").splitlines() if "2g.10gb" in line)
    place = Place(run.cards[0], "2g.10gb", 0)
    FileJournal(run.folder / "vgpu" / "mig.json").write([Entry(place, "uid", Phase.MADE, uuid)])
    assert "the device plugin cut slice 2g.10gb@0 for a pod" in run("apply", "-f", run.file(wanted("1g.5gb: 1")), code=1)
    run("apply", "--slices-of-the-plugin", "-f", run.file(wanted("1g.5gb: 1")))


def test_a_mode_that_is_another_one_is_said_and_not_changed(run: Run) -> None:
    assert "nvidia-smi -i 0 -mig 0" in run("apply", "-f", run.file(wanted("", enabled=False)), code=1)
    text = wanted("").replace("devices: [0]", "devices: all")
    said = run("plan", "-f", run.file(text), code=1)
    assert "card 1 (NVIDIA A100-SXM4-40GB): its MIG mode is off; nvidia-smi -i 1 -mig 1" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-f", "/nowhere.yaml"], "/nowhere.yaml: No such file or directory"),
        (["-c", "b"], "no configuration 'b': a"),
        (["-c", ""], "several configurations; choose one with -c: a, c"),
    ],
)
def test_a_mistake_is_one_line(run: Run, words: list[str], said: str) -> None:
    text = wanted("")
    if words == ["-c", ""]:
        text += text.split("mig-configs:\n")[1].replace("  a:", "  c:")
    if words[0] == "-c":
        words = ["-f", run.file(text), *words]
    assert said in run("plan", *words, code=2)
