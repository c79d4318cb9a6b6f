"""Emulated NPUs: what the driver allows, refuses and shows (Volcano pkg/scheduler/api/devices/ascend/hami, appendices A to C)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.npu_nodes import NpuMachine, npu_machine

from pumice.model.hardware.npu import driver_chips
from pumice_lab.machine import npus


@pytest.fixture
def machine(tmp_path: Path) -> NpuMachine:
    return npu_machine(tmp_path / "m", "310P3", "310P3")


def test_the_emulated_device_fits_every_model_with_its_own_templates(tmp_path: Path) -> None:
    made = npu_machine(tmp_path / "all", *driver_chips())
    shown = made.smi("info").stdout
    for number, chip in enumerate(driver_chips().values()):
        assert chip.product in shown
        name = chip.templates[0][0]
        first = 100 + 16 * number
        assert made.make(name, number) == first
        assert made.slices(number) == [(first, name)]


def test_slices_are_refused_beyond_the_cores_and_beyond_the_cpus(machine: NpuMachine) -> None:
    assert [machine.make("vir04"), machine.make("vir02"), machine.make("vir01")] == [100, 101, 102]
    done = machine.smi("set", "-t", "create-vnpu", "-i", "0", "-c", "0", "-f", "vir01")
    assert done.returncode == 1
    assert "check aicpu num failed, phy_id:0, core_need:1, used:7, total:7" in done.stdout
    machine.make("vir04_3c", 1)
    done = machine.smi("set", "-t", "create-vnpu", "-i", "1", "-c", "0", "-f", "vir04_4c_dvpp")
    assert "check jpegd num failed, phy_id:1, core_need:16, used:8, total:16" in done.stdout


@pytest.mark.parametrize(
    "words",
    [("-f", "vir03"), ("-f", "vir16"), ("-f", "vir01", "-g", "4"), ("-f", "vir01", "-v", "99"), ("-f", "vir01", "-v", "108")],
)
def test_what_the_hardware_has_not_is_refused(machine: NpuMachine, words: tuple[str, ...]) -> None:
    done = machine.smi("set", "-t", "create-vnpu", "-i", "0", "-c", "0", *words)
    assert (done.returncode, machine.slices()) == (1, [])
    assert "Status : Failed" in done.stdout


def test_a_slice_in_use_is_not_destroyed(machine: NpuMachine) -> None:
    assert machine.hook("make", "0", "vir02", "ab" * 16).stdout.strip() == "100"
    assert "abababababab" in machine.smi("info", "-t", "info-vnpu").stdout
    words = ("set", "-t", "destroy-vnpu", "-i", "0", "-c", "0", "-v", "100")
    assert "busy" in machine.smi(*words).stdout
    machine.hook("destroy", "ab" * 16)
    assert machine.slices() == []
    assert machine.smi(*words).returncode == 1


def test_a_container_sees_its_slice_and_no_more(machine: NpuMachine) -> None:
    machine.make("vir04")
    ident = machine.make("vir02")
    inside = {"ASCEND_VISIBLE_DEVICES": str(ident), "ASCEND_RUNTIME_OPTIONS": "VIRTUAL"}
    assert "/ 6144 " in machine.smi("info", env=inside).stdout
    listed = machine.smi("info", "-t", "info-vnpu", env=inside).stdout
    assert "Total number of vnpu: 1" in listed
    assert "vir02" in listed
    done = machine.smi("set", "-t", "create-vnpu", "-i", "0", "-c", "0", "-f", "vir01", env=inside)
    assert "not permitted" in done.stdout


@pytest.mark.parametrize(("given", "seen"), [("0,1", 2), ("0-1", 2), ("1", 1), ("", 0), ("7", 0)])
def test_visible_devices_are_a_list_or_a_range(machine: NpuMachine, given: str, seen: int) -> None:
    text = machine.smi("info", env={"ASCEND_VISIBLE_DEVICES": given}).stdout
    assert text.count("310P3") == seen


def test_health_and_error_codes_are_shown(machine: NpuMachine) -> None:
    npus.set_health(machine.directory, 1, 2, 0x80E01801)
    assert "Alarm" in machine.smi("info").stdout
    assert "0x80E01801" in machine.smi("info", "-t", "health", "-i", "1").stdout


def test_a_chip_that_fell_off_the_bus_is_no_longer_listed(machine: NpuMachine) -> None:
    npus.lose_chip(machine.directory, 0)
    assert machine.smi("info").stdout.count("310P3") == 1
    npus.lose_chip(machine.directory, 0, gone=False)
    assert machine.smi("info").stdout.count("310P3") == 2


def test_soft_sharing_asks_before_it_is_switched(machine: NpuMachine) -> None:
    words = ("set", "-t", "device-share", "-i", "0", "-c", "0", "-d", "1")
    assert machine.smi(*words).returncode == 200
    assert machine.smi(*words, answer="N\n").returncode == 0
    assert not machine.state.chips[0].share
    assert machine.smi(*words, answer="Y\n").returncode == 0
    assert machine.state.chips[0].share


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_is_killed_in_a_call_leaves_a_whole_slice_or_none(machine: NpuMachine, when: str) -> None:
    npus.set_npu_fault(machine.directory, npus.NpuFaultModel("dcmi_create_vdevice", crash=when))
    assert machine.smi("set", "-t", "create-vnpu", "-i", "0", "-c", "0", "-f", "vir02").returncode == -9
    assert machine.slices() == ([] if when == "before" else [(100, "vir02")])
    npus.clear_npu_faults(machine.directory)
    assert machine.make("vir02") == (100 if when == "before" else 101)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("info", "-t", "info-vnpus"), 'did you mean "info-vnpu"?'),
        (("set", "-t", "create-vnpu", "-i", "0", "-c", "0"), "create-vnpu needs -f TEMPLATE"),
        (("set", "-t", "create-vnpu", "-f", "vir02"), "needs one chip: -i and -c"),
        (("info", "-i", "9"), "no chip 0 of NPU 9"),
        (("infos",), "invalid choice"),
    ],
)
def test_what_cannot_be_meant_is_one_line(machine: NpuMachine, words: tuple[str, ...], reported: str) -> None:
    done = machine.smi(*words)
    assert done.returncode == 2
    assert reported in done.stderr
    assert done.stderr.count("\n") == 1


def burn(machine: NpuMachine, *words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    done = machine.run([sys.executable, "-m", "pumice.cli.burn", "--npu", *words, "-o", "json"], env)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_a_load_gets_its_slice_and_no_more(machine: NpuMachine) -> None:
    ident = machine.make("vir01")
    inside = {"ASCEND_VISIBLE_DEVICES": str(ident), "ASCEND_RUNTIME_OPTIONS": "VIRTUAL"}
    got = burn(machine, "--memory", "3072", "--kernels", "5", "--kernel-ms", "1", env=inside)
    assert (got["granted_bytes"], got["kernels"], got["error"], got["name"]) == (3072 << 20, 5, None, "Ascend310P3")
    assert got["total_bytes"] == 3072 << 20
    assert 0 < got["busy_share"] <= 1
    assert machine.state.chips[0].slices[0].busy_ns == 5_000_000
    got = burn(machine, "--memory", "3073", env=inside)
    assert got["error"] == {"call": "aclrtMalloc", "name": "ACL_ERROR_RT_MEMORY_ALLOCATION", "code": 207001}
    assert "0    / 3072" in machine.smi("info", env=inside).stdout, "it was given back"


def test_a_chip_that_is_cut_is_not_used_whole_and_one_in_use_is_not_cut(machine: NpuMachine) -> None:
    machine.make("vir01")
    assert burn(machine, "--memory", "1")["error"]["name"] == "ACL_ERROR_RT_INVALID_DEVICEID"
    assert burn(machine, "--memory", "1", "--device", "1")["error"] is None
    words = [sys.executable, "-m", "pumice_lab.machine.npu_smi", "set", "-t", "create-vnpu", "-i", "1", "-c", "0", "-f", "vir01"]
    held = "import ctypes, subprocess; a = ctypes.CDLL('libascendcl.so'); a.aclInit(None); a.aclrtSetDevice(1)\n"
    done = machine.run([sys.executable, "-c", held + f"subprocess.run({words!r})"])
    assert "the resource is busy" in done.stdout
    assert machine.make("vir01", 1) == 116, "the program that held it is no more"


def test_two_processes_of_one_slice_share_its_memory_and_its_time(machine: NpuMachine) -> None:
    ident = machine.make("vir01")
    inside = {"ASCEND_VISIBLE_DEVICES": str(ident), "ASCEND_RUNTIME_OPTIONS": "VIRTUAL"}
    program = f"""
import ctypes, json, subprocess, sys
a = ctypes.CDLL("libascendcl.so")
a.aclInit(None); a.aclrtSetDevice(0)
p = ctypes.c_void_p()
first = a.aclrtMalloc(ctypes.byref(p), ctypes.c_size_t(2048 << 20), 0)
other = subprocess.run([{sys.executable!r}, "-m", "pumice.cli.burn", "--npu", "--memory", "2048", "-o", "json"],
                       capture_output=True, text=True)
print(json.dumps([first, json.loads(other.stdout)["granted_bytes"] >> 20]))
"""
    assert machine.python(program, inside) == [0, 1024]


def test_the_driver_tells_what_a_card_is_sold_as(tmp_path: Path) -> None:
    machine = npu_machine(tmp_path / "m")
    program = """
import json
from pumice.adapters.dcmi import DcmiCards
from pumice_lab.machine.native import library_dir
cards = DcmiCards(str(library_dir()))
cards.facts()
print(json.dumps(list(cards.products().values())))
"""
    assert machine.python(program) == ["310P3"]
