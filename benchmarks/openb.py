"""openb: a real cluster filled task by task, one cycle each, with the configuration of a new cluster.

    python -m benchmarks.openb DATA [--quick] [--save] [--lists default,cpu250] [--seeds 3] [--policy lookahead]

DATA (or PUMICE_OPENB) is the folder with the trace's CSV files and the published results: ``data/csv`` of
github.com/hkust-adsl/kubernetes-scheduler-simulator, and ``fgd_published_summary.csv``, the means per task list and policy. 1,213
nodes with 6,212 GPUs; tasks come in random order until they have asked for 130 % of the GPUs, one that fits nowhere is dropped,
nobody leaves. What is allocated of all GPU thousandths then, and at 100 %, is compared with the published policies. Ties go by
name, and names are dealt out anew for each seed. The memory of a card stands for its thousandths. Each run checks from the
objects that nothing is over and that no task was dropped which some node could take. Without DATA nothing is run.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from kit.objects import node, pod, queue
from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from pumice.audit.auditor import audit
from pumice.effects.vocabulary import Bind
from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue
from pumice_lab.first_objects import SCHEDULER_CONF

MINUTES = 8
LISTS = ("default", "gpushare40", "gpushare100", "multigpu20", "multigpu50", "gpuspec33", "cpu250")
TUNE = 1.30
MODEL = "example.com/model"
SHIPPED = "SchedulePolicy: binpack"
Json = dict[str, Any]
Row = dict[str, str]


def table(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def demand(task: Row) -> int:
    """Thousandths of GPUs."""
    return int(task["num_gpu"]) * int(task["gpu_milli"])


def arrivals(tasks: list[Row], capacity: int, rng: np.random.Generator) -> list[Row]:
    """All tasks in random order, filled up by random ones, or thinned, to the target."""
    order = [tasks[i] for i in rng.permutation(len(tasks))]
    asked, target = sum(map(demand, order)), TUNE * capacity
    while asked > target:
        asked -= demand(order.pop(int(rng.integers(len(order)))))
    while True:
        more = tasks[int(rng.integers(len(tasks)))]
        if asked + demand(more) > target:
            return order
        order.append(more)
        asked += demand(more)


def machine(row: Row, name: str) -> Json:
    return node(name, cards=int(row["gpu"]), mib=1000, shares=1000, cpu=f"{row['cpu_milli']}m", memory=f"{row['memory_mib']}Mi",
                pods=1000, labels={MODEL: row["model"]})  # fmt: skip


def request(number: int, task: Row) -> Json:
    shape: Json = {}
    if task.get("gpu_spec"):
        wanted = {"key": MODEL, "operator": "In", "values": task["gpu_spec"].split("|")}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
        shape["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if int(task["num_gpu"]):
        shape |= {"cards": int(task["num_gpu"]), "mib": int(task["gpu_milli"])}
    return pod(f"p{number}", cpu=f"{task['cpu_milli']}m", memory=f"{task['memory_mib']}Mi", **shape)


def fill(conf: str, nodes: list[Row], tasks: list[Row], seed: int) -> dict[str, float]:
    """Per cent of the GPU thousandths that are allocated when 100 and 130 % have arrived."""
    engine = Engine(parse_scheduler_conf(conf))
    engine.state.groups.put_queue(convert(Queue, queue("default")))
    places = np.random.default_rng(seed + 900).permutation(len(nodes))
    machines = [machine(row, f"n{places[i]:04d}") for i, row in enumerate(nodes)]
    for obj in machines:
        engine.state.bookings.put_node(convert(Node, obj))
    capacity = 1000 * sum(int(row["gpu"]) for row in nodes)
    arrived = allocated = dropped = 0
    at: dict[str, float] = {}
    placed: list[Json] = []
    refused: list[tuple[int, Json]] = []
    for number, task in enumerate(arrivals(tasks, capacity, np.random.default_rng(seed))):
        obj = request(number, task)
        value = convert(Pod, obj)
        engine.state.pods.put(value, 0.0)
        bind = next((e for e in engine.cycle(1000.0 + number).effects if isinstance(e, Bind)), None)
        arrived += demand(task)
        if bind is None:
            engine.state.pods.drop(value)
            dropped += 1
            refused.append((len(placed), obj))
        else:
            obj["spec"]["nodeName"] = bind.node
            obj["metadata"]["annotations"].update(bind.annotations)
            engine.state.pods.put(convert(Pod, obj), 0.0)
            placed.append(obj)
            allocated += demand(task)
        if arrived >= capacity:
            at.setdefault("at_100", 100 * allocated / capacity)
    check(machines, placed, refused)
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
        takers = [name for name, one in free.items() if one.takes(obj)]
        assert not takers, f"{obj['metadata']['name']} was dropped, and {takers[0]} could take it"


class Free:
    """The free resources of one machine, from its objects."""

    def __init__(self, obj: Json) -> None:
        have = obj["status"]["allocatable"]
        self.model = obj["metadata"]["labels"][MODEL]
        self.cpu, self.memory = int(have["cpu"][:-1]), int(have["memory"][:-2])
        register = obj["metadata"]["annotations"].get("volcano.sh/node-vgpu-register", "")
        self.cards = {entry.split(",")[0]: 1000 for entry in register.split(":") if entry}

    def take(self, obj: Json) -> None:
        asked = requests(obj)
        self.cpu, self.memory = self.cpu - int(asked["cpu"][:-1]), self.memory - int(asked["memory"][:-2])
        for container_device in obj["metadata"]["annotations"].get("volcano.sh/vgpu-ids-new", "").replace(";", "").split(":"):
            if container_device:
                self.cards[container_device.split(",")[0]] -= int(container_device.split(",")[2])

    def takes(self, obj: Json) -> bool:
        asked = requests(obj)
        node_affinity = obj["spec"].get("affinity", {}).get("nodeAffinity", {})
        required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required and self.model not in required["nodeSelectorTerms"][0]["matchExpressions"][0]["values"]:
            return False
        count, share = int(asked.get("volcano.sh/vgpu-number", 0)), int(asked.get("volcano.sh/vgpu-memory", 0))
        room = self.cpu >= int(asked["cpu"][:-1]) and self.memory >= int(asked["memory"][:-2])
        return room and sum(left >= share for left in self.cards.values()) >= count


def requests(obj: Json) -> dict[str, str]:
    found: dict[str, str] = obj["spec"]["containers"][0]["resources"]["requests"]
    return found


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="the list default, one seed")
    parser.add_argument("data", nargs="?", default=os.environ.get("PUMICE_OPENB"), help="folder of the trace's CSV files")
    parser.add_argument("--lists", default=",".join(LISTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--policy", choices=("lookahead",), help="in place of that of a new cluster")
    options = parser.parse_args(argv)
    if not options.data:
        print("openb: not run, for the trace is not ours to ship: name its folder, or set PUMICE_OPENB", file=sys.stderr)
        return 0
    data = Path(options.data)
    lists, seeds = (["default"], 1) if options.quick else (options.lists.split(","), options.seeds)
    conf, of, name = SCHEDULER_CONF, "", "openb"
    if options.policy:
        conf = conf.replace(SHIPPED, f"SchedulePolicy: {options.policy}")
        of, name = f"{options.policy}: ", f"openb_{options.policy}"
        assert conf != SCHEDULER_CONF
    nodes = table(data / "openb_node_list_gpu_node.csv")
    published = {(row["pod_list"], row["policy"]): row for row in table(data / "fgd_published_summary.csv")}
    result: dict[str, Any] = {}
    for pods in lists:
        tasks = table(data / f"openb_pod_list_{pods}.csv")
        runs = [fill(conf, nodes, tasks, 42 + seed) for seed in range(seeds)]
        result[pods] = {key: median([run[key] for run in runs], 2) for key in ("at_100", "at_130", "dropped")}
        result[pods]["mean_at_130"] = round(sum(run["at_130"] for run in runs) / seeds, 2)
        result[pods]["published_at_130"] = {policy: float(row["alloc_pct_at_arrived_130_mean"])
                                            for (listed, policy), row in published.items() if listed == pods}  # fmt: skip
        print(pods, result[pods]["mean_at_130"], file=sys.stderr)
    means = [result[pods]["mean_at_130"] for pods in lists]
    values: dict[str, float] = {}
    if "default" in lists:
        values[f"{of}default, allocated at 130 %"] = result["default"]["mean_at_130"]
    if set(lists) == set(LISTS):
        values[f"{of}mean of the seven lists"] = sum(means) / len(means)
    return conclude(name, result, goals_of("openb", values), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
