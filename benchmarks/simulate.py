"""The play of `pumice simulate`: 100,000 pods on 1,200 nodes, from named distributions.

    python -m benchmarks.simulate [--large] [--quick] [--save]

1,200 nodes of 8 cards; pods of the mix that the public trace has arrive at 100 a second and fill about two thirds of the cards.
``looking once a second`` is played with ``--period 1s``, ``as the daemon looks`` with a cycle whenever something happens. Each
run checks that the auditor found nothing, that every pod had a place, and that its waits are within the period. ``--large`` plays
1,000,000 pods on 10,000 nodes instead (ten minutes), and keeps them as ``simulate_large``.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from random import Random

from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of
from pumice.cli.simulation_inputs import BEGIN, shipped_conf
from pumice.simulation.changes import added, with_policy
from pumice.simulation.generate import generate
from pumice.simulation.outcome import outcome_of
from pumice.simulation.play import Simulation

MINUTES = 6
FLOW = "pods={pods},shape=mixed,arrival=poisson:{rate}/s,duration=lognormal:60s:0.8"


def play(nodes: int, pods: int, period: float) -> dict[str, float]:
    """Return seconds of wall and of CPU time, and what is allocated at the end."""
    objects, _ = added({}, f"nodes={nodes},model=A100-SXM4-80GB")
    case = ClusterSnapshot(now=BEGIN, scheduler_conf=with_policy(shipped_conf(), "binpack"), objects=objects)
    submissions = generate("--generate", FLOW.format(pods=pods, rate=nodes / 12), Random(1), [])
    simulation = Simulation(engine_of(case), case.now, case.objects, period)
    gc.freeze()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in simulation.play(submissions):
        pass
    took = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    gc.unfreeze()
    found = outcome_of("", simulation, pods, pods)
    assert not found.violations, found.violations[:5]
    assert found.whole.placed == pods, found.whole
    assert found.whole.wait_p99 <= period + 0.5, found.whole
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**took, "resident_mib": resident, "memory_at_the_end": found.end["memory"], "cycles": simulation.cycles}


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="60 nodes, 1,000 pods")
    parser.add_argument("--large", action="store_true", help="1,000,000 pods on 10,000 nodes, and nothing else")
    options = parser.parse_args(argv)
    if options.large:
        large = {key: median([value], 2) for key, value in play(10_000, 1_000_000, 1.0).items()}
        values = {"1,000,000 arrivals on 10,000 nodes": large["seconds"]["median"],
                  "1,000,000 arrivals on 10,000 nodes, memory": large["resident_mib"]["median"]}  # fmt: skip
        return conclude("simulate_large", large, goals_of("simulate", values), keep=options.save)
    nodes, pods = (60, 1_000) if options.quick else (1_200, 100_000)
    result = {name: {key: median([value], 2) for key, value in play(nodes, pods, period).items()}
              for name, period in (("looking once a second", 1.0), ("as the daemon looks", 0.0))}  # fmt: skip
    values = {f"100,000 arrivals on 1,200 nodes, {name}": figures["seconds"]["median"] for name, figures in result.items()}
    goals = [] if options.quick else goals_of("simulate", values)
    return conclude("simulate", result, goals, keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
