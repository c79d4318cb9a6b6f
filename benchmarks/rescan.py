"""A cluster of vGPU nodes in process, the pods that fill it, and the plain rescan of it that placing is measured against."""

from __future__ import annotations

import random
import time
from typing import Any

from kit.objects import node, pod, queue
from kit.scheduler_confs import conf, sharing

from pumice.devices.protocol import Fit
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.ledger import Placement
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue

CARDS, MIB, SHARES = 8, 81920, 10
DEVICES = conf("predicates", sharing("VGPU", SchedulePolicy="binpack"))
EVERYTHING = conf(
    ["priority", "gang", "conformance"],
    ["overcommit", "drf", sharing("VGPU", SchedulePolicy="binpack"), "predicates", "proportion", "nodeorder", "binpack"],
)
Json = dict[str, Any]


def nodes(count: int) -> list[Json]:
    return [node(f"n{i:05d}", cards=CARDS, mib=MIB, shares=SHARES, cpu="96", memory="768Gi") for i in range(count)]


def shapes(count: int) -> list[tuple[int, int]]:
    """(MiB, cores): 20 that repeat, or all different."""
    return [(2048 + (18432 * i) // max(1, count - 1), 10 + (i * 7) % 21) for i in range(count)]


def pods(count: int, kinds: int, *, gangs: bool = False) -> list[Json]:
    kinds_of = shapes(kinds)
    rng = random.Random(7)
    made = []
    for i in range(count):
        mib, cores = kinds_of[i % kinds if kinds < count else i]
        name = f"g{i // 20}" if gangs and i % 20 < 10 else None
        made.append(pod(f"p{i}", mib=mib, cores=cores, cards=1, cpu="1", memory="4Gi", group=name,
                        queue=f"q{i % 4}" if gangs else None))  # fmt: skip
    rng.shuffle(made)
    return made


def engine_with(conf: str, count: int) -> tuple[Engine, list[Json]]:
    engine = Engine(parse_scheduler_conf(conf))
    objects = nodes(count)
    for obj in objects:
        engine.state.bookings.put_node(convert(Node, obj))
    for name in ("default", "q0", "q1", "q2", "q3"):
        engine.state.groups.put_queue(convert(Queue, queue(name)))
    return engine, objects


def reference(node_count: int, seconds: float = 3.0) -> float:
    """Pods per CPU second of the plain rescan: every node asked for every pod."""
    engine, _ = engine_with(DEVICES, node_count)
    for obj in pods(200, 20):
        engine.state.pods.put(convert(Pod, obj))
    ledger = engine.state.ledger
    device_table = ledger.device_tables["nvidia-vgpu"]
    done, began = 0, time.process_time()
    for task in engine.state.tasks.values():
        best: Fit | None = None
        for name in device_table.nodes:
            fit = device_table.device_type.fit(task.cls.device_requests[0], device_table.view(name))
            if isinstance(fit, Fit) and (best is None or fit.score > best.score):
                best = fit
        assert best is not None
        ledger.reserve(Placement(task.uid, best.allocation.node, task.request, (best.allocation,)))
        done += 1
        if time.process_time() - began > seconds:
            break
    return done / (time.process_time() - began)
