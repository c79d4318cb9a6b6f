"""BS11, gangs that preempt, and gangs of unlike pods: what it costs to find room for a gang, from 64 pods to 3,000.

    python -m benchmarks.bs11_preempting_gangs [--quick] [--save]

The cluster is that of BS8: full, eight cards and ten running pods on each of 1,000 nodes. A gang comes whose pods take a card
each; cycles of the daemon's length (35 ms) run until all of its pods are nominated and all who go are told, then whoever was
told goes, fifty at a time, and cycles run until the gang is bound. ``sum``: processor time of all those cycles; ``longest``:
the longest of them. Of every gang it is checked that nobody is told before there is room for all of it, that every pod is
promised a place and bound there, and that all who go are less important. Beside it gangs come to an empty cluster no two pods
of which ask for the same: 200 of ten pods to these nodes, and one of 1,000 and one of 3,000 pods to 5,000 nodes; each must be
bound in a single cycle. Time is the processor's, of one engine; no API server takes part.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

from kit.objects import group, node, pod, queue
from kit.results import arguments

from benchmarks.bs8_preempt import CARD, CONF, HIGH, Cluster
from benchmarks.goals import goals_of
from benchmarks.report import conclude
from pumice.effects.vocabulary import Bind, Evict, Nominate, SchedulerEffect
from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import PodGroup, Queue

MINUTES = 1
BUDGET = 0.035
"""Seconds of a cycle, as the daemon's."""
AT_ONCE = 50
"""Pods that go between two cycles."""
MOST_CYCLES = 2000


class Clock:
    """The processor time of cycles."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.now, self.taken = engine, 2000.0, list[float]()

    def cycle(self) -> list[SchedulerEffect]:
        self.now += 0.01
        began = time.process_time()
        effects = self.engine.cycle(self.now, budget=BUDGET, tick=time.process_time).effects
        self.taken.append(time.process_time() - began)
        return effects


def room_for(cluster: Cluster, size: int) -> tuple[float, float]:
    """Seconds of all cycles and of the longest one, from the gang's arrival to its Bindings."""
    clock, state = Clock(cluster.engine), cluster.engine.state
    clock.now = cluster.now + 1
    uids = cluster.gang(f"g{size}", size)
    evicted: list[Evict] = []
    nominated: dict[str, str] = {}
    while not nominated:
        effects = clock.cycle()
        evicted += [effect for effect in effects if isinstance(effect, Evict)]
        nominated |= {effect.uid: effect.node for effect in effects if isinstance(effect, Nominate)}
        assert bool(evicted) == bool(nominated), "nobody is told before there is room for all"
        assert len(clock.taken) < MOST_CYCLES
    assert set(nominated) == set(uids)
    assert all(state.tasks[effect.uid].priority < HIGH for effect in evicted)
    bound: dict[str, str] = {}
    for first in range(0, len(evicted), AT_ONCE):
        for effect in evicted[first : first + AT_ONCE]:
            state.pods.drop(convert(Pod, cluster.shown[effect.uid]))
        bound |= {effect.uid: effect.node for effect in clock.cycle() if isinstance(effect, Bind)}
    assert bound == nominated
    for uid in uids:
        state.pods.drop(convert(Pod, cluster.shown.pop(uid)))
    for effect in evicted:
        cluster.show(cluster.shown[effect.uid])
    cluster.now = clock.now
    clock.cycle()
    return sum(clock.taken), max(clock.taken)


def unlike_gangs(nodes: int, gangs: int, size: int) -> tuple[float, float]:
    """The same for gangs no two pods of which ask for the same, on an empty cluster."""
    engine = Engine(parse_scheduler_conf(CONF))
    engine.state.groups.put_queue(convert(Queue, queue("default")))
    for number in range(nodes):
        engine.state.bookings.put_node(convert(Node, node(f"n{number}", cards=8, mib=CARD, cpu="96", memory="768Gi")))
    clock, bound = Clock(engine), 0
    clock.cycle()
    clock.taken.clear()
    for number in range(gangs):
        made = group(f"u{number}", minimum=size)
        made["status"]["phase"] = "Inqueue"
        engine.state.groups.put_group(convert(PodGroup, made))
        for at in range(size):
            shape: dict[str, Any] = {"cpu": f"{100 + number * size + at}m"}
            engine.state.pods.put(convert(Pod, pod(f"u{number}-{at}", group=f"u{number}", mib=1000, **shape)), clock.now)
    while bound < gangs * size:
        gangs_of_cycle = Counter(effect.gang for effect in clock.cycle() if isinstance(effect, Bind))
        assert set(gangs_of_cycle.values()) <= {size}, "a gang is bound as a whole"
        bound += gangs_of_cycle.total()
        assert len(clock.taken) < MOST_CYCLES
    return sum(clock.taken), max(clock.taken)


def main(argv: list[str] | None = None) -> int:
    options = arguments(__doc__, quick="a twentieth of the nodes and of the larger gangs").parse_args(argv)
    nodes, sizes = (50, (64, 128)) if options.quick else (1000, (64, 256, 700, 2000))
    cluster = Cluster(nodes)
    warm = [cluster.arrive("warm", mib=CARD)]  # the arrays of who is where are made once in a scheduler's life
    cluster.claim(warm)
    cluster.leave(warm)
    figures: dict[str, float] = {}
    for size in sizes:
        whole, longest = room_for(cluster, size)
        figures |= {f"a gang of {size:,}": whole, f"a gang of {size:,}: longest cycle": longest * 1000}
    unlike = ((nodes, 20, 10), (nodes, 1, 150)) if options.quick else ((nodes, 200, 10), (5000, 1, 1000), (5000, 1, 3000))
    for among, gangs, size in unlike:
        what = f"{gangs} unlike gangs of {size}" if gangs > 1 else f"an unlike gang of {size:,}"
        whole, longest = unlike_gangs(among, gangs, size)
        figures |= {what: whole, f"{what}: longest cycle": longest * 1000}
    result = {what: {"ms" if what.endswith("cycle") else "s": value} for what, value in figures.items()}
    return conclude("bs11_preempting_gangs", result, goals_of("bs11_preempting_gangs", figures), keep=options.save,
                    quick=options.quick)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
