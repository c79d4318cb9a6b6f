"""libvgpu on the emulated machine: what it costs, whether limits hold, what kills leave behind.

    python -m benchmarks.native.vgpu [--quick] [--save]

Every part checks its own result and fails the run when a bar is missed. Ratios are against native in the same run: rounds
with and without the library alternate. A figure from the emulated machine is never a GPU's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import environment
from pumice import machine

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
LIBRARY = NATIVE / "build/vgpu/libvgpu.so"
PROGRAMS = NATIVE / "build/vgpu/programs"
TESTS = NATIVE / "build/vgpu/tests"
MS = 1_000_000


class Bars:
    """Collects figures with their bars."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.missed: list[str] = []

    def note(self, name: str, value: float, *, most: float | None = None, least: float | None = None) -> None:
        good = (most is None or value <= most) and (least is None or value >= least)
        bar = {"most": most} if most is not None else {"least": least} if least is not None else {}
        self.figures[name] = {"value": round(value, 3), **bar, "met": good}
        if not good:
            self.missed.append(name)
        print(f"{'ok  ' if good else 'MISS'} {name}: {value:.3f} {bar}", file=sys.stderr, flush=True)


ON_CARD = False  # set by gpu.py where there is a real one: its own driver is used then


def on(card: Path, **more: str) -> dict[str, str]:
    if ON_CARD:
        return {**os.environ, **more}
    return {**os.environ, "LD_LIBRARY_PATH": str(machine.library_dir()), "PUMICE_MACHINE": str(card), **more}


def cost(card: Path, folder: Path, mode: str, rounds: int, limits: Mapping[str, str]) -> tuple[float, float]:
    """Median ns natively and under the library; processes alternate, the first round of each warms up."""
    native: list[float] = []
    ours: list[float] = []
    for turn in range(4):
        region = folder / f"{mode}{turn}.cache"
        under = {
            "LD_PRELOAD": str(LIBRARY),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region),
            "LIBCUDA_LOG_LEVEL": "0",
            **limits,
        }
        for into, extra in ((native, {}), (ours, under)):
            if mode == "refuse" and into is native:
                continue
            out = subprocess.run(
                [PROGRAMS / "cost", mode, str(rounds + 1)],
                env=on(card, **extra),
                capture_output=True,
                text=True,
                check=True,
            )
            into.extend(json.loads(out.stdout)[1:])
        region.unlink(missing_ok=True)
    return statistics.median(native or [0.0]), statistics.median(ours)


def build() -> None:
    wanted = ("vgpu", "vgpu-programs", "build/vgpu/tests/test_memory", "build/vgpu/tests/test_fuzz")
    subprocess.run(["make", "-s", "-C", NATIVE, *wanted], check=True)


def machines(folder: Path) -> None:
    """One in real time and one in virtual time."""
    machine.create(machine.machine_of("A100-SXM4-40GB"), folder / "real")
    machine.create(machine.machine_of("A100-SXM4-40GB", virtual_time=True), folder / "virtual")


def call_costs(bars: Bars, folder: Path, rounds: int) -> None:
    """In virtual time the card is never the bottleneck, so what is measured of launches is processor time alone."""
    real, virtual = folder / "real", folder / "virtual"
    armed = {"CUDA_DEVICE_SM_LIMIT": "99", "GPU_CORE_UTILIZATION_POLICY": "force"}
    for name, mode, limits, bar in (
        ("added ns per launch, limits off, median", "median", {}, 40.0),
        ("added ns per launch, limiter armed, median", "median", armed, 90.0),
        ("added ns per launch, limits off, mean", "launch", {}, None),
        ("added ns per launch, limiter armed, mean with samples", "launch", armed, None),
    ):
        native, ours = cost(virtual, folder, mode, rounds, limits)
        bars.note(name, ours - native, most=bar)
    memory = {"CUDA_DEVICE_MEMORY_LIMIT": "30g"}
    for name, mode in (("no other block", "alloc"), ("100,000 live blocks", "alloc100k")):
        native, ours = cost(real, folder, mode, rounds, memory)
        bars.note(f"added ns per pair of alloc and free, {name}", ours - native, most=1000.0)
    _, refused = cost(real, folder, "refuse", rounds, {"CUDA_DEVICE_MEMORY_LIMIT": "3g"})
    bars.note("ns per refused allocation", refused, most=3000.0)


