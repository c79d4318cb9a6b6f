"""The scheduler's metrics page at 400 nodes of 8 cards with 12,800 pods, each in a PodGroup of its own.

    python -m benchmarks.metrics_page [--nodes 400] [--pods 12800] [--runs 5] [--quick] [--save]

Measured in process: the first page of a scheduler that has never been asked, the page when nothing changed, the page after
one pod in a hundred left, and the longest time for which making a page keeps the loop from anything else. The yardstick is
prometheus-client alone, which is given the same device series by a collector and renders them, in the same run; both must
say the same. Every page is read by prometheus-client's parser and compared with the annotations of the Bindings, card by card,
pod by pod.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from kit.objects import group, node, pod, queue
from kit.results import arguments
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from benchmarks.rescan import EVERYTHING
from pumice.apps.scheduler.pages import MetricsPage
from pumice.effects.vocabulary import Bind
from pumice.metrics.scheduler import SchedulerMetrics
from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import PodGroup, Queue

MIB, CARDS = 81920, 8
MINUTES = 0.5

Held = dict[str, tuple[str, str, int, int]]
"""Pod name to node, card uuid, memory in MiB and cores, as its Binding's annotation says."""


def cluster(nodes: int, pods: int) -> tuple[Engine, Held, dict[str, Pod]]:
    """An engine that has placed all pods, and what each of them was given."""
    engine = Engine(parse_scheduler_conf(EVERYTHING))
    state, now = engine.state, 1_800_000_000.0
    state.groups.put_queue(convert(Queue, queue("default")))
    for i in range(nodes):
        body = node(f"n{i:05d}", cards=CARDS, mib=MIB, cpu="192", memory="1536Gi")
        state.bookings.put_node(convert(Node, body))
    objects: dict[str, dict[str, Any]] = {}
    for i in range(pods):
        name = f"podgroup-{i}"
        obj = pod(f"p{i}", mib=8000 + i % 7 * 100, cores=10 + i % 5, cards=1, cpu="500m", group=name)
        objects[obj["metadata"]["uid"]] = obj
        state.groups.put_group(convert(PodGroup, {**group(name, minimum=1), "status": {"phase": "Inqueue"}}))
        state.pods.put(convert(Pod, obj), now)
    held: Held = {}
    known: dict[str, Pod] = {}
    while engine.has_work(now) and len(held) < pods:
        now += 1.0
        for effect in engine.cycle(now).effects:
            if isinstance(effect, Bind):
                obj = objects[effect.uid]
                uuid, _, memory, cores = effect.annotations["volcano.sh/vgpu-ids-new"].split(":")[0].split(",")
                held[effect.name] = (effect.node, uuid, int(memory), int(cores))
                obj["spec"]["nodeName"], obj["status"] = effect.node, {"phase": "Running"}
                obj["metadata"]["annotations"].update(effect.annotations)
                known[effect.name] = convert(Pod, obj)
                engine.bound(effect.uid)
                state.pods.put(known[effect.name], now)
    assert len(held) == pods, f"only {len(held)} of {pods} pods were placed"
    return engine, held, known


def check(page: bytes, held: Held, nodes: int) -> None:
    """The device series are exactly what the Bindings say."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for metric in text_string_to_metric_families(page.decode()):
        if metric.type == "histogram":
            continue
        found[metric.name] = {tuple(v for _, v in sorted(s.labels.items())): s.value for s in metric.samples}
        assert len(found[metric.name]) == len(metric.samples), f"{metric.name} has a series twice"
    memory: dict[tuple[str, ...], int] = defaultdict(int)
    cores: dict[tuple[str, ...], int] = defaultdict(int)
    shares: dict[tuple[str, ...], int] = defaultdict(int)
    for where, uuid, mib, percent in held.values():
        memory[where, uuid] += mib
        cores[where, uuid] += percent
        shares[where, uuid] += 1
    cards = [(f"n{i:05d}", f"GPU-n{i:05d}-{card}") for i in range(nodes) for card in range(CARDS)]
    prefix = "volcano_vgpu_device_"
    for name, expected in (("allocated_memory", memory), ("allocated_cores", cores), ("shared_number", shares)):
        assert found[prefix + name] == {card: expected[card] for card in cards}, name
    assert found[prefix + "memory_limit"] == dict.fromkeys(cards, MIB)
    for place, name in ((2, "memory"), (3, "core")):
        series = found[f"{prefix}{name}_allocation_for_a_certain_pod"]
        assert series == {(h[0], h[1], pod_name): h[place] for pod_name, h in held.items()}, name  # type: ignore[misc]
    assert len(found["volcano_e2e_job_scheduling_duration"]) == len(held), "one series per job that stands"


CARD = ["devID", "NodeName"]
SERIES = {
    **{f"volcano_vgpu_device_{what}": CARD for what in ("memory_limit", "shared_number", "allocated_memory", "allocated_cores")},
    **{f"volcano_vgpu_device_{what}_allocation_for_a_certain_pod": [*CARD, "podName"] for what in ("memory", "core")},
    **{f"pumice_vgpu_device_pod_{what}": [*CARD, "podNamespace", "podName"] for what in ("memory", "cores")},
}
"""The series of cards that are shared and not cut, as the page has them, with their labels."""


def check_alike(page: bytes, other: bytes) -> None:
    """Prometheus-client was given every device series of the page, and nothing else."""
    read = [{metric.name: {(*sorted(sample.labels.items()), sample.value) for sample in metric.samples}
             for metric in text_string_to_metric_families(text.decode()) if "_vgpu_" in metric.name and metric.samples}
            for text in (page, other)]  # fmt: skip
    assert read[0].keys() == read[1].keys(), read[0].keys() ^ read[1].keys()
    assert [name for name in read[0] if read[0][name] != read[1][name]] == []


class Yardstick(Collector):
    """prometheus-client's own way: a collector that makes the same families out of the same books at each scrape."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def collect(self) -> Iterable[Metric]:
        (books,) = (books for books in self.engine.state.ledger.device_tables.values() if books.device_type.series is not None)
        device_types = [GaugeMetricFamily(name, name, labels=labels) for name, labels in SERIES.items()]
        tasks = self.engine.state.tasks
        for book in books.nodes.values():
            for known, usage in zip(book.inventory.cards, book.usages, strict=True):
                where = [known.uuid, book.name]
                for place, value in enumerate((known.total, usage.shares, usage.memory, usage.cores)):
                    device_types[place].add_metric(where, value)
                for uid, container_devices in usage.holders.items():
                    task = tasks[uid]
                    amounts = sum(p.asked for p in container_devices), sum(p.cores for p in container_devices)
                    for place, amount in enumerate(amounts):
                        device_types[4 + place].add_metric([*where, task.name], amount)
                        device_types[6 + place].add_metric([*where, task.namespace, task.name], amount)
        return device_types


