"""Trouble that is made from outside reaches the programs on the machine as a driver would tell it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kit.machines import MachineMaker, Programs

from pumice_lab.machine import FaultModel

WAIT_FOR_XID = """
import pynvml
pynvml.nvmlInit()
events = pynvml.nvmlEventSetCreate()
for index in range(pynvml.nvmlDeviceGetCount()):
    card = pynvml.nvmlDeviceGetHandleByIndex(index)
    pynvml.nvmlDeviceRegisterEvents(card, pynvml.nvmlEventTypeXidCriticalError, events)
print("waiting", flush=True)
event = pynvml.nvmlEventSetWait_v2(events, 20000)
print(pynvml.nvmlDeviceGetIndex(event.device), event.eventData)
"""

HOLD_A_HANDLE = """
import sys, pynvml
pynvml.nvmlInit()
cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
print("ready", flush=True)
sys.stdin.readline()
for card in cards:
    try:
        print(pynvml.nvmlDeviceGetMemoryInfo(card).total >> 20)
    except pynvml.NVMLError as error:
        print(type(error).__name__)
"""


def test_an_xid_wakes_whoever_waits_for_events(make_machine: MachineMaker) -> None:
    machine = make_machine("2xA30")
    program = Programs(machine).start(sys.executable, "-c", WAIT_FOR_XID)
    assert program.stdout is not None
    assert program.stdout.readline() == "waiting\n"
    machine.raise_xid(1, 79)
    out, err = program.communicate(timeout=60)
    assert out == "1 79\n", err
    assert [(event.card, event.xid) for event in machine.xids()] == [(1, 79)]


def test_a_card_that_falls_off_the_bus_fails_its_handle_and_no_other(make_machine: MachineMaker) -> None:
    machine = make_machine("2xL4")
    program = Programs(machine).start(sys.executable, "-c", HOLD_A_HANDLE)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    machine.lose_card(0)
    out, err = program.communicate("go\n", timeout=60)
    assert out == "NVMLError_GpuIsLost\n23034\n", err
    machine.lose_card(0, lost=False)
    assert "NVIDIA L4" in Programs(machine).smi("-i", "0", "-L")


def test_a_slow_call_takes_its_time_in_the_machine_s_own(make_machine: MachineMaker) -> None:
    """A delayed call on a virtual machine moves the machine's clock, and nobody waits for it."""
    machine = make_machine("L4", virtual_time=True)
    machine.set_fault(FaultModel("cuMemAlloc", count=0, delay_ns=3_600_000_000_000))
    before = machine.clock.now_ns()
    Programs(machine).burn("--memory", "128", "--block", "64")
    assert machine.clock.now_ns() - before == 2 * 3_600_000_000_000


ASK_WHO_IS_THERE = """
import sys, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
print("ready", flush=True)
sys.stdin.readline()
print(len(pynvml.nvmlDeviceGetComputeRunningProcesses(card)))
"""


def test_who_waits_for_the_machines_lock_gets_it_though_nobody_wakes_him(make_machine: MachineMaker) -> None:
    """Another that waited had been woken in his place, and had ended before he took it: whoever still slept slept for ever."""
    machine = make_machine("2xL4")
    program = Programs(machine).start(sys.executable, "-c", ASK_WHO_IS_THERE)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    lock = machine.state.lock.opaque
    free, held_and_waited_for = lock[0], 0x8000_0000 | 1
    lock[0] = free | held_and_waited_for
    program.stdin.write("\n")
    program.stdin.flush()
    waits_in = Path(f"/proc/{program.pid}/wchan")
    deadline = time.monotonic() + 60
    while "futex" not in waits_in.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    lock[0] = free
    out, err = program.communicate(timeout=60)
    assert out == "0\n", err
