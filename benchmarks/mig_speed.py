"""How quickly a MIG pod finds its slot on 1,000 cards, and how quickly a refusal on 5,000 nodes is explained.

The first pod of a class looks at every card; later ones only at the rows that changed.
``python -m benchmarks.mig_speed [--quick]``
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kit.scheduler_confs import conf, sharing

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.device_world import A100, V100, card, limits, pod_of, vgpu_node
from kit.results import arguments, save

from pumice.devices.explain import changes
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.explain import explain
from pumice.scheduler.explaining.what_if import EngineWhatIf
from pumice.scheduler.state.ledger import Placement
from pumice.wire import names, volcano
from pumice.wire.objects import Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue

CONF = conf("gang", "predicates", sharing("VGPU", SchedulePolicy="binpack", MigPolicy="%s", MigOffGroup=True),
            actions="allocate")


def engine(mig_policy: str) -> Engine:
    made = Engine(parse_scheduler_conf(CONF % mig_policy))
    made.state.groups.put_queue(convert(Queue, volcano.default_queue("default", reclaimable=True)))
    return made


def put_nodes(made: Engine, nodes: int, memory: int, kind: str, mode: str, *, places: bool = False) -> None:
    for number in range(nodes):
        cards = (card(f"GPU-{number}-{i}", memory, 10, kind, mode=mode, places=places) for i in range(8))
        node = vgpu_node(f"n{number}", *cards)
        node.status.allocatable |= {"pods": 500}
        made.state.bookings.put_node(node)


def pending(name: str, **wanted: Any) -> Pod:
    pod = pod_of(name, limits(**wanted))
    pod.spec.scheduler_name, pod.status.phase = "volcano", "Pending"
    return pod


def place(made: Engine, pod: Pod) -> float:
    """Seconds of the choice alone; the pod is booked afterwards."""
    cls = made.state.classes.of(pod)
    begin = time.perf_counter()
    choice = made.placer.choose(cls)
    spent = time.perf_counter() - begin
    assert choice is not None
    made.state.ledger.reserve(Placement(pod.metadata.uid, choice.node, cls.request, choice.allocations))
    return spent


def mig(mig_policy: str, nodes: int, *, places: bool = False) -> dict[str, float]:
    """Milliseconds on nodes of eight A100-40GB: the first pod of a class on a half-filled fleet, and those after it.
    ``places``: slices may lie outside the groups."""
    made = engine(mig_policy)
    put_nodes(made, nodes, 40960, A100, "mig", places=places)
    rng = random.Random(1)
    for number in range(48 * nodes // 5):
        place(made, pending(f"fill{number}", number=1, memory=rng.choice((4000, 9000, 18000))))
    first, later = [], []
    for sample in range(20):
        first.append(place(made, pending(f"s{sample}", number=1, memory=4100 + sample)))
        later += [place(made, pending(f"s{sample}-{i}", number=1, memory=4100 + sample)) for i in range(10)]
    return {"first": 1e3 * statistics.median(first), "later": 1e3 * statistics.median(later)}


def full_cluster(nodes: int) -> Engine:
    """Eight V100 a node, each with two pods that leave too little for the question; no two nodes alike."""
    made = engine("listed")
    put_nodes(made, nodes, 16384, V100, "hami-core")
    rng = random.Random(2)
    for number in range(nodes):
        amounts = [(rng.randint(4000, 6500), rng.randint(5, 40)) for _ in range(8)]
        ids = ";".join(f"GPU-{number}-{i},NVIDIA,{memory},{cores}:" for i, (memory, cores) in enumerate(amounts))
        for half in range(2):
            requested = (limits(1, memory, cores) for memory, cores in amounts)  # a running pod is believed what it asked for
            pod = pod_of(f"b{number}-{half}", *requested, node=f"n{number}", annotations={names.VGPU_IDS: ids})
            pod.status.phase = "Running"
            made.state.pods.put(pod)
    closed = [
        name
        for device_table in made.state.ledger.device_tables.values()
        for name, node in device_table.nodes.items()
        if node.doubts
    ]
    assert not closed, f"cards of {len(closed)} nodes are closed for a doubt: their refusals would be another question"
    return made


def explain_times(nodes: int) -> dict[str, float]:
    made = full_cluster(nodes)
    pod = pending("asked", number=2, memory=12000, cores=20)
    made.state.pods.put(pod)

    def timed(call: Callable[[], object]) -> float:
        made.placer.forget()  # else the second run would repeat what the first one said
        begin = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begin)

    cls = made.state.classes.of(pod)
    reasons = min(timed(lambda: made.placer.why(cls, per_node=True)) for _ in range(3))
    what_if = min(timed(lambda: changes(pod, made.device_types, EngineWhatIf(made))) for _ in range(2))
    whole = min(timed(lambda: explain(made, pod, gates=False)) for _ in range(3))
    return {"reasons": reasons, "changes": what_if, "whole": whole}


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(__doc__, quick="a tenth of the nodes")
    requested = options.parse_args(argv)
    fleet, nodes = (12, 500) if requested.quick else (125, 5000)
    results: dict[str, dict[str, float]] = {}
    for policy in ("listed", "tightest", "expected"):
        results[f"mig_{policy}_ms"] = found = mig(policy, fleet)
        print(f"MIG pod over {8 * fleet:,} cards, {policy:9}:"
              f" first of its class {found['first']:.2f} ms, after {found['later']:.3f} ms")  # fmt: skip
        results[f"mig_{policy}_any_place_ms"] = found = mig(policy, fleet, places=True)
        print(f"  where slices lie anywhere        : first of its class {found['first']:.2f} ms, after {found['later']:.3f} ms")
    results[f"explain_{nodes}_nodes_ms"] = found = explain_times(nodes)
    print(f"explain on {nodes:,} nodes: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in found.items()))
    if requested.save:
        save("mig_speed", results, keep=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