def timed(step: Callable[[], bytes]) -> tuple[float, bytes]:
    """Milliseconds and the page. What lives long is frozen first, as the daemon does after its lists."""
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    page = step()
    return (time.perf_counter() - began) * 1000, page


def longest_hold(served: MetricsPage) -> float:
    """Milliseconds for which making the page held the loop at once."""

    async def story() -> float:
        gaps = [0.0]

        async def others() -> None:
            last = time.perf_counter()
            while True:
                await asyncio.sleep(0)
                now = time.perf_counter()
                gaps.append(now - last)
                last = now

        other = asyncio.create_task(others())
        await asyncio.sleep(0)
        await served.fresh()
        await asyncio.sleep(0)
        other.cancel()
        return max(gaps) * 1000

    gc.collect()
    gc.freeze()
    return asyncio.run(story())


def measure(nodes: int, pods: int, runs: int) -> dict[str, Any]:
    engine, held, known = cluster(nodes, pods)
    moves = [0]

    def fresh() -> MetricsPage:
        return MetricsPage(SchedulerMetrics(engine), lambda: moves[0])

    taken: dict[str, list[float]] = {name: [] for name in ("first", "unchanged", "one_percent_left", "hold", "yardstick")}
    registry = CollectorRegistry()
    registry.register(Yardstick(engine))
    for run in range(runs):
        served = fresh()
        spent, page = timed(served.at_once)
        taken["first"].append(spent)
        if run == 0:
            check(page, held, nodes)
        spent, again = timed(served.at_once)
        taken["unchanged"].append(spent)
        assert again is page, "a page that nothing changed since is the same page"
        spent, other = timed(lambda: generate_latest(registry))
        taken["yardstick"].append(spent)
        if run == 0:
            check_alike(page, other)
        for name in list(held)[:: max(1, len(held) // (pods // 100))][: pods // 100]:
            engine.state.pods.drop(known[name])
            del held[name]
        moves[0] += 1
        before = served.metrics.devices.rendered
        spent, page = timed(served.at_once)
        taken["one_percent_left"].append(spent)
        touched = served.metrics.devices.rendered - before
        taken["hold"].append(longest_hold(fresh()))
    check_after(page, held)
    ratio = [y / f for y, f in zip(taken["yardstick"], taken["first"], strict=True)]
    return {
        "nodes": nodes, "cards": nodes * CARDS, "pods": pods, "page_kib": len(page) // 1024,
        "first_ms": median(taken["first"], 1), "unchanged_ms": median(taken["unchanged"], 3),
        "after_one_percent_left_ms": median(taken["one_percent_left"], 1), "cards_rendered_then": touched,
        "longest_hold_of_the_loop_ms": median(taken["hold"], 1),
        "prometheus_client_devices_only_ms": median(taken["yardstick"], 1), "times_faster": median(ratio, 2),
    }  # fmt: skip


def check_after(page: bytes, held: Held) -> None:
    """Check that deleted objects are gone and the others still exist."""
    name = "volcano_vgpu_device_memory_allocation_for_a_certain_pod"
    device_types = {m.name: m for m in text_string_to_metric_families(page.decode())}
    assert {s.labels["podName"]: s.value for s in device_types[name].samples} == {pod: h[2] for pod, h in held.items()}


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="a tenth of the nodes and pods, two runs")
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--pods", type=int, default=12_800)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(argv)
    if options.quick:
        options.nodes, options.pods, options.runs = 40, 1280, 2
    result = measure(options.nodes, options.pods, options.runs)
    goals = goals_of("metrics_page", {
        "first page": result["first_ms"]["median"],
        "page after one pod in a hundred left": result["after_one_percent_left_ms"]["median"],
        "page when nothing changed": result["unchanged_ms"]["median"],
    })  # fmt: skip
    return conclude("metrics_page", result, goals, keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
