"""MIG memory in use through the engine's own path, with the configuration that a new cluster is given.

100 cards in 25 nodes; Poisson arrivals of slot-sized requests in four mixes, lognormal lives, blocked requests are lost. Every
choice is the placer's and every booking the ledger's. Per model and load the mean memory in use (requested memory over all that
the cards can give, per cent, after a warm-up) with plain first fit (no policy, ``listed``), with upstream's slots under binpack,
with the defaults, and with slices at any place; and which part of the way from first fit to any place the defaults close.
``python -m benchmarks.mig_memory [--quick] [--save]``
"""

from __future__ import annotations

import heapq
import math
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from kit.scheduler_confs import conf, sharing

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.device_world import card, limits, pod_of, vgpu_node
from kit.results import arguments, save

from benchmarks.mig_streams import MIXES
from benchmarks.report import SHORT
from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.ledger import Holding
from pumice.wire import names, volcano
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.objects import convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue
from pumice_lab.first_objects import SCHEDULER_CONF

MODELS = {"A100-40": ("NVIDIA-NVIDIA A100-SXM4-40GB", 40960), "A100-80": ("NVIDIA-NVIDIA A100-SXM4-80GB", 81920),
          "H100": ("NVIDIA-NVIDIA H100 80GB HBM3", 81559), "A30": ("NVIDIA-NVIDIA A30", 24576)}  # fmt: skip
LOADS = (1.0, 1.2)
NODES, CARDS_EACH = 25, 4
FIRST_FIT, UPSTREAM, DEFAULT, ANYWHERE = "first fit", "listed, binpack", "default", "any place"


def _with(argument: str, *, policy: str = "lookahead") -> str:
    """The shipped configuration with another card policy and one argument more of deviceshare."""
    shipped = "deviceshare.SchedulePolicy: lookahead"
    assert shipped in SCHEDULER_CONF
    return SCHEDULER_CONF.replace(shipped, f"deviceshare.SchedulePolicy: {policy}\n      {argument}")


RULES = {
    FIRST_FIT: conf(sharing("VGPU", MigPolicy="listed"), actions="allocate"),
    UPSTREAM: _with("pumice.MigPolicy: listed", policy="binpack"),
    DEFAULT: SCHEDULER_CONF,
    ANYWHERE: _with("pumice.MigOffGroup: true"),
}
ENOUGH = 55
"""Per cent of the way from plain first fit to any place that the defaults must close in every cell."""


def fleet(rule: str, kind: str, memory: int) -> Engine:
    engine = Engine(parse_scheduler_conf(RULES[rule]))
    engine.state.groups.put_queue(convert(Queue, volcano.default_queue("default", reclaimable=True)))
    for number in range(NODES):
        cards = (card(f"GPU-{number:02}-{i}", memory, 10, kind, mode="mig", places=True) for i in range(CARDS_EACH))
        node = vgpu_node(f"n{number:02}", *cards)
        node.status.allocatable |= {"pods": 500, "cpu": 64, "memory": "256Gi"}
        engine.state.bookings.put_node(node)
    return engine


def run(rule: str, model: str, load: float, seed: int, arrivals: int) -> float:
    """Mean memory in use over the last three quarters of the arrivals, in per cent."""
    kind, memory = MODELS[model]
    geometry = Catalogue(NvidiaConfig()).of(kind)
    assert geometry is not None
    sizes = geometry.sizes
    mix = [*MIXES.values()][seed % len(MIXES)]
    weights = (*mix[: len(sizes) - 1], sum(mix[len(sizes) - 1 :]))
    engine = fleet(rule, kind, memory)
    classes = {}
    for size in sizes:
        pod = pod_of(f"s{size}", limits(1, size), annotations={names.VGPU_MODE: "mig"})
        classes[size] = engine.state.classes.of(pod)
    rng = random.Random(seed)
    whole = geometry.largest * NODES * CARDS_EACH
    rate = load * whole / sum(p * s for p, s in zip(weights, sizes, strict=True))  # lives have mean 1
    terminating: list[tuple[float, str, int]] = []
    now = held = area = begun = 0.0
    for number in range(arrivals):
        arrival = now + rng.expovariate(rate)
        size = rng.choices(sizes, weights)[0]
        life = rng.lognormvariate(-0.5, 1.0)
        while terminating and terminating[0][0] <= arrival:
            at, uid, freed = heapq.heappop(terminating)
            area += held * (at - now)
            now, held = at, held - freed
            engine.state.ledger.release(uid)
        area += held * (arrival - now)
        now = arrival
        if number == arrivals // 4:
            area, begun = 0.0, now
        choice = engine.placer.choose(classes[size])
        if choice is not None:
            uid = f"p{number}"
            engine.state.ledger.reserve(Holding(uid, choice.node, classes[size].request, choice.allocations))
            held += size
            heapq.heappush(terminating, (now + life, uid, size))
    return 100 * area / (now - begun) / whole


def closed(cell: dict[str, float]) -> float:
    """Per cent of the way from first fit to any place that the defaults close."""
    return 100 * (cell[DEFAULT] - cell[FIRST_FIT]) / (cell[ANYWHERE] - cell[FIRST_FIT])


def cell(model: str, load: float, seeds: int, arrivals: int) -> dict[str, float]:
    """Mean per rule."""
    return {rule: math.fsum(run(rule, model, load, seed, arrivals) for seed in range(seeds)) / seeds for rule in RULES}


def main() -> int:
    options = arguments(__doc__, quick="two seeds, few arrivals and the highest load")
    chosen = options.parse_args()
    seeds, arrivals, loads = (2, 500, LOADS[-1:]) if chosen.quick else (10, 5_000, LOADS)
    keys = [(model, load) for model in MODELS for load in loads]
    with ProcessPoolExecutor(2) as pool:
        work = [pool.submit(cell, model, load, seeds, arrivals) for model, load in keys]
        found = {key: future.result() for key, future in zip(keys, work, strict=True)}
    print(f"memory in use, per cent; {seeds} seeds, {arrivals} arrivals\n{'':16}" + "".join(f"{rule:>18}" for rule in RULES))
    for (model, load), row in found.items():
        print(f"{model:10}{load:6}" + "".join(f"{row[rule]:18.1f}" for rule in RULES) + f"   closes {closed(row):.0f} %")
    if chosen.save:
        cells = {f"{model} {load}": {**row, "closed": closed(row)} for (model, load), row in found.items()}
        save("mig_memory", {"seeds": seeds, "arrivals": arrivals, "used_percent": cells}, keep=True)
    return SHORT if min(closed(row) for row in found.values()) < ENOUGH else 0


if __name__ == "__main__":
    sys.exit(main())
