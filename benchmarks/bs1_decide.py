"""BS1, decide: placing vGPU pods in process, without any I/O.

    python -m benchmarks.bs1_decide [--quick] [--save]

Nodes of 8 cards of 81,920 MiB and 10 shares; pods of one card in 20 request shapes (2 to 20 GiB, 10 to 30 cores), binpack.
``placing`` is the choice of node and cards and its booking; ``plan`` is a whole cycle from pending pods to Bindings with
annotations, with every plugin of the guides, a gang of 10 among every 20 pods and four queues; ``reference`` is the plain
rescan of every node by the same family. Each run checks that no card is over its memory, cores or shares and no gang partial.
``queues`` is what a thousand queues cost (``many_queues``).
``lookahead`` are the first two under the policy of a new cluster, which counts what a pod strands of cards.
``realistic`` are whole cycles with pods that mind other pods and nodes that would rather be left alone (``realistic_pods``).
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

import numpy as np
from kit.objects import group
from kit.results import arguments

from benchmarks import many_queues, realistic_pods
from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from benchmarks.rescan import DEVICES, EVERYTHING, Json, engine_with, pods, reference
from pumice.audit.auditor import audit
from pumice.effects.vocabulary import Bind
from pumice.scheduler.state.ledger import Placement
from pumice.simulation.changes import with_policy
from pumice.wire.objects import Pod, convert
from pumice.wire.volcano import PodGroup

MINUTES = 6
AHEAD = "lookahead"


def placing(node_count: int, pod_count: int, kinds: int, conf: str = DEVICES) -> dict[str, float]:
    """Pods per second of wall and of CPU time for choosing and booking."""
    engine, node_objects = engine_with(conf, node_count)
    pod_objects = pods(pod_count, kinds)
    for obj in pod_objects:
        engine.state.pods.put(convert(Pod, obj))
    tasks = list(engine.state.tasks.values())
    placer, ledger = engine.placer, engine.state.ledger
    placed: dict[str, tuple[str, Any]] = {}
    with quiet() as clock:
        for task in tasks:
            choice = placer.choose(task.cls)
            assert choice is not None, "the cluster is meant to have room"
            ledger.reserve(Placement(task.uid, choice.node, task.request, choice.allocations))
            placed[task.uid] = (choice.node, choice.allocations)
    device_type = engine.device_types[0]
    for obj in pod_objects:
        where, allocations = placed[obj["metadata"]["uid"]]
        obj["spec"]["nodeName"] = where
        obj["metadata"]["annotations"].update(device_type.annotations(allocations[0], 0))
    check(node_objects, pod_objects, [])
    return clock.rates(pod_count)


def plan(node_count: int, pod_count: int, conf: str = EVERYTHING) -> dict[str, float]:
    """Pods per second from the pending pods to a plan of Bindings."""
    engine, node_objects = engine_with(conf, node_count)
    pod_objects = pods(pod_count, 20, gangs=True)
    group_objects = [group(f"g{i}", minimum=10, queue=f"q{i % 4}") for i in range(pod_count // 20)]
    for obj in group_objects:
        engine.state.groups.put_group(convert(PodGroup, obj))
    for obj in pod_objects:
        engine.state.pods.put(convert(Pod, obj))
    with quiet() as clock:
        bindings = [e for e in engine.cycle(1.0).effects if isinstance(e, Bind)]
    by_uid = {obj["metadata"]["uid"]: obj for obj in pod_objects}
    for binding in bindings:
        by_uid[binding.uid]["spec"]["nodeName"] = binding.node
        by_uid[binding.uid]["metadata"]["annotations"].update(binding.annotations)
    check(node_objects, pod_objects, group_objects)
    assert len(bindings) == pod_count, f"{len(bindings)} of {pod_count} placed"
    return clock.rates(pod_count)


class quiet:
    """Times a block by wall and by CPU, with the collector frozen as the product does after its lists."""

    def __enter__(self) -> quiet:
        gc.collect()
        gc.freeze()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        gc.unfreeze()

    def rates(self, count: int) -> dict[str, float]:
        return {"per_second": count / self.wall, "per_cpu_second": count / self.cpu}


def check(node_objects: list[Json], pod_objects: list[Json], groups: list[Json]) -> None:
    found = audit(node_objects, pod_objects, groups)
    assert not found, found[:5]


def repeated(runs: int, measure: Any, *arguments: Any) -> dict[str, dict[str, float]]:
    found = [measure(*arguments) for _ in range(runs)]
    return {key: median([run[key] for run in found], 0) for key in found[0]}


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="one run each, a twenty-fifth of the nodes and pods, two sizes")
    options = parser.parse_args(argv)
    runs = 1 if options.quick else 5
    nodes, count = (200, 400) if options.quick else (5000, 10000)
    if not options.quick:
        placing(1000, 1000, 20)  # warm-up
    result: dict[str, Any] = {
        f"placing_20_shapes_{nodes}_nodes": repeated(runs, placing, nodes, count, 20),
        f"placing_200_shapes_{nodes}_nodes": repeated(runs, placing, nodes, count, 200),
        f"placing_all_shapes_different_{nodes}_nodes": repeated(runs, placing, nodes, 3 * count // 10, 3 * count // 10),
        f"plan_{nodes}_nodes": repeated(runs, plan, nodes, count),
        f"lookahead_placing_20_shapes_{nodes}_nodes": repeated(runs, placing, nodes, count, 20, with_policy(DEVICES, AHEAD)),
        f"lookahead_plan_{nodes}_nodes": repeated(runs, plan, nodes, count, with_policy(EVERYTHING, AHEAD)),
        f"reference_rescan_{nodes}_nodes": {"per_cpu_second": median([reference(nodes) for _ in range(min(runs, 3))], 1)},
    }
    rate = result[f"placing_20_shapes_{nodes}_nodes"]["per_cpu_second"]["median"]
    result["ratio_to_rescan"] = round(rate / result[f"reference_rescan_{nodes}_nodes"]["per_cpu_second"]["median"])
    result[f"realistic_{nodes}_nodes"] = {
        case: repeated(min(runs, 3), realistic_pods.run, EVERYTHING, case, nodes) for case in realistic_pods.CASES
    }
    found = [many_queues.run(EVERYTHING) for _ in range(min(runs, 3))]
    result["queues_1000"] = {key: median([run[key] for run in found], 2) for key in found[0]}
    sizes = (100, 1000, 2500, 5000, 10000, 20000) if not options.quick else (1000, 1500)
    # At most half of what the nodes hold: a full cluster measures failed looks, not placing.
    few, most = (1, 400) if options.quick else (3, 4000)
    result["placing_by_nodes"] = {f"{n}": repeated(few, placing, n, min(most, 20 * n), 20)["per_cpu_second"] for n in sizes}
    rates = {n: result["placing_by_nodes"][f"{n}"]["median"] for n in sizes if n >= 1000}
    result["exponent_of_cost_in_nodes"] = round(-np.polyfit(np.log(list(rates)), np.log(list(rates.values())), 1)[0], 3)

    def rate_of(name: str) -> float:
        return float(result[name]["per_second"]["median"])

    def cpu_of(what: str) -> float:
        return float(result[f"{what}_{nodes}_nodes"]["per_cpu_second"]["median"])

    queues = result["queues_1000"]
    values = {
        "placing, 20 shapes": rate_of(f"placing_20_shapes_{nodes}_nodes"),
        "placing, all shapes different": rate_of(f"placing_all_shapes_different_{nodes}_nodes"),
        "snapshot to plan": rate_of(f"plan_{nodes}_nodes"),
        "lookahead: placing, 20 shapes": rate_of(f"lookahead_placing_20_shapes_{nodes}_nodes"),
        "lookahead: snapshot to plan, times binpack's time": cpu_of("plan") / cpu_of("lookahead_plan"),
        "times the plain rescan": result["ratio_to_rescan"],
        "exponent of the cost in nodes": result["exponent_of_cost_in_nodes"],
        "1,000 queues: a cycle above one queue": float(queues["above_one_queue_ms"]["median"]),
        "1,000 pods of 1,000 queues in one cycle": float(queues["thousand_pods_ms"]["median"]),
        "1,000 queues in a tree of depth 4: a cycle above one queue": float(queues["above_one_queue_tree_ms"]["median"]),
        "1,000 pods of 1,000 queues in a tree in one cycle": float(queues["thousand_pods_tree_ms"]["median"]),
    }
    for case, rates_of in result[f"realistic_{nodes}_nodes"].items():
        values[case.replace("_", " ")] = float(rates_of["per_second"]["median"])
        if case != realistic_pods.BACKLOG:  # the first cycle sees all of its pods
            values[f"{case.replace('_', ' ')}: longest cycle"] = float(rates_of["longest_cycle_ms"]["median"])
    return conclude("bs1_decide", result, goals_of("bs1_decide", values), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
