"""A thousand queues, for ``decide``: what they cost a cycle that places one pod, beyond one queue, and 1,000 pods in one cycle;
under the root by plugin proportion, and as a tree of four levels by plugin capacity.

Every pod is placed, the root of the queues is told of exactly what all of them hold, and no card is over.
"""

from __future__ import annotations

import gc
import time
from statistics import median
from typing import Any

from kit.objects import node, pod, queue

from pumice.audit.auditor import audit
from pumice.effects.vocabulary import Bind, QueueAllocated
from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue

CARDS = "volcano.sh/vgpu-number"
Json = dict[str, Any]
NODES, RUNNING = 200, 1000


class Cluster:
    """Queues below a root, with a thousand running pods among them."""

    def __init__(self, conf: str, queues: int, *, tree: bool = False) -> None:
        self.engine = Engine(parse_scheduler_conf(conf))
        self.queues, self.pods = queues, list[Json]()
        self.nodes = [node(f"n{i}", cards=8, mib=81920, cpu="96", memory="768Gi") for i in range(NODES)]
        for obj in self.nodes:
            self.engine.state.bookings.put_node(convert(Node, obj))
        for obj in _tree(queues) if tree else _flat(queues):
            self.engine.state.groups.put_queue(convert(Queue, obj))
        self.reported = ""
        for i in range(RUNNING):
            self.arrive(f"running-{i}", i, mib=None, nodeName=f"n{i % NODES}")
        self.cycle(0)

    def arrive(self, name: str, number: int, mib: int | None = 4096, **spec: Any) -> None:
        made = pod(name, mib=mib, cpu="100m", queue=f"q{number % self.queues}", **spec)
        self.pods.append(made)
        self.engine.state.pods.put(convert(Pod, made), 1.0)

    def cycle(self, expected: int) -> float:
        """Seconds of one cycle that must place so many pods."""
        began = time.perf_counter()
        effects = self.engine.cycle(2.0).effects
        taken = time.perf_counter() - began
        bindings = {effect.uid: effect for effect in effects if isinstance(effect, Bind)}
        assert len(bindings) == expected, f"{len(bindings)} of {expected} placed"
        for obj in self.pods[len(self.pods) - expected:]:
            obj["spec"]["nodeName"] = bindings[obj["metadata"]["uid"]].node
            obj["metadata"]["annotations"].update(bindings[obj["metadata"]["uid"]].annotations)
        self.reported = next(
            (e.allocated["cpu"] for e in effects if isinstance(e, QueueAllocated) and e.name == "root"), self.reported
        )
        return taken

    def check(self) -> None:
        found = audit(self.nodes, self.pods, [])
        assert not found, found[:5]
        thousandths = int(self.reported[:-1]) if self.reported.endswith("m") else int(self.reported) * 1000
        assert thousandths == 100 * len(self.pods), (self.reported, len(self.pods))


def _flat(queues: int) -> list[Json]:
    return [queue("root"), *(queue(f"q{i}", parent="root") for i in range(queues))]


def _tree(queues: int) -> list[Json]:
    """Ten divisions of ten departments each, with the queues below them: each deserves its part of the cards."""
    share = NODES * 8
    found = [queue("root")]
    for i in range(min(10, queues)):
        found.append(queue(f"division{i}", parent="root", deserved={CARDS: str(share // 10)}))
        for j in range(min(10, queues)):
            found.append(queue(f"department{i}-{j}", parent=f"division{i}", deserved={CARDS: str(share // 100)}))
    for i in range(queues):
        parent = f"department{i % 10 % queues}-{i // 10 % 10 % queues}"
        found.append(queue(f"q{i}", parent=parent, deserved={CARDS: "1"}, guarantee={"cpu": "100m"}))
    return found


def one_pod_a_cycle(conf: str, queues: int, cycles: int = 60, *, tree: bool = False) -> float:
    """The usual length of a cycle, in milliseconds."""
    cluster = Cluster(conf, queues, tree=tree)
    taken = []
    gc.collect()
    gc.freeze()
    for i in range(cycles):
        cluster.arrive(f"p{i}", i * 7)
        taken.append(cluster.cycle(1))
    gc.unfreeze()
    cluster.check()
    return median(taken[cycles // 6:]) * 1000


def run(conf: str) -> dict[str, float]:
    """Milliseconds: what 1,000 queues add to a cycle that places one pod; a cycle that places a pod of each of them."""
    nested = conf.replace("- name: proportion", "- name: capacity\n    enableHierarchy: true")
    found = {}
    for tree, text, ending in ((False, conf, ""), (True, nested, "_tree")):
        cluster = Cluster(text, 1000, tree=tree)
        for i in range(1000):
            cluster.arrive(f"p{i}", i)
        found[f"thousand_pods{ending}_ms"] = cluster.cycle(1000) * 1000
        cluster.check()
        above = one_pod_a_cycle(text, 1000, tree=tree) - one_pod_a_cycle(text, 1, tree=tree)
        found[f"above_one_queue{ending}_ms"] = above
    return found
