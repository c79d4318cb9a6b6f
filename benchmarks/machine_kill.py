"""Processes killed at random instants inside driver and NVML calls leave the emulated machine usable.

    python -m benchmarks.machine_kill [--kills 10000] [--quick]

Several children at a time allocate, launch, wait and ask NVML, each until it
is killed. Every hundred kills the books must be empty and a new process must get a whole card's memory.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from ctypes import addressof, c_uint64, c_void_p
from pathlib import Path
from random import Random

from benchmarks.machine_checks import run_check
from pumice.adapters.load import CudaError, Driver

KERNEL = b"pumice-kernel name=pumice_spin_ns ns=1\n\0"
AT_ONCE = 4
LONGEST_LIFE_S = 0.006


class Broken(AssertionError):
    """The machine was not usable after kills; the text says how."""


def live(seed: int) -> None:
    """A child: random calls without end."""
    rng = Random(seed)
    driver = Driver()
    driver.use(driver.device(0))
    kernel, stream = driver.kernel(KERNEL, "pumice_spin_ns"), driver.stream()
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    nvml.nvmlInit_v2()
    handle = c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    value = c_uint64(20_000)
    parameters = (c_void_p * 1)(addressof(value))
    memory = (c_uint64 * 3)()
    blocks: list[int] = []
    while True:
        match rng.randrange(6):
            case 0:
                blocks.append(driver.allocate(rng.randrange(1, 64 << 20)))
            case 1 if blocks:
                driver.free(blocks.pop(rng.randrange(len(blocks))))
            case 2:
                driver.launch(kernel, parameters, stream)
            case 3:
                driver.synchronize()
            case 4:
                nvml.nvmlDeviceGetMemoryInfo(handle, memory)
            case _:
                driver.free_memory()


def check(directory: Path) -> None:
    """A new process gets nearly the whole card, within a bounded time."""
    child = os.fork()
    if child == 0:
        try:
            driver = Driver()
            device = driver.device(0)
            driver.use(device)
            driver.free(driver.allocate(driver.total(device) - (1 << 30)))
            driver.synchronize()
        except CudaError as error:
            print(error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status:
                raise Broken("a new process cannot get the card's memory")
            return
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise Broken("a new process hangs")


def run(kills: int, seed: int, directory: Path) -> dict[str, object]:
    """Raises ``Broken`` when the machine is not usable at one of the checks."""
    from pumice_lab.machine import create, library_dir, machine_of

    rng = Random(seed)
    begun = time.perf_counter()
    with create(machine_of("2xA100-SXM4-40GB"), directory) as machine:
        os.environ["PUMICE_MACHINE"] = str(directory)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):  # loaded once here, started in each child
            ctypes.CDLL(str(library_dir() / name))
        done = working = 0
        while done < kills:
            children = [_child(seed * 1_000_003 + done + number) for number in range(min(AT_ONCE, kills - done))]
            for child in children:
                time.sleep(rng.random() * LONGEST_LIFE_S)
                os.kill(child, signal.SIGKILL)
            for child in children:
                os.waitpid(child, 0)
            done += len(children)
            if done % 100 < AT_ONCE or done >= kills:
                shares = machine.witness().shares
                left = [share for share in shares if share.live]
                working += sum(share.killed and share.launches > 0 for share in shares[-100:])
                if left or any(card.lanes[0].used_bytes for card in machine.cards()):
                    raise Broken(f"after {done} kills the books still hold {left}")
                check(directory)
    return {"kills": done, "of_working": working, "seed": seed, "seconds": round(time.perf_counter() - begun, 2)}


def _child(seed: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            live(seed)
        finally:
            os._exit(1)
    return child


def main(argv: list[str] | None = None) -> int:
    return run_check("machine_kill", __doc__, argv, run, unit="kills", many=10_000, broken=Broken)


if __name__ == "__main__":
    sys.exit(main())
