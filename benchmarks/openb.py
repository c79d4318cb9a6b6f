"""openb: a real cluster filled task by task, one cycle each, with the configuration of a new cluster.

    python -m benchmarks.openb DATA [--quick] [--save] [--lists default,cpu250] [--seeds 10] [--policy binpack]
                                    [--two-dimensional] [--runs FILE]

DATA (or PUMICE_OPENB) is the folder with the trace's CSV files and the published results: ``data/csv`` of
github.com/hkust-adsl/kubernetes-scheduler-simulator, and ``fgd_published_summary.csv``, the means per task list and policy. 1,213
nodes with 6,212 GPUs; tasks come in random order until they have asked for 130 % of the GPUs, one that fits nowhere is dropped,
nobody leaves. What is allocated of all GPU thousandths then, and at 100 %, is compared with the published policies. Ties go by
name, and names are dealt out anew for each seed. The memory of a card stands for its thousandths. ``--two-dimensional``: cards
have the memory of their models, thousandths are cores, and a share's memory is 0.5 to 1.5 of what they would be of 16 GiB, by
its name. ``--runs`` keeps each run as it ends, and takes those that are there already: a series that was cut off goes on. Each
run checks from the objects that nothing is over and that no task was dropped which some node could take. Without DATA nothing is
run.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from kit.objects import queue
from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.kept_runs import KeptRuns
from benchmarks.report import conclude, median
from pumice.audit.auditor import audit
from pumice.effects.vocabulary import Bind
from pumice.scheduler.engine import Engine
from pumice.simulation.changes import with_policy
from pumice.simulation.manifests import MODEL, node
from pumice.simulation.trace import THOUSANDTHS, Task, nodes_of, tasks_of
from pumice.wire import names
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue
from pumice_lab.first_objects import SCHEDULER_CONF

MINUTES = 25
LISTS = ("default", "gpushare40", "gpushare100", "multigpu20", "multigpu50", "gpuspec33", "cpu250")
OF_TWO_DIMENSIONS = ("default", "gpushare100", "multigpu50")
TUNE = 1.30
CARD_MIB = {"P100": 16384, "T4": 16384, "V100M16": 16384, "V100M32": 32768, "A10": 24576, "G2": 24576, "G3": 81920}
"""Of G2 and G3, which the trace does not disclose, assumed."""
SHARE_MIB = 16384
"""A share's memory is such a part of this as its thousandths are, times a factor."""
FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5)
Json = dict[str, Any]


def text_of(data: Path, name: str) -> str:
    return (data / f"{name}.csv").read_text("utf-8")


def tasks_in(data: Path, name: str, *, flat: bool = True) -> list[Task]:
    """The tasks of a list. ``flat``: of one dimension, as the trace has them."""
    tasks = tasks_of(text_of(data, f"openb_pod_list_{name}"), name)
    return tasks if flat else [Task(task.name, in_two_dimensions(task), task.thousandths) for task in tasks]


