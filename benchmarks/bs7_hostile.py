"""BS7, hostile: what stays of the rate, how long recovery takes, and that nothing is lost or doubled.

    python -m benchmarks.bs7_hostile [--server auto|kube|embedded] [--nodes N] [--pods N] [--repeats N] [--quick] [--save]

``hopeless``: 10,000 pods that no card can hold wait; ordinary ones come in bursts of 1,000. ``storm``: a proxy adds 5,000 node
updates a second to the scheduler's watch. ``refused``: the proxy answers 5 % of the scheduler's writes with 409 or 429. Both are
compared with bursts through the same proxy when it is calm, in turn. ``restart``: the API server is killed (SIGKILL) when a third
of a burst is bound and started again at once; etcd or the database file stays. PodGroups and events are on throughout.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from benchmarks.end_to_end.contenders import Ours
from benchmarks.end_to_end.load import PODS, bounded, check, clean, create_pods, make_pod, prepare
from benchmarks.end_to_end.measures import Figures, one_burst, rates
from benchmarks.end_to_end.options import Options, medians, options_of, progress
from benchmarks.end_to_end.proxy import Weather, proxy
from benchmarks.end_to_end.server import Server, api_server, until_ready
from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from pumice.ports.cluster import ApiError

MINUTES = 3
HOPELESS, STORM, REFUSED = 10000, 5000, 0.05


async def hopeless(server: Server, options: Options) -> dict[str, Any]:
    """The first burst comes right after the hopeless pods, without a pause."""
    before, beside = [], []
    count = HOPELESS // 10 if options.quick else HOPELESS
    async with Ours(server) as scheduler:
        names = await one_burst(server, scheduler, "warm-hopeless", 200)
        for run in range(options.repeats):
            before.append(await measured(server, scheduler, f"h{run}", options.pods, names))
        await create_pods(server.kube, [make_pod(f"never-{i}", i, mib=90000 + i % 500) for i in range(count)])
        for run in range(options.repeats):
            beside.append(await measured(server, scheduler, f"hn{run}", options.pods, names))
            progress(f"hopeless {run + 1}/{options.repeats}", beside[-1])
        peak = scheduler.peak_mib()
    await check(server.kube, names)
    await clean(server.kube)
    return {"never_fit": count, "without": medians(before), "beside": medians(beside), "peak_rss_mib": round(peak, 1),
            "rate_kept": kept(beside, before), "first_bound_s_at_once": round(beside[0]["first_bound_s"], 3)}  # fmt: skip


async def measured(server: Server, scheduler: Ours, name: str, count: int, names: set[str]) -> Figures:
    fresh = await one_burst(server, scheduler, name, count)
    names |= fresh
    requested = min(server.log.requested[n] for n in fresh)
    return {**rates(server, fresh), "first_bound_s": min(server.log.bound[n] for n in fresh) - requested}


async def weathers(server: Server, options: Options) -> dict[str, Any]:
    """Storm and refused writes, each beside calm in turn."""
    found: dict[str, list[Figures]] = {"calm": [], "storm": [], "refused": []}
    async with proxy(server) as weather, Ours(server, weather.kubeconfig) as scheduler:
        names = await one_burst(server, scheduler, "warm-weather", 200)
        for run in range(options.repeats):
            for kind, runs in found.items():
                runs.append(await under(server, scheduler, weather, kind, f"w{run}-{kind}", options.pods, names))
                progress(f"{kind} {run + 1}/{options.repeats}", runs[-1])
        await weather.set()
    await check(server.kube, names)
    doubled = [name for name, count in server.log.bindings.items() if count > 1]
    assert not doubled, f"bound twice: {doubled[:3]}"
    await clean(server.kube)
    return {**{kind: medians(runs) for kind, runs in found.items()},
            "rate_kept_in_storm": kept(found["storm"], found["calm"]),
            "rate_kept_with_refused_writes": kept(found["refused"], found["calm"])}  # fmt: skip


async def under(server: Server, scheduler: Ours, weather: Weather, kind: str, name: str, count: int, names: set[str]) -> Figures:
    await weather.set(storm=STORM if kind == "storm" else 0, refuse=REFUSED if kind == "refused" else 0.0)
    before, began = await weather.counts(), time.monotonic()
    scheduler.mark()
    figures = await measured(server, scheduler, name, count, names)
    figures["cpu_ms_per_pod"] = scheduler.cpu_since_mark() / count * 1000
    after, seconds = await weather.counts(), time.monotonic() - began
    if kind == "storm":
        figures["updates_per_s"] = (after["updates"] - before["updates"]) / seconds
        assert figures["updates_per_s"] > 0, "there was no storm"
    if kind == "refused":
        figures["refused_writes"] = float(after["refused"] - before["refused"])
    await weather.set()
    await asyncio.sleep(1)  # late writes of this turn are not the next one's
    return figures


async def restart(server: Server, options: Options) -> dict[str, Any]:
    runs = []
    count = 3 * options.pods
    async with Ours(server) as scheduler:
        names = await one_burst(server, scheduler, "warm-restart", 200)
        for run in range(options.repeats):
            server.log.read()
            server.log.mark()
            runs.append(await one_restart(server, f"r{run}", count, names))
            progress(f"restart {run + 1}/{options.repeats}", runs[-1])
        assert scheduler.process.returncode is None, "the scheduler ended with its server"
    await check(server.kube, names)
    await clean(server.kube)
    return medians(runs)


async def one_restart(server: Server, name: str, count: int, names: set[str]) -> Figures:
    """All from the kill: until the server answered a create again, until the first Binding after it, until all were bound. A
    third of the pods come after it: however quick the server is, there is something left to create and to bind."""
    log = server.log
    bodies = [json.dumps(make_pod(f"{name}-{i}", i)).encode() for i in range(count)]
    before, after = bodies[: count * 2 // 3], bodies[count * 2 // 3 :]
    creating = asyncio.create_task(bounded(stubborn(server, body) for body in before))
    while len(log.bound) < count // 3:
        await asyncio.sleep(0.01)
        log.read()
    await server.kill()
    killed = time.time()
    going_on = asyncio.create_task(bounded(stubborn(server, body) for body in after))
    await server.start_again()
    await creating
    await going_on
    await until_none_waits(server)
    log.read()
    doubled = [name for name, number in log.bindings.items() if number > 1]
    assert not doubled, f"bound twice: {doubled[:3]}"
    names |= {f"{name}-{i}" for i in range(count)}
    served, first = (min(at for at in moments.values() if at > killed) - killed for moments in (log.created, log.bound))
    return {"down_s": served, "first_bound_s": first, "recovery_s": max(0.0, first - served),
            "all_bound_s": max(log.bound.values()) - killed}  # fmt: skip


async def stubborn(server: Server, body: bytes) -> None:
    """Create this pod although the server comes and goes."""
    while True:
        try:
            await server.kube.request("POST", PODS, body=body)
            return
        except ApiError as error:
            if error.code == 409:
                return  # the first attempt was carried out
            await asyncio.sleep(0.05)


async def until_none_waits(server: Server, seconds: float = 120) -> None:
    """The log of a killed server may lack its last lines, so the store is asked."""
    waiting = {"fieldSelector": "spec.nodeName=", "limit": "1"}
    async with asyncio.timeout(seconds):
        while json.loads(await server.kube.request("GET", PODS, params=waiting))["items"]:
            await asyncio.sleep(0.05)


def kept(hostile: list[Figures], calm: list[Figures]) -> dict[str, float]:
    """Rate under hostility as part of the calm rate, run by run."""
    return median([a["pods_per_s"] / b["pods_per_s"] for a, b in zip(hostile, calm, strict=True)])


async def run(options: Options) -> dict[str, Any]:
    async with api_server(options.server) as server:
        await prepare(server.kube, options.nodes)
        await until_ready(server.kube)
        return {"api_server": server.name, "nodes": options.nodes, "pods_a_burst": options.pods,
                "hopeless": await hopeless(server, options), "weather": await weathers(server, options),
                "restart": await restart(server, options)}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    options = options_of(__doc__, argv, nodes=1000, pods=1000, repeats=5)
    result = asyncio.run(run(options))
    found = result["hopeless"]
    goals = goals_of("bs7_hostile", {"rate kept beside 10,000 hopeless pods": found["rate_kept"]["median"],
                                     "first pod bound beside them": found["beside"]["first_bound_s"]["max"]})  # fmt: skip
    return conclude(f"bs7_hostile_{options.server}", result, goals, keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
