"""Core limits hold: by the machine's own count of GPU time, in virtual time, with real time beside it."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.native.experiments import accuracy
from benchmarks.native.experiments.rig import open_rig
from benchmarks.native.harness import MS, Figures, conduct, on, run, share, under

KERNELS_NS = (10_000, 100_000, MS, 10 * MS, 50 * MS)
LIMITS = (10, 30, 50, 70, 90)
TENANTS = ((30, 50), (20, 70), (30, 30, 30), (10, 80), (20, 30, 40))  # each adds up to 90 at most


def length(kernel_ns: int) -> str:
    return f"{kernel_ns / 1000:g} us" if kernel_ns < MS else f"{kernel_ns / MS:g} ms"


def one_tenant(figures: Figures, folder: Path, seconds: int) -> None:
    errors, second_errors, useful = [], [], []
    table: dict[str, float] = {}
    for kernel in KERNELS_NS:
        for limit in LIMITS:
            (served,) = conduct(folder, 1000 * (seconds + 1), f"limit={limit},kernel={kernel}")
            # The last sample is a moment before the end, so the last whole second ends 10 ms earlier.
            mean = share(served, 1000, 1000 * seconds)
            each = [share(served, at, at + 1000) for at in range(1000, 1000 * seconds, 1000)]
            table[f"{length(kernel)} at {limit} %"] = round(mean, 2)
            errors.append(abs(mean - limit))
            second_errors.append(statistics.mean(abs(one - limit) for one in each))
            useful.append(mean / limit)
    figures.tell("shares of one tenant, virtual time", table)
    figures.goal("one tenant: error of the mean, worst", max(errors))
    figures.goal("one tenant: mean error of a second, worst", max(second_errors))
    figures.goal("one tenant: useful work per limit, least", min(useful))


def in_real_time(figures: Figures, folder: Path) -> None:
    """Reported, not held to anything: the computer's other load and the sleep of the kernel are in the figures."""
    table: dict[str, float] = {}
    for kernel in KERNELS_NS:
        for limit in (30, 70):
            (served,) = conduct(folder, 2500, f"limit={limit},kernel={kernel}", time_mode="real")
            table[f"{length(kernel)} at {limit} %"] = round(share(served, 500, 2400), 2)
    three = conduct(folder, 2500, *["limit=40,kernel=1000000"] * 3, time_mode="real")
    table["three processes of a container at 40 %"] = round(sum(share(one, 500, 2400) for one in three), 2)
    limits = (30, 50)
    players = [f"tenant=t{i},limit={limit},kernel=1000000" for i, limit in enumerate(limits)]
    for limit, one in zip(limits, conduct(folder, 2500, *players, time_mode="real"), strict=True):
        table[f"a tenant at {limit} % beside the other, 1 ms"] = round(share(one, 500, 2400), 2)
    figures.tell("shares in real time", table)


def jain(shares: Sequence[float]) -> float:
    """1 when all are equal, 1/n when one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(one * one for one in shares))


def one_container(figures: Figures, folder: Path) -> None:
    errors, fairness = [], []
    for kernel in KERNELS_NS:
        milliseconds = 5000 if kernel < 50 * MS else 21_000  # a few kernels more or less must not be what is measured
        for count in (1, 2, 3, 4):
            served = conduct(folder, milliseconds, *[f"limit=40,kernel={kernel}"] * count)
            shares = [share(one, 1000, milliseconds - 100) for one in served]
            errors.append(abs(sum(shares) - 40))
            fairness.append(jain(shares))
    figures.goal("1 to 4 processes of a container, 10 us to 50 ms: error of the total, worst", max(errors))
    figures.goal("1 to 4 processes of a container, 10 us to 50 ms: Jain's index, least", min(fairness))


def tenants(figures: Figures, folder: Path) -> None:
    """Limits that add up to 90 at most. What the arbiter is for is held to the bar with it and told without it."""
    for kernel in (200_000, MS, 5 * MS, 10 * MS):
        for arbiter in (0, 1):
            worst = 0.0
            for limits in TENANTS:
                players = [f"tenant=t{i},limit={one},kernel={kernel},arbiter={arbiter}" for i, one in enumerate(limits)]
                for served, limit in zip(conduct(folder, 6000, *players), limits, strict=True):
                    worst = max(worst, abs(share(served, 2000, 5900) - limit))
            name = f"tenants of {length(kernel)} kernels, {'with' if arbiter else 'without'} the arbiter: error, worst"
            if kernel <= MS or arbiter:
                figures.goal(name, worst)
            else:
                figures.tell(f"{name}, points", round(worst, 2))


def shapes(figures: Figures, folder: Path) -> None:
    """E5 in virtual time: what a limiter cannot know beforehand (lengths, streams that meet) without what a computer adds."""
    directory = folder / "shapes"
    directory.mkdir()
    report = accuracy.shapes(open_rig(directory, quick=False, virtual=True))
    figures.tell("shares by shape of launch, virtual time", report.figures["shares"])
    for goal in report.goals:
        figures.goal(goal["what"], goal["value"])


def live_change(figures: Figures, folder: Path) -> None:
    (served,) = conduct(folder, 3000, "limit=20,kernel=1000000", "change=t:1000:80")
    settled = next(at for at in range(1000, 2500, 10) if abs(share(served, at, at + 100) - 80) <= 3)
    figures.goal("a live change from 20 to 80 % is seen after", settled - 1000)


def streams(figures: Figures, folder: Path) -> None:
    """Work done at 50 % over half of what the same program does without the library, on a card whose streams overlap."""
    for count in (1, 2, 4):
        words = (sys.executable, "-m", "benchmarks.native.many_streams", str(count), str(MS // 5), "3000")
        region = folder / f"streams{count}.cache"
        limits = {"CUDA_DEVICE_SM_LIMIT": "50", "GPU_CORE_UTILIZATION_POLICY": "force"}
        native = run(*words, env=on(folder / "overlap"))
        ours = run(*words, env=on(folder / "overlap", **under(region, **limits)))
        name = f"useful work per limit with {count} stream{'s' * (count > 1)} at 50 %"
        if count == 1:
            figures.goal(name, ours / native / 0.5)
        else:
            figures.tell(name, round(ours / native / 0.5, 3))
