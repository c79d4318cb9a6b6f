"""The cost of libvgpu.so on calls and on the start of a program."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from kit.vgpu_talk import Tenant
from kit.walled import Walled, may_mount, page_of

from benchmarks.native.harness import CARD, LIBRARY, PROGRAMS, Figures, cost
from pumice.wire.limits_page import GrantedCard
from pumice_lab import machine

ARMED = {"CUDA_DEVICE_SM_LIMIT": "99", "GPU_CORE_UTILIZATION_POLICY": "force"}


def launches(figures: Figures, folder: Path, rounds: int) -> None:
    """In virtual time the card is never the bottleneck, so what is measured of launches is processor time alone."""
    virtual = folder / "virtual"
    for name, limits in (("limits off", {}), ("limiter armed", ARMED)):
        native, ours = cost(virtual, folder, "median", rounds, limits)
        figures.goal(f"added to a launch, {name}, median", ours - native)
        native, ours = cost(virtual, folder, "launch", rounds, limits)
        figures.report(f"added to a launch, {name}, mean with samples, ns", round(ours - native, 1))


def allocations(figures: Figures, folder: Path, rounds: int) -> None:
    real = folder / "real"
    memory = {"CUDA_DEVICE_MEMORY_LIMIT": "30g"}
    for name, mode in (("no other block", "alloc"), ("100,000 live blocks", "alloc100k")):
        native, ours = cost(real, folder, mode, rounds, memory)
        figures.goal(f"added to a pair of alloc and free, {name}", ours - native)
    _, refused = cost(real, folder, "refuse", rounds, {"CUDA_DEVICE_MEMORY_LIMIT": "3g"})
    figures.goal("a refused allocation", refused)
    _under_a_page(figures, folder, rounds)


def _under_a_page(figures: Figures, folder: Path, rounds: int) -> None:
    """As in a pod: what is held is locked by the kernel, which is asked for each other process that holds memory (ADR 119)."""
    if not may_mount():
        figures.report("under a limits page", "not run: no mount namespace to be had here")
        return
    native, _ = cost(folder / "real", folder, "alloc", rounds, {})
    uuid = machine.machine_of(CARD).cards[0].uuid
    for others in (0, 8):
        directory = folder / f"page{others}"
        directory.mkdir()
        pod = Walled(folder / "real", directory, {"LIBCUDA_LOG_LEVEL": "0"}, page=page_of(GrantedCard(uuid, 30 << 30)))
        beside = [Tenant(pod) for _ in range(others)]
        for tenant in beside:
            tenant.ask(f"alloc {100 << 20}")
        ours = statistics.median(pod.run(PROGRAMS / "cost", "alloc", str(rounds + 1)).json()[1:])
        what = f"added to a pair of alloc and free under a limits page, beside {others} processes, ns"
        figures.report(what, round(ours - native))
        for tenant in beside:
            tenant.end()


def modules(figures: Figures, folder: Path, rounds: int) -> None:
    """Loading a module, finding its kernel and unloading it: what it takes is reserved from its image and measured afterwards."""
    native, ours = cost(folder / "real", folder, "module", rounds, {**ARMED, "CUDA_DEVICE_MEMORY_LIMIT": "30g"})
    figures.report("load, look up and unload a module, native, ns", round(native, 1))
    figures.report("added to load, look up and unload a module, ns", round(ours - native, 1))


def start_up(figures: Figures, processes: int) -> None:
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(processes):
        for preload in times:
            env = {"PATH": "/usr/bin:/bin", **({"LD_PRELOAD": str(LIBRARY)} if preload else {})}
            begin = time.perf_counter()
            pid = os.posix_spawn("/bin/true", ["true"], env)
            os.waitpid(pid, 0)
            times[preload].append(time.perf_counter() - begin)
    added = 1000 * (statistics.median(times[True]) - statistics.median(times[False]))
    figures.goal("added to /bin/true under preload", added)
