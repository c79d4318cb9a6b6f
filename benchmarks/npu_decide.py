"""Placing pods on 1,000 nodes of 4 Ascend chips in process, in both modes: the first decision of a class, and the next ones.

Every node has its chips in use in some other way. ``first``: a class that nobody has asked for before. ``next``: the choice and
the booking of the pods of that class that follow, one after the other. Milliseconds of CPU time, after one class that brings the
arrays in line with the lists.   ``python -m benchmarks.npu_decide [--quick] [--save]``
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

from kit.scheduler_confs import conf, sharing

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.npu_core_world import core_node_object, core_pod_object, gathered
from kit.npu_world import chip, npu_limits, npu_node_object
from kit.objects import pod, queue
from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.ledger import Placement
from pumice.wire.device_reports import read_gathered
from pumice.wire.objects import ConfigMap, Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue

MINUTES = 1
CHIPS = 4
P310 = chip("310P3")
CORES = ((1, "low"), (2, "low"), (2, "high"), (4, "low"), (4, "high"), (8, "low"))
MEMORY = (1024, 4096, 9000, None)
Json = dict[str, Any]


def cut_on_demand(nodes: int, rng: random.Random) -> tuple[Engine, list[Json]]:
    """Nodes with slices that the plugin has made, and a pod of each class."""
    engine = empty("AscendMindClusterVNPU")
    names = [f"n{number:04d}" for number in range(nodes)]
    engine.state.bookings.put_report("mindx-dl/devices", read_gathered(convert(ConfigMap, gathered(dict.fromkeys(names, CHIPS)))))
    for name in names:
        engine.state.bookings.put_node(convert(Node, core_node_object(name, CHIPS)))
        for at in range(CHIPS):
            for group, (template, word, cores) in enumerate(rng.choice(((), LOW[:1], LOW[:2], LOW[1:], LOW[:1] * 2))):
                held = core_pod_object(f"{name}-{at}-{group}", cores, nodeName=name, annotations={
                    "huawei.com/npu-core": f"{at}-{template}",
                    "huawei.com/AscendReal": f"Ascend310P-{word}-{100 + 16 * at + group}-{at}_{group}"})  # fmt: skip
                engine.state.pods.put(convert(Pod, {**held, "status": {"phase": "Running"}}))
    return engine, [core_pod_object("first", cores, level) for cores, level in CORES]


LOW = (("vir02_1c", "2c.1cpu", 2), ("vir01", "1c", 1), ("vir02", "2c", 2))


def by_memory(nodes: int, rng: random.Random) -> tuple[Engine, list[Json]]:
    """Nodes whose cards are shared in HAMi's mode."""
    engine = empty("AscendHAMiVNPU")
    for number in range(nodes):
        name = f"n{number:04d}"
        engine.state.bookings.put_node(convert(Node, npu_node_object(name, P310, CHIPS)))
        for at in range(CHIPS):
            if size := rng.choice((0, 3072, 6144, 12288)):
                held = f"{name}-{at + 1},Ascend310P,{size},0:;"
                notes = {"hami.io/Ascend310P-devices-allocated": held, "hami.io/vgpu-node": name}
                bound = pod(f"{name}-{at}", limits=npu_limits(P310, 1, size), nodeName=name, annotations=notes)
                engine.state.pods.put(convert(Pod, {**bound, "status": {"phase": "Running"}}))
    return engine, [pod("first", limits=npu_limits(P310, 1, size)) for size in MEMORY]


def empty(device_type: str) -> Engine:
    text = conf("predicates", sharing(device_type, SchedulePolicy="binpack", ScheduleWeight=10))
    engine = Engine(parse_scheduler_conf(text))
    engine.state.groups.put_queue(convert(Queue, queue("default")))
    return engine


def measure(engine: Engine, shapes: list[Json], following: int) -> dict[str, Any]:
    """Milliseconds over all classes."""
    first, later = [], []
    for number, shape in enumerate(shapes):
        for at in range(following + 1):
            uid = f"uid-{number}-{at}"
            obj = {**shape, "metadata": {**shape["metadata"], "name": uid, "uid": uid}}
            engine.state.pods.put(convert(Pod, obj))
            task = engine.state.tasks[uid]
            begin = time.process_time()
            choice = engine.placer.choose(task.cls)
            assert choice is not None, "the cluster is meant to have room"
            engine.state.ledger.reserve(Placement(task.uid, choice.node, task.request, choice.allocations))
            if number:
                (later if at else first).append(1e3 * (time.process_time() - begin))
    return {"first_ms": median(first), "next_ms": median(later)}


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="fewer pods of each class")
    options = parser.parse_args(argv)
    following = 50 if options.quick else 200
    result = {}
    for mode, world in (("cut on demand", cut_on_demand), ("by memory", by_memory)):
        measure(*world(50, random.Random(1)), 5)  # warm-up
        result[mode] = measure(*world(1000, random.Random(7)), following)
    on_demand, by_size = result["cut on demand"], result["by memory"]
    values = {
        "cut on demand: first decision of a class": on_demand["first_ms"]["median"],
        "cut on demand: next decision of a class": on_demand["next_ms"]["median"],
        "by memory: first decision of a class": by_size["first_ms"]["median"],
        "by memory: next decision of a class": by_size["next_ms"]["median"],
    }
    return conclude("npu_decide", result, goals_of("npu_decide", values), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