def in_two_dimensions(task: Task) -> Json:
    requested: Json = dict(task.template["spec"]["containers"][0]["resources"]["requests"])
    share = int(requested.pop(names.VGPU_MEMORY, 0))
    if share:
        requested[names.VGPU_CORES] = str(-(-share // 10))
        if share == THOUSANDTHS:
            requested[names.VGPU_MEMORY_PERCENTAGE] = "100"
        else:
            mib = share / THOUSANDTHS * SHARE_MIB * FACTORS[crc32(task.name.encode()) % 5]
            requested[names.VGPU_MEMORY] = str(min(SHARE_MIB, max(128, round(mib / 128) * 128)))
    template: Json = {**task.template, "spec": {**task.template["spec"]}}
    template["spec"]["containers"] = [{"name": "main", "resources": {"limits": requested, "requests": requested}}]
    return template


def machines_of(data: Path, seed: int, *, flat: bool = True) -> list[Json]:
    """The nodes, by names that are dealt out by the seed."""
    found = nodes_of(text_of(data, "openb_node_list_gpu_node"), "nodes")
    places = np.random.default_rng(seed + 900).permutation(len(found))
    return [renamed(obj, f"n{place:04d}", flat=flat) for obj, place in zip(found, places, strict=True)]


def renamed(obj: Json, name: str, *, flat: bool) -> Json:
    have, model = obj["status"]["allocatable"], obj["metadata"]["labels"][MODEL]
    mib = THOUSANDTHS if flat else CARD_MIB[model]
    return node(name, cpu=have["cpu"], memory=have["memory"], model=model, mib=mib, shares=THOUSANDTHS, pods=1000,
                cards=int(have[names.VGPU_CORES]) // 100)  # fmt: skip


def arrivals(tasks: Sequence[Task], capacity: int, rng: np.random.Generator) -> list[Task]:
    """All tasks in random order, filled up by random ones, or thinned, to the target."""
    order = [tasks[i] for i in rng.permutation(len(tasks))]
    requested, target = sum(task.thousandths for task in order), TUNE * capacity
    while requested > target:
        requested -= order.pop(int(rng.integers(len(order)))).thousandths
    while True:
        more = tasks[int(rng.integers(len(tasks)))]
        if requested + more.thousandths > target:
            return order
        order.append(more)
        requested += more.thousandths


def request(number: int, task: Task) -> Json:
    meta = {"name": f"p{number}", "namespace": "default", "uid": f"uid-p{number}", "annotations": {}}
    return {**task.template, "metadata": meta, "spec": {**task.template["spec"]}}


def engine_of(conf: str, machines: Sequence[Json]) -> Engine:
    engine = Engine(parse_scheduler_conf(conf))
    engine.state.groups.put_queue(convert(Queue, queue("default")))
    for obj in machines:
        engine.state.bookings.put_node(convert(Node, obj))
    return engine


def capacity_of(machines: Sequence[Json]) -> int:
    """Thousandths of GPUs."""
    return sum(int(obj["status"]["allocatable"][names.VGPU_CORES]) * THOUSANDTHS // 100 for obj in machines)


def fill(conf: str, machines: list[Json], tasks: Sequence[Task], seed: int, *, flat: bool = True) -> dict[str, float]:
    """Per cent of the GPU thousandths that are allocated when 100 and 130 % have arrived."""
    engine, capacity = engine_of(conf, machines), capacity_of(machines)
    arrived = allocated = dropped = 0
    at: dict[str, float] = {}
    placed: list[Json] = []
    refused: list[tuple[int, Json]] = []
    for number, task in enumerate(arrivals(tasks, capacity, np.random.default_rng(seed))):
        obj = request(number, task)
        value = convert(Pod, obj)
        engine.state.pods.put(value, 0.0)
        bind = next((e for e in engine.cycle(1000.0 + number).effects if isinstance(e, Bind)), None)
        arrived += task.thousandths
        if bind is None:
            engine.state.pods.drop(value)
            dropped += 1
            refused.append((len(placed), obj))
        else:
            obj["spec"]["nodeName"] = bind.node
            obj["metadata"]["annotations"].update(bind.annotations)
            engine.state.pods.put(convert(Pod, obj), 0.0)
            placed.append(obj)
            allocated += task.thousandths
        if arrived >= capacity:
            at.setdefault("at_100", 100 * allocated / capacity)
    check(machines, placed, refused if flat else [])
    return {**at, "at_130": 100 * allocated / capacity, "dropped": dropped}


def check(machines: list[Json], placed: list[Json], refused: list[tuple[int, Json]]) -> None:
    """Nothing over, and what was dropped fitted nowhere at that moment: by sums per node and card, from the objects."""
    found = audit(machines, placed, [])
    assert not found, found[:5]
    free = {m["metadata"]["name"]: Free(m) for m in machines}
    done = 0
    for before, obj in refused:
        for other in placed[done:before]:
            free[other["spec"]["nodeName"]].take(other)
        done = before
        wanted = Wanted(obj)
        takers = [name for name, one in free.items() if one.takes(wanted)]
        assert not takers, f"{obj['metadata']['name']} was dropped, and {takers[0]} could take it"


class Wanted:
    """The request of a pod, and the models that it accepts; None: any."""

    def __init__(self, obj: Json) -> None:
        requested = requests(obj)
        self.cpu, self.memory = int(requested["cpu"][:-1]), int(requested["memory"][:-2])
        self.count, self.share = int(requested.get(names.VGPU_NUMBER, 0)), int(requested.get(names.VGPU_MEMORY, 0))
        required = obj["spec"].get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        self.models = required["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] if required else None


class Free:
    """The free resources of one machine, from its objects."""

    def __init__(self, obj: Json) -> None:
        have = obj["status"]["allocatable"]
        self.model = obj["metadata"]["labels"][MODEL]
        self.cpu, self.memory = int(have["cpu"][:-1]), int(have["memory"][:-2])
        register = obj["metadata"]["annotations"].get(names.NODE_VGPU_REGISTER, "")
        self.cards = {entry.split(",")[0]: THOUSANDTHS for entry in register.split(":") if entry}

    def take(self, obj: Json) -> None:
        requested = requests(obj)
        self.cpu, self.memory = self.cpu - int(requested["cpu"][:-1]), self.memory - int(requested["memory"][:-2])
        for container_device in obj["metadata"]["annotations"].get(names.VGPU_IDS, "").replace(";", "").split(":"):
            if container_device:
                self.cards[container_device.split(",")[0]] -= int(container_device.split(",")[2])

    def takes(self, wanted: Wanted) -> bool:
        if self.cpu < wanted.cpu or self.memory < wanted.memory or (wanted.models and self.model not in wanted.models):
            return False
        return sum(left >= wanted.share for left in self.cards.values()) >= wanted.count


def requests(obj: Json) -> dict[str, str]:
    found: dict[str, str] = obj["spec"]["containers"][0]["resources"]["requests"]
    return found


def published(data: Path) -> dict[tuple[str, str], float]:
    """By list and policy, in per cent at 130 %."""
    with (data / "fgd_published_summary.csv").open(encoding="utf-8", newline="") as lines:
        return {(row["pod_list"], row["policy"]): float(row["alloc_pct_at_arrived_130_mean"]) for row in csv.DictReader(lines)}


def summary(runs: Sequence[dict[str, float]]) -> Json:
    """Of one list."""
    found: Json = {key: median([run[key] for run in runs], 2) for key in ("at_100", "at_130", "dropped")}
    means = {f"mean_{key}": round(sum(run[key] for run in runs) / len(runs), 2) for key in ("at_100", "at_130")}
    return {**found, **means}


def figures(result: Json, of: str = "") -> dict[str, float]:
    """The figures that have goals. ``of``: stands before their names."""
    if of.endswith("two-dimensional: "):
        return {f"{of}{pods}, allocated at 100 %": row["mean_at_100"] for pods, row in result.items()}
    values = {f"{of}default, allocated at 130 %": result["default"]["mean_at_130"]} if "default" in result else {}
    if set(result) == set(LISTS):
        values[f"{of}mean of the seven lists"] = sum(row["mean_at_130"] for row in result.values()) / len(LISTS)
    return values


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="the list default, one seed")
    parser.add_argument("data", nargs="?", default=os.environ.get("PUMICE_OPENB"), help="folder of the trace's CSV files")
    parser.add_argument("--lists", default="", help="all of them, of two dimensions three")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--policy", choices=("binpack", "fitted"), help="in place of that of a new cluster")
    parser.add_argument("--two-dimensional", action="store_true", help="memory and cores apart")
    parser.add_argument("--runs", default="", help="a file that keeps each run as it ends, and knows those that it has")
    options = parser.parse_args(argv)
    if not options.data:
        print("openb: not run, for the trace is not ours to ship: name its folder, or set PUMICE_OPENB", file=sys.stderr)
        return 0
    data, flat = Path(options.data), not options.two_dimensional
    every = LISTS if flat else OF_TWO_DIMENSIONS
    lists, seeds = (["default"], 1) if options.quick else (options.lists.split(",") if options.lists else every, options.seeds)
    conf, of, name = SCHEDULER_CONF, "" if flat else "two-dimensional: ", "openb" if flat else "openb_2d"
    if options.policy:
        conf, of, name = with_policy(conf, options.policy), f"{options.policy}: {of}", f"{name}_{options.policy}"
    others, kept = published(data), KeptRuns(options.runs)
    found: dict[str, list[dict[str, float]]] = {pods: [] for pods in lists}
    for seed in range(42, 42 + seeds):  # outside the lists: what is cut off has as many runs of each
        for pods in lists:
            tasks = tasks_in(data, pods, flat=flat)
            play = partial(fill, conf, machines_of(data, seed, flat=flat), tasks, seed, flat=flat)
            found[pods].append(kept.of(f"{name} {pods} {seed}", play))
            print(seed, pods, found[pods][-1], file=sys.stderr)
    result: Json = {pods: summary(runs) for pods, runs in found.items()}
    values = figures(result, of) if flat or not options.policy else {}
    for pods, row in result.items() if flat else ():
        row["published_at_130"] = {policy: value for (listed, policy), value in others.items() if listed == pods}
    return conclude(name, result, goals_of("openb", values), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
