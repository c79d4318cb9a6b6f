"""BS8, making room: a full cluster, and more important pods that want in.

    python -m benchmarks.bs8_preempt [--quick] [--save]

Every node has eight cards and ten running pods of priorities 0 to 3, which leave no card free: six have a card each, four half
of one. A cycle is measured from the pod's arrival to the plan that evicts for it: the first pod of a class (no two of which ask
for the same), the next ones of a class, and a gang. Of every plan it is checked that it promises what was asked, that nobody goes
who could stay, and that all who go are less important. Time is the processor's, of one engine; no API server takes part.
"""

from __future__ import annotations

import gc
import sys
import time
from random import Random
from statistics import median
from typing import Any

from kit.objects import group, node, pod, priority_class, queue
from kit.results import arguments
from kit.scheduler_confs import conf, sharing

from benchmarks.goals import goals_of
from benchmarks.report import conclude
from pumice.effects.vocabulary import Bind, Evict, Nominate
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.nominations import EVICT_AGAIN
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import PodGroup, PriorityClass, Queue

MINUTES = 2
CARD = 81920
HIGH = 1000
CONF = conf(["priority", {"gang": {"enablePreemptable": False}}, "conformance"],
            [{"drf": {"enablePreemptable": False}}, "predicates", sharing("VGPU", SchedulePolicy="binpack"), "nodeorder",
             "binpack"],
            actions="enqueue, allocate, preempt, backfill")
Json = dict[str, Any]


