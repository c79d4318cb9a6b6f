"""Machine directories: whole or absent, and refused with one sentence when they cannot be used."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pumice.cli.laboratory import the_machine
from pumice_lab.machine import MachineError, create, layout, load_model, machine_of, open_machine
from pumice_lab.machine.npus import create_npus, npu_environment


def test_a_created_machine_shows_its_cards_to_whoever_opens_it(tmp_path: Path) -> None:
    create(machine_of("2xA100-SXM4-40GB", name="n1"), tmp_path / "m").close()
    with open_machine(tmp_path / "m") as machine:
        names = [card.name for card in machine.cards()]
        assert names == [b"NVIDIA A100-SXM4-40GB"] * 2
        card = machine.card(1)
        assert card.memory_bytes == 40960 << 20
        assert card.profiles[0].name == b"1g.5gb"
        assert [card.profiles[0].placements[i].start for i in range(card.profiles[0].placement_count)] == list(range(7))
        assert (tmp_path / "m/bin/nvidia-smi").stat().st_mode & 0o111


@pytest.mark.parametrize(
    "exec_line",
    [
        f"exec {sys.executable} -m pumice.machine.nvidia_smi",  # of the same environment, upgraded in place
        "exec /bin/sh -m pumice.machine.nvidia_smi",  # of one that is still there, and has no laboratory
        "exec /gone/bin/python3 -m pumice_lab.machine.nvidia_smi",
    ],
)
def test_the_tools_of_a_machine_that_another_installation_made_work_on(tmp_path: Path, exec_line: str) -> None:
    create(machine_of("L4"), tmp_path).close()
    tool, control = tmp_path / "bin/nvidia-smi", tmp_path / "bin/nvidia-cuda-mps-control"
    made, program = tool.read_text(), control.readlink()
    tool.write_text(made.replace(f"exec {sys.executable} -m pumice_lab.machine.nvidia_smi", exec_line))
    control.unlink()
    control.symlink_to("/gone/nvidia-cuda-mps-control")
    with open_machine(tmp_path) as machine:
        machine.environment()
    assert tool.read_text() == made
    assert control.readlink() == program


def test_the_tool_of_a_machine_of_npus_alone_that_an_earlier_release_made_works_on(tmp_path: Path) -> None:
    create_npus(["310P3"], tmp_path)
    tool = tmp_path / "bin/npu-smi"
    made = tool.read_text()
    tool.write_text(made.replace("pumice_lab.machine", "pumice.machine"))
    npu_environment(tmp_path)
    assert tool.read_text() == made
    assert tool.stat().st_mode & 0o777 == 0o755


def test_links_meet_at_both_ends(tmp_path: Path) -> None:
    text = "cards:\n- {preset: L40S, nvlink: [1, 1, -1]}\n- {preset: L40S, nvlink: [0, 0]}\n"
    with create(load_model(text), tmp_path) as machine:
        first, second = machine.cards()
        assert [(link.remote_card, link.remote_link) for link in first.links[:3]] == [
            (1, 0),
            (1, 1),
            (layout.NONE, layout.NONE),
        ]
        assert [(link.remote_card, link.remote_link) for link in second.links[:2]] == [(0, 0), (0, 1)]
        assert (first.link_count, second.link_count) == (3, 2)


def test_a_second_machine_in_one_directory_is_refused(tmp_path: Path) -> None:
    create(machine_of("L4"), tmp_path).close()
    with pytest.raises(MachineError, match="there is an emulated machine already"):
        create(machine_of("L4"), tmp_path)


def test_a_full_disk_leaves_no_machine_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(MachineError, match=r"m: the emulated machine cannot be made: the disk is full"):
        create(machine_of("L4"), tmp_path / "m")
    assert list((tmp_path / "m").iterdir()) == []


def test_an_empty_directory_is_no_machine(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no emulated machine here; make one with"):
        open_machine(tmp_path)


def test_a_half_written_machine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(bytes(layout.SIZE))
    with pytest.raises(MachineError, match="half written"):
        open_machine(tmp_path)
    (tmp_path / "state").write_bytes(b"MACH")
    with pytest.raises(MachineError, match="half written"):
        open_machine(tmp_path)


@pytest.mark.parametrize(
    ("offset", "value", "sentence"),
    [
        (8, (0).to_bytes(4, "little"), "of an older version (0, this is"),
        (8, (99).to_bytes(4, "little"), "of a newer version (99, this is"),
        (16, (4096).to_bytes(8, "little"), "cut short"),
        (0, b"#!/bin/s", "is not an emulated machine's"),
    ],
)
def test_a_machine_of_another_making_is_refused(tmp_path: Path, offset: int, value: bytes, sentence: str) -> None:
    create(machine_of("L4"), tmp_path).close()
    with (tmp_path / "state").open("r+b") as file:
        file.seek(offset)
        file.write(value)
    with pytest.raises(MachineError) as raised:
        open_machine(tmp_path)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_machine_that_emulated_made_and_that_is_outdated_is_made_anew_in_the_way_that_is_told(tmp_path: Path) -> None:
    home = {"XDG_DATA_HOME": str(tmp_path)}
    directory = the_machine("1xL4", home)
    with (directory / "state").open("r+b") as file:
        file.seek(8)
        file.write((1).to_bytes(4, "little"))
    with pytest.raises(MachineError, match=r"remove the directory .* where --emulated made it, by the same command"):
        open_machine(directory)
    shutil.rmtree(directory)
    open_machine(the_machine("1xL4", home)).close()


def test_a_truncated_machine_is_refused(tmp_path: Path) -> None:
    create(machine_of("L4"), tmp_path).close()
    os.truncate(tmp_path / "state", 100_000)
    with pytest.raises(MachineError, match="cut short"):
        open_machine(tmp_path)


def test_strangers_take_no_more_than_the_card_has(tmp_path: Path) -> None:
    with create(machine_of("GeForce-GTX-1080-Ti"), tmp_path) as machine:
        machine.set_stranger_memory(0, 1000)
        assert machine.card(0).stranger_bytes == 1000 << 20
        with pytest.raises(MachineError, match="0 to 11178 MiB, not 11179"):
            machine.set_stranger_memory(0, 11179)
        with pytest.raises(MachineError, match="card 1: the machine has cards 0 to 0"):
            machine.lose_card(1)


@pytest.mark.parametrize(
    ("cuda", "found"),
    [("11.4", [True, False, False]), ("12.4", [True, True, False]), ("13.0", [True, True, True])],
)
def test_a_program_on_the_machine_finds_no_name_that_its_driver_does_not_know(
    tmp_path: Path, cuda: str, found: list[bool]
) -> None:
    with create(load_model(f'cuda: "{cuda}"\ncards: [{{preset: L4}}]\n'), tmp_path) as machine:
        environment = {**os.environ, **machine.environment()}
    ask = "import ctypes, sys; cuda = ctypes.CDLL('libcuda.so.1'); print([hasattr(cuda, name) for name in sys.argv[1:]])"
    command = [sys.executable, "-c", ask, "cuMemAlloc_v2", "cuLibraryLoadData", "cuMemGetMemPool"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.strip() == str(found)