def start_up(bars: Bars, processes: int) -> None:
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(processes):
        for preload in times:
            env = {"PATH": "/usr/bin:/bin", **({"LD_PRELOAD": str(LIBRARY)} if preload else {})}
            begin = time.perf_counter()
            pid = os.posix_spawn("/bin/true", ["true"], env)
            os.waitpid(pid, 0)
            times[preload].append(time.perf_counter() - begin)
    added = 1000 * (statistics.median(times[True]) - statistics.median(times[False]))
    bars.note("added ms of /bin/true under preload", added, most=0.3)


def grants(bars: Bars, count: int) -> None:
    # Together the threads want rather more than there is, so they meet the limit again and again.
    knobs = {"VGPU_GRANTS": str(count), "VGPU_LARGEST": "2000000", "LIBCUDA_LOG_LEVEL": "0"}
    out = subprocess.run([TESTS / "test_memory"], env={**os.environ, **knobs}, capture_output=True, text=True)
    words = out.stdout.split()
    bars.figures["grants from 6 processes x 4 threads"] = int(words[0])
    bars.figures["refusals among them"] = int(words[2])
    bars.note("bytes over the limit", max(0, int(words[6]) - int(words[8])) + 10**9 * out.returncode, most=0)


def conduct(folder: Path, milliseconds: int, *players: str, time_mode: str = "virtual") -> list[list[int]]:
    directory = Path(tempfile.mkdtemp(dir=folder))
    out = subprocess.run(
        [PROGRAMS / "conduct", LIBRARY, directory, str(milliseconds), *players],
        env=on(folder / time_mode), capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    return [worker["served"] for worker in json.loads(out.stdout)["workers"]]


def share(served: Sequence[int], first_ms: int, last_ms: int) -> float:
    return 100 * (served[last_ms // 10] - served[first_ms // 10]) / ((last_ms - first_ms) * MS)


def one_tenant(bars: Bars, folder: Path, seconds: int) -> None:
    errors, second_errors, useful = [], [], []
    table: dict[str, float] = {}
    for kernel in (10_000, 100_000, MS, 10 * MS, 50 * MS):
        for limit in (10, 30, 50, 70, 90):
            (served,) = conduct(folder, 1000 * (seconds + 1), f"limit={limit},kernel={kernel}")
            # The last sample is a moment before the end, so the last whole second ends 10 ms earlier.
            mean = share(served, 1000, 1000 * seconds)
            each = [share(served, at, at + 1000) for at in range(1000, 1000 * seconds, 1000)]
            table[f"{kernel / 1000:g} us at {limit} %"] = round(mean, 2)
            errors.append(abs(mean - limit))
            second_errors.append(statistics.mean(abs(one - limit) for one in each))
            useful.append(mean / limit)
    bars.figures["shares of one tenant, virtual time"] = table
    bars.note("one tenant: worst error of the mean, points", max(errors), most=1.0)
    bars.note("one tenant: worst mean error of a second, points", max(second_errors), most=2.0)
    bars.note("one tenant: least useful work per limit", min(useful), least=0.98)


def in_real_time(bars: Bars, folder: Path) -> None:
    """Reported, not gated: here the machine's other load and the sleep of the kernel are in the figures."""
    table: dict[str, float] = {}
    for kernel in (100_000, MS, 10 * MS):
        for limit in (30, 70):
            (served,) = conduct(folder, 2500, f"limit={limit},kernel={kernel}", time_mode="real")
            table[f"{kernel / 1000:g} us at {limit} %"] = round(share(served, 500, 2400), 2)
    served = conduct(
        folder, 2500, "tenant=a,limit=30,kernel=1000000", "tenant=b,limit=50,kernel=1000000", time_mode="real"
    )
    table["two tenants at 30 %"], table["and 50 %"] = (round(share(one, 500, 2400), 2) for one in served)
    bars.figures["shares in real time"] = table


def one_container(bars: Bars, folder: Path) -> None:
    errors, fairness = [], []
    for kernel in (10_000, 100_000, MS, 10 * MS):
        for count in (1, 2, 3, 4):
            served = conduct(folder, 5000, *[f"limit=40,kernel={kernel}"] * count)
            shares = [share(one, 1000, 4900) for one in served]
            errors.append(abs(sum(shares) - 40))
            fairness.append(sum(shares) ** 2 / (count * sum(x * x for x in shares)))
    bars.note("1 to 4 processes of a container: worst error of the total, points", max(errors), most=1.5)
    bars.note("1 to 4 processes of a container: least Jain's index", min(fairness), least=0.98)


def tenants(bars: Bars, folder: Path) -> None:
    for arbiter in (0, 1):
        for kernel, bar in (
            (200_000, 3.0),
            (MS, 3.0),
            (5 * MS, 3.0 if arbiter else None),
            (10 * MS, 3.0 if arbiter else None),
        ):
            worst = 0.0
            for limits in ((30, 50), (20, 70), (30, 30, 30)):
                players = [f"tenant=t{i},limit={one},kernel={kernel},arbiter={arbiter}" for i, one in enumerate(limits)]
                for served, limit in zip(conduct(folder, 6000, *players), limits, strict=True):
                    worst = max(worst, abs(share(served, 2000, 5900) - limit))
            name = f"tenants of {kernel / 1000:g} us kernels, {'with' if arbiter else 'without'} the arbiter: worst error, points"
            bars.note(name, worst, most=bar)


def live_change(bars: Bars, folder: Path) -> None:
    (served,) = conduct(folder, 3000, "limit=20,kernel=1000000", "change=t:1000:80")
    settled = next(at for at in range(1000, 2500, 10) if abs(share(served, at, at + 100) - 80) <= 3)
    bars.note("ms until a live change from 20 to 80 % is seen", settled - 1000, most=200)


def chaos(bars: Bars, folder: Path, rounds: int) -> None:
    region = folder / "chaos.cache"
    done, longest = 0, 0
    while done < rounds:
        out = subprocess.run(
            [PROGRAMS / "chaos", "20000" if rounds > 1000 else "2000", "4"],
            env=on(folder / "real", LD_PRELOAD=str(LIBRARY), CUDA_DEVICE_MEMORY_LIMIT="3g", LIBCUDA_LOG_LEVEL="0",
                   CUDA_DEVICE_MEMORY_SHARED_CACHE=str(region)),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        one, wait = json.loads(out.stdout)
        done, longest = done + one, max(longest, wait)
    bars.figures["kill rounds without a lost byte or a lock left"] = done
    bars.note("longest wait for a lock, ms, by the library's counter", longest / MS, most=50)


def fuzz(bars: Bars, count: int) -> None:
    done = subprocess.run([TESTS / "test_fuzz"], env={**os.environ, "VGPU_FUZZ": str(count)}, capture_output=True)
    bars.figures["made-up heads and limit texts"] = count
    bars.note("failures of the fuzzer", done.returncode, most=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small counts, a minute")
    parser.add_argument("--save", action="store_true", help="keep the results in benchmarks/results")
    parser.add_argument("--only", help="one part by name")
    arguments = parser.parse_args()
    quick: bool = arguments.quick
    build()
    bars = Bars()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        parts: dict[str, Callable[[], None]] = {
            "calls": lambda: call_costs(bars, folder, 2 if quick else 5),
            "start_up": lambda: start_up(bars, 100 if quick else 1000),
            "one_tenant": lambda: one_tenant(bars, folder, 3 if quick else 6),
            "in_real_time": lambda: in_real_time(bars, folder),
            "one_container": lambda: one_container(bars, folder),
            "tenants": lambda: tenants(bars, folder),
            "live_change": lambda: live_change(bars, folder),
            "grants": lambda: grants(bars, 300_000 if quick else 10_000_000),
            "chaos": lambda: chaos(bars, folder, 200 if quick else 10_000),
            "fuzz": lambda: fuzz(bars, 10**6 if quick else 10**8),
        }
        machines(folder)
        for name, part in parts.items():
            if arguments.only in (None, name):
                part()
    result = {
        "benchmark": "native_vgpu",
        "machine": "emulated A100-SXM4-40GB; not a GPU",
        **environment(),
        "figures": bars.figures,
    }
    print(json.dumps(result, indent=2))
    if arguments.save:
        (ROOT / "benchmarks/results/native_vgpu.json").write_text(json.dumps(result, indent=2) + "\n")
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
