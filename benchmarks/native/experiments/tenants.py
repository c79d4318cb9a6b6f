"""E7 and E9: containers that share a card, with the driver's own time slicing, with the library, and with its arbiter."""

from __future__ import annotations

import shutil
from typing import Any

from benchmarks.native.experiments import plot
from benchmarks.native.experiments.rig import Container, Report, Rig
from benchmarks.native.experiments.shares import quantile, rate

WARM_S = 1.0
MS = 1_000_000
SETS = ((30, 70), (50, 50), (25, 25, 25, 25), (20, 30, 50), (30, 30))
BYSTANDER = (
    10  # percent; it uses far less, but without a limit it would be no tenant, and the arbiter would stand aside
)
VARIANTS = ("native", "limits", "limits and arbiter")


def _container(rig: Rig, variant: str, limit: int) -> Container | None:
    if variant == "native":
        return None
    return rig.limited(limit, PUMICE_VGPU_ARBITER="1" if "arbiter" in variant else "0")


def shares(rig: Rig) -> Report:
    """E7: the share of each tenant, the work of all of them, and how long a short kernel of a bystander takes."""
    report = Report()
    seconds = WARM_S + rig.seconds(4.0, 2.0)
    table: dict[str, Any] = {}
    worst: dict[str, float] = {}
    for kernel in (MS // 5, 5 * MS):
        config: dict[str, Any] = {"kernel_ns": kernel, "seconds": seconds}
        whole = rate(rig.run("busy", **config), WARM_S)
        for limits in SETS if not rig.emulated else SETS[:1] + SETS[4:]:
            for variant in VARIANTS:
                tenants = [rig.start("busy", _container(rig, variant, limit), **config) for limit in limits]
                bystander = rig.start(
                    "probe", _container(rig, variant, BYSTANDER), kernel_ns=MS // 10, every_ms=20, seconds=seconds
                )
                *runs, probed = rig.together(*tenants, bystander)
                got = [100 * rate(run, WARM_S) / whole for run in runs]
                name = f"{'/'.join(map(str, limits))}, {kernel / MS:g} ms, {variant}"
                table[name] = {"shares": [round(one, 1) for one in got], "sum": round(sum(got), 1),
                               "bystander p99, ms": round(quantile(probed, 0.99), 2)}  # fmt: skip
                error = max(abs(one - limit) for one, limit in zip(got, limits, strict=True))
                worst[name] = error
                if variant != "native" and sum(limits) <= 90 and (kernel <= MS or "arbiter" in variant):
                    report.goal(f"tenants {name}: error, worst", error)
    report.figures["tenants"] = table
    report.plots["error"] = plot.bars("worst error of a tenant", "points", worst, goal=3.0)
    if shutil.which("nvidia-cuda-mps-control") is None or rig.emulated:
        report.not_run["under MPS"] = (
            "no nvidia-cuda-mps-control here" if not rig.emulated else "no MPS on the emulated machine"
        )
    else:
        report.not_run["under MPS"] = "starting its daemon would change the card for others"
    return report


def serving(rig: Rig) -> Report:
    """E9: a decode loop of requests beside a training loop, each at half the card."""
    report = Report()
    seconds = rig.seconds(15.0, 4.0)
    request: dict[str, Any] = {
        "seconds": seconds,
        "per_second": 4,
        "tokens": 12,
        "nodes": 150,
        "step_ns": 3 * MS,
        "prefill_ns": 20 * MS,
        "weights_mib": min(4096, rig.free_bytes() // 8 >> 20) if not rig.emulated else 256,
        "kv_mib": 16,
    }
    training: dict[str, Any] = {"kernel_ns": MS // 5, "seconds": seconds}
    alone = rig.run("busy", **training)
    solo = rig.run("serve", rig.limited(50), **request)
    limit = quantile(solo["first_ms"], 0.99)
    reported: dict[str, Any] = {"alone at 50 %": _latencies(solo)}
    for variant in VARIANTS:
        decode = rig.start("serve", _container(rig, variant, 50), **request)
        beside = rig.start("busy", _container(rig, variant, 50), **training)
        served, trained = rig.together(decode, beside)
        reported[variant] = {
            **_latencies(served),
            "training, of its rate alone": round(rate(trained, 1.0) / rate(alone, 1.0), 3),
        }
    report.figures["latencies"] = reported
    best = min(reported[variant]["first token p99, ms"] for variant in VARIANTS[1:])
    report.figures["best first token p99 with limits over alone"] = round(best / limit, 3)
    if not rig.emulated:  # a bar for a card: the emulated one lives on processors that others use
        report.goal(
            "first token p99 over that alone at 50 %, the better of with and without the arbiter", best / limit
        )
    report.plots["first token"] = plot.bars(
        "first token, p99", "ms", {name: one["first token p99, ms"] for name, one in reported.items()}
    )
    return report


def _latencies(run: dict[str, list[float]]) -> dict[str, Any]:
    return {
        "requests": len(run["first_ms"]),
        "first token p50, ms": round(quantile(run["first_ms"], 0.5), 2),
        "first token p99, ms": round(quantile(run["first_ms"], 0.99), 2),
        "token p50, ms": round(quantile(run["token_ms"], 0.5), 3),
        "token p99, ms": round(quantile(run["token_ms"], 0.99), 3),
    }