class Cluster:
    """Full of running pods; the pods that come are more important than all of them."""

    def __init__(self, nodes: int) -> None:
        self.rng = Random(8)
        self.engine = Engine(parse_scheduler_conf(CONF))
        self.now = 1000.0
        state = self.engine.state
        state.groups.put_queue(convert(Queue, queue("default")))
        state.groups.put_priority_class(convert(PriorityClass, priority_class("high", HIGH)))
        self.shown: dict[str, Json] = {}
        for number in range(nodes):
            state.bookings.put_node(convert(Node, node(f"n{number}", cards=8, mib=CARD, cpu="96", memory="768Gi")))
            self._fill(f"n{number}")
        self.cycle()
        gc.collect()
        gc.freeze()

    def _fill(self, name: str) -> None:
        for place in range(10):
            card, mib = (place, CARD) if place < 6 else (6 + (place - 6) // 2, CARD // 2)
            made = pod(
                f"{name}-{place}", mib=mib, cpu=f"{self.rng.randint(1, 8)}", priority=self.rng.randrange(4), nodeName=name
            )
            ids = f"GPU-{name}-{card},NVIDIA,{mib},0:"
            made["metadata"]["annotations"] |= {
                "volcano.sh/vgpu-node": name, "volcano.sh/vgpu-ids-new": ids, "volcano.sh/devices-to-allocate": ids,
            }  # fmt: skip
            made["status"]["phase"] = "Running"
            self.show(made)

    def show(self, made: Json) -> str:
        uid = str(made["metadata"]["uid"])
        self.shown[uid] = made
        self.engine.state.pods.put(convert(Pod, made), self.now)
        return uid

    def arrive(self, name: str, **shape: Any) -> str:
        return self.show(pod(name, priority=HIGH, **shape))

    def cycle(self) -> tuple[float, list[Evict], list[Nominate]]:
        """Seconds of the processor in a cycle, who goes and who is promised a place."""
        self.now += 1
        began = time.process_time()
        effects = self.engine.cycle(self.now).effects
        taken = time.process_time() - began
        assert not [effect for effect in effects if isinstance(effect, Bind)], "no card is free"
        return taken, [e for e in effects if isinstance(e, Evict)], [e for e in effects if isinstance(e, Nominate) and e.node]

    def claim(self, uids: list[str]) -> float:
        """Milliseconds of the cycle that makes room for these pods; its plan is checked."""
        taken, gone, nominated = self.cycle()
        assert {effect.uid for effect in nominated} == set(uids), "every one is promised a place"
        self._check(gone, [self.engine.state.tasks[uid] for uid in uids])
        return taken * 1000

    def _check(self, gone: list[Evict], claimants: list[Task]) -> None:
        """Without any one of those who go, the pods that are promised its node do not fit."""
        assert gone
        state, placer = self.engine.state, self.engine.placer
        reported = {eviction.receipt.uid: eviction.receipt for eviction in state.terminating.unanswered}
        by_node: dict[str, list[Task]] = {}
        for task in claimants:
            by_node.setdefault(task.node, []).append(task)
        for effect in self.rng.sample(gone, min(8, len(gone))):
            victim = state.tasks[effect.uid]
            assert victim.priority < HIGH
            there = by_node[victim.node]
            kept = {task.uid: state.ledger.pipelined[task.uid] for task in there}
            for uid in kept:
                state.ledger.unpipeline(uid)
            state.ledger.undo(reported[effect.uid])
            fits = 0
            for task in there:
                choice = placer.choose_future(task.cls, victim.node)
                fits += choice is not None
                if choice is not None:
                    kept[task.uid].allocations = choice.allocations
                    state.ledger.pipeline(kept[task.uid])
            assert fits < len(there), f"{effect.name} goes in vain"
            for uid in kept:
                state.ledger.unpipeline(uid)
            state.ledger.terminate(effect.uid)
            for task in there:
                choice = placer.choose_future(task.cls, victim.node)
                assert choice is not None
                kept[task.uid].allocations = choice.allocations
                state.ledger.pipeline(kept[task.uid])
                state.ledger.keep_nomination(task.uid)

    def gang(self, name: str, size: int) -> list[str]:
        made = group(name, minimum=size, priority_class="high")
        made["status"]["phase"] = "Inqueue"
        self.engine.state.groups.put_group(convert(PodGroup, made))
        return [self.show(pod(f"{name}-w-{i}", group=name, mib=CARD, priority=HIGH)) for i in range(size)]

    def leave(self, uids: list[str]) -> None:
        """The pods that wait go, and whoever went for them: the cluster is full again."""
        state = self.engine.state
        gone = [eviction.receipt.uid for eviction in state.terminating.unanswered]
        for uid in uids:
            state.pods.drop(convert(Pod, self.shown.pop(uid)))
        for uid in gone:
            state.terminating.refused(uid, self.now)
        self.now += EVICT_AGAIN.longest  # they were told in vain; then they may be told again
        self.cycle()


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


SHAPES: tuple[Json, ...] = (
    {"mib": CARD}, {"cards": 2, "mib": CARD}, {"mib": CARD // 2}, {"cards": 4, "mib": CARD}, {"mib": 60000},
)  # fmt: skip


def measure(nodes: int, classes: int, *, gangs: int) -> dict[str, float]:
    cluster = Cluster(nodes)
    warm = [cluster.arrive("warm", mib=CARD)]  # the arrays of who is where are made once in a scheduler's life
    cluster.claim(warm)
    cluster.leave(warm)
    first: list[float] = []
    following: list[float] = []
    for number in range(classes):
        shape = {**SHAPES[number % len(SHAPES)], "cpu": f"{number + 10}m"}
        uids = [cluster.arrive(f"first-{number}", **shape)]
        first.append(cluster.claim(uids))
        for more in range(3):
            uids.append(cluster.arrive(f"next-{number}-{more}", **shape))
            following.append(cluster.claim(uids[-1:]))
        cluster.leave(uids)
    found = {"first_p50_ms": median(first), "first_p99_ms": percentile(first, 0.99), "next_p50_ms": median(following),
             "next_p99_ms": percentile(following, 0.99)}  # fmt: skip
    taken = []
    for number in range(gangs):
        uids = cluster.gang(f"g{number}", 64)
        taken.append(cluster.claim(uids))
        cluster.leave(uids)
    if taken:
        found["gang_of_64_ms"] = max(taken)
    gc.unfreeze()
    return found


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="a tenth of the nodes and classes")
    options = parser.parse_args(argv)
    part = 10 if options.quick else 1
    small, large = measure(1000 // part, 200 // part, gangs=3), measure(5000 // part, 100 // part, gangs=0)
    result = {"1,000 nodes": small, "5,000 nodes": large}
    goals = goals_of("bs8_preempt", {
        "1,000 nodes: first pod of a class p99": small["first_p99_ms"], "1,000 nodes: next pod p99": small["next_p99_ms"],
        "1,000 nodes: a gang of 64": small["gang_of_64_ms"], "5,000 nodes: first pod of a class p99": large["first_p99_ms"],
    })  # fmt: skip
    return conclude("bs8_preempt", result, goals, keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
