"""``pumice.share``: programs that a Python process starts are held to a share, and it is given back when they have ended."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pumice
from pumice_lab import machine as machines
from pumice_lab.machine import machine_of

CARD_MIB = 11178
MEMORY = "import ctypes, sys; cuda = ctypes.CDLL('libcuda.so.1'); total = ctypes.c_size_t(); free = ctypes.c_size_t(); " \
         "assert cuda.cuInit(0) == 0; device = ctypes.c_int(); assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0; " \
         "assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device) == 0; print(total.value >> 20)"  # fmt: skip


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    machines.create(machine_of("GeForce-GTX-1080-Ti"), tmp_path / "machine").close()
    monkeypatch.setenv("PUMICE_MACHINE", str(tmp_path / "machine"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "machine"


def ids() -> list[str]:
    return [share.id for share in pumice.shares(emulated=True)]


def test_a_program_started_inside_has_the_share_and_one_started_after_has_the_card() -> None:
    before, limit = dict(os.environ), resource.getrlimit(resource.RLIMIT_RTTIME)
    with pumice.share(memory="25%", cores=50) as share:
        inside = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
        assert ids() == [share.id]
        assert [(card.index, card.memory, card.cores) for card in share.cards] == [(0, CARD_MIB // 4, 50)]
        (card,) = pumice.cards()
        assert (card.memory, card.memory_booked, card.cores_booked, card.shares) == (CARD_MIB, CARD_MIB // 4, 50, 1)
    assert int(inside) == CARD_MIB // 4
    assert ids() == []
    assert dict(os.environ) == before
    assert resource.getrlimit(resource.RLIMIT_RTTIME) == limit


def test_a_program_that_outlives_the_block_keeps_the_share_until_it_ends() -> None:
    with pumice.share(memory=3000) as share:
        program = subprocess.Popen(["sleep", "100"])
    assert [(other.id, other.pids) for other in pumice.shares(emulated=True)] == [(share.id, (program.pid,))]
    program.kill()
    program.wait()
    assert ids() == []


def test_a_program_without_any_environment_keeps_the_share_too() -> None:
    with pumice.share(memory=3000) as share:
        program = subprocess.Popen(["/usr/bin/env", "-i", "sleep", "100"])
    assert ids() == [share.id]
    program.kill()
    program.wait()
    assert ids() == []


def test_an_error_inside_gives_the_share_back() -> None:
    with pytest.raises(ZeroDivisionError), pumice.share(memory=3000):
        raise ZeroDivisionError
    assert ids() == []


def test_a_share_that_cannot_be_had_is_refused_with_its_reason_and_changes_nothing() -> None:
    before = dict(os.environ)
    with pytest.raises(pumice.PumiceError, match="11178 MiB"), pumice.share(memory="20GiB"):
        pass
    with pytest.raises(pumice.PumiceError, match="--memory nonsense"), pumice.share(memory="nonsense"):
        pass
    assert dict(os.environ) == before
    assert ids() == []


def test_inside_a_share_there_is_no_second_one() -> None:
    with pumice.share(memory=3000) as share:
        with pytest.raises(pumice.PumiceError, match=f"inside share {share.id}"), pumice.share(memory=1000):
            pass
        assert ids() == [share.id]


def test_a_process_that_is_killed_inside_leaves_no_share() -> None:
    code = "import pumice, sys, time\nwith pumice.share(memory=3000) as share:\n print(share.id, flush=True)\n time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        share = holder.stdout.readline().strip()
        assert ids() == [share]
        holder.send_signal(signal.SIGKILL)
    assert ids() == []


def test_importing_pumice_loads_nothing_of_it() -> None:
    code = "import sys; there = set(sys.modules); import pumice; print(sorted(set(sys.modules) - there))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "['pumice']\n"
