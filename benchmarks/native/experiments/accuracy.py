"""E4 to E6 and E8: how close a container comes to its core limit, alone, in every shape of launch, as several processes, and
after a change."""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.native.experiments import plot
from benchmarks.native.experiments.rig import RECENT_AT, SWITCH_AT, Report, Rig
from benchmarks.native.experiments.shares import drifted, jain, rate, seconds, union_ns

WARM_S = 1.0
MS = 1_000_000
KERNELS_NS = (10_000, 100_000, MS, 10 * MS, 50 * MS)
LIMITS = (10, 30, 50, 70, 90)
SHAPES: dict[str, dict[str, Any]] = {
    "synchronised launches": {"shape": "sync", "kernel_ns": MS},
    "four streams": {"streams": 4, "kernel_ns": MS // 5},
    "graph of 200 nodes": {"shape": "graph", "nodes": 200, "kernel_ns": 10_000},
    "cooperative": {"shape": "cooperative", "kernel_ns": MS},
    "log-normal lengths": {"shape": "lognormal", "kernel_ns": MS // 5},
}


def length(ns: int) -> str:
    return f"{ns / 1000:g} us" if ns < MS else f"{ns / MS:g} ms"


def _watched(rig: Rig, **config: Any) -> tuple[Any, Any]:
    """The run without the library and what NVML said meanwhile."""
    with rig.start("watch") as watcher:
        watcher.ready().go()
        run = rig.run("busy", **config)
        watcher.go()
        return run, watcher.answer()


def one_tenant(rig: Rig) -> Report:
    """E4: work done under the limit over work done without, by kernel length and limit."""
    report = Report()
    measure = rig.seconds(6.0, 2.0)
    kernels = KERNELS_NS if not rig.emulated else KERNELS_NS[1:4]
    limits = LIMITS if not rig.emulated else (30, 70)
    errors, second_errors, useful, table = [], [], [], {}
    plotted: dict[str, list[tuple[float, float]]] = {}
    for kernel in kernels:
        config: dict[str, Any] = {"kernel_ns": kernel, "seconds": WARM_S + measure}
        solo, seen = _watched(rig, **config)
        if drifted(seen["clock_mhz"]):
            report.not_run[f"{length(kernel)} kernels"] = f"the SM clock moved: {sorted(set(seen['clock_mhz']))} MHz"
            continue
        whole = rate(solo, WARM_S)
        for limit in limits:
            with rig.start("watch") as watcher:
                watcher.ready().go()
                run = rig.run("busy", rig.limited(limit), **config, stamps=kernel >= MS)
                watcher.go()
                seen = watcher.answer()
            mean = 100 * rate(run, WARM_S) / whole
            each = [100 * one / whole for one in seconds(run, WARM_S)]
            name = f"{length(kernel)} at {limit} %"
            table[name] = {
                "share": round(mean, 2),
                "first second": round(100 * rate(run, 0, WARM_S) / whole, 2),
                "by NVML": round(statistics.mean(seen["utilisation"] or [0]), 1),
                "by the card's stamps": _by_stamps(run),
            }
            errors.append(abs(mean - limit))
            second_errors.append(statistics.mean(abs(one - limit) for one in each))
            useful.append(mean / limit)
            plotted.setdefault(length(kernel), []).append((limit, mean))
    report.figures["shares"] = table
    report.plots["share"] = plot.lines("share of the card by limit", "limit, %", "share, %", plotted)
    if errors:
        report.goal("error of the mean, worst", max(errors))
        report.goal("mean error of a second, worst", max(second_errors))
        report.goal("useful work per limit, least", min(useful))
    return report


def _by_stamps(run: Any) -> float | None:
    """Percent of the time that kernels covered, by their own stamps of the card's clock."""
    stamps = run["stamps"]
    if not stamps or len(stamps) < 10:
        return None  # an emulated card runs no code
    return round(100 * union_ns(stamps) / int(stamps[-1][1] - stamps[0][0]), 2)


def shapes(rig: Rig) -> Report:
    """E5: every shape of launch at three limits.

    The limit is on the time of the card, so what a program leaves idle between its launches is its own to use: the whole is the
    same kernels launched without a pause. Streams that overlap are measured against themselves.
    """
    report = Report()
    table: dict[str, float] = {}
    errors: dict[str, float] = {}
    useful: dict[str, float] = {}
    measure = rig.seconds(4.0, 2.5)
    for name, shape in SHAPES.items():
        config = {**shape, "seconds": WARM_S + measure}
        plain = {**config, "shape": "async"} if shape.get("shape") in ("sync", "cooperative") else config
        whole = rate(rig.run("busy", **plain), WARM_S)
        for limit in (30, 50, 70):
            share = 100 * rate(rig.run("busy", rig.limited(limit), **config), WARM_S) / whole
            table[f"{name} at {limit} %"] = round(share, 2)
            errors[name] = max(errors.get(name, 0.0), abs(share - limit))
            useful[name] = min(useful.get(name, 1e9), share / limit)
    report.figures["shares"] = table
    report.plots["error"] = plot.bars("worst error by shape of launch", "points", errors, goal=1.5)
    for name in SHAPES:
        report.goal(f"{name}: error, worst", errors[name])
        report.goal(f"{name}: useful work per limit, least", useful[name])
    return report


def one_container(rig: Rig) -> Report:
    """E6: one to four processes of a container at 40 %."""
    report, totals, fairness = Report(), {}, {}
    config: dict[str, Any] = {"kernel_ns": MS // 2, "seconds": WARM_S + rig.seconds(5.0, 2.0)}
    whole = rate(rig.run("busy", **config), WARM_S)
    for count in (1, 2, 3, 4):
        container = rig.limited(40)
        runs = rig.together(*(rig.start("busy", container, **config) for _ in range(count)))
        shares = [100 * rate(run, WARM_S) / whole for run in runs]
        totals[str(count)], fairness[str(count)] = round(sum(shares), 2), round(jain(shares), 4)
    report.figures["total of the processes"] = totals
    report.figures["Jain's index"] = fairness
    report.plots["total"] = plot.bars("share of one container at 40 % by processes", "%", totals, goal=40)
    report.goal("error of the total, worst", max(abs(total - 40) for total in totals.values()))
    report.goal("Jain's index, least", min(fairness.values()))
    return report


def live(rig: Rig) -> Report:
    """E8: the limit moves 20, 80, 50; the monitor turns the limiter off and on, and blocks and releases the container."""
    report = Report()
    config: dict[str, Any] = {"kernel_ns": MS, "seconds": 3.0}
    whole = rate(rig.run("busy", **config), WARM_S)
    run = _changed(rig, "force", 20, [(1.0, "cores", 80), (2.0, "cores", 50)])
    for at, limit, name in ((1.0, 80, "from 20 to 80 %"), (2.0, 50, "from 80 to 50 %")):
        report.goal(f"a change {name} has settled after", _settled_ms(run, whole, at, limit))
    line = [
        (index * run["window_s"], 100 * work / 1e9 / run["window_s"] / whole)
        for index, work in enumerate(run["windows"])
    ]
    report.plots["change"] = plot.lines(
        "share through two changes of the limit", "seconds", "%", {"20, 80, 50 %": line}
    )
    run = _changed(rig, "default", 30, [(1.0, "switch", 0), (2.0, "switch", 1)])
    report.figures["switch off and on again"] = {
        "limited": round(100 * rate(run, 0.5, 1.0) / whole, 1),
        "switched off": round(100 * rate(run, 1.3, 2.0) / whole, 1),
        "on again": round(100 * rate(run, 2.5, 3.0) / whole, 1),
    }
    run = _changed(rig, "force", 50, [(1.0, "recent", -1), (2.0, "recent", 0)])
    blocked = 100 * rate(run, 1.1, 2.0) / whole
    report.figures["blocked and released"] = {
        "before": round(100 * rate(run, 0.5, 1.0) / whole, 1),
        "blocked": round(blocked, 2),
        "released": round(100 * rate(run, 2.3, 3.0) / whole, 1),
    }
    report.goal("share while blocked", blocked)
    return report


def _changed(rig: Rig, policy: str, cores: int, changes: list[tuple[float, str, int]]) -> Any:
    """A run of three seconds during which a monitor writes into the region."""
    container = rig.container(CUDA_DEVICE_SM_LIMIT=str(cores), GPU_CORE_UTILIZATION_POLICY=policy)
    with rig.start("busy", container, kernel_ns=MS, seconds=3.0) as child:
        child.ready().go()
        begun = time.perf_counter()
        for at, what, value in changes:
            time.sleep(max(0.0, begun + at - time.perf_counter()))
            if what == "cores":
                container.set_cores(value)
            else:
                container.store(SWITCH_AT if what == "switch" else RECENT_AT, "<i", value)
        return child.answer()


def _settled_ms(run: Any, whole: float, at: float, limit: int) -> float:
    """Until the first window of 100 ms that is within 5 points of the new limit."""
    step = at
    while step < at + 0.9:
        if abs(100 * rate(run, step, step + 0.1) / whole - limit) <= 5:
            return 1000 * (step - at)
        step += float(run["window_s"])
    return 1000.0
