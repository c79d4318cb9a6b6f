"""The time of an explanation on 5,000 nodes, and its cost to cycles that run beside it.

    python -m benchmarks.explain_cost [--quick] [--save]

Every node has 8 V100 with two pods a card, no two nodes alike; the pod in question fits nowhere. Cycles place and lose small pods
all the while. Blocks of cycles without a question alternate with blocks during which one explanation after the other is worked
out in a child forked off this process, as the scheduler's /explain does. Compared is the median cycle of each block with that
of the block before and after it. Each answer must be the one that was worked out in this process. Needs a second core to itself.
"""

from __future__ import annotations

import gc
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.mig_speed import full_cluster, pending
from benchmarks.report import conclude, median
from pumice.apps.scheduler.forked import fork
from pumice.effects.vocabulary import Bind
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.explain import as_json, explain_known
from pumice.wire.objects import Pod

MINUTES = 3


class Stream:
    """Pods that come and go: each cycle places as many as left before it."""

    def __init__(self, engine: Engine, at_once: int) -> None:
        self.engine, self.at_once = engine, at_once
        self.now, self.serial = 1000.0, 0
        self.rng = random.Random(3)
        self.running: list[Pod] = []

    def cycle(self) -> float:
        """Milliseconds of one cycle, from pods that arrived to decisions; the comings and goings are not counted."""
        state = self.engine.state
        for _ in range(min(self.at_once, max(0, len(self.running) - 500))):
            state.pods.drop(self.running.pop(0))
        for _ in range(self.at_once):
            self.serial += 1
            pod = pending(f"s{self.serial}", number=1, memory=self.rng.choice((100, 200, 300)), cores=1)
            state.pods.put(pod, self.now)
        self.now += 0.1
        begin = time.perf_counter()
        plan = self.engine.cycle(self.now, self.rng)
        spent = 1e3 * (time.perf_counter() - begin)
        bound = [effect for effect in plan.effects if isinstance(effect, Bind)]
        assert len(bound) >= self.at_once, f"{len(bound)} of {self.at_once} pods placed"
        for effect in bound:
            self.engine.bound(effect.uid)
            task = state.tasks[effect.uid]
            self.running.append(Pod(metadata=pending(task.name).metadata))
        return spent


def answer(engine: Engine) -> bytes:
    found = explain_known(engine, "default", "asked", now=5000.0)
    assert found is not None
    return as_json(found)


def essence(text: bytes) -> dict[str, Any]:
    """Return the part of an answer that does not change while small pods come and go."""
    found = json.loads(text)
    return {"nodes": found["nodes"], "fitting": found["fitting"], "changes": sorted(c["kind"] for c in found["changes"]),
            "refused": sorted(m["node"] for m in found["misfits"])}  # fmt: skip


class Question:
    """One explanation in a forked child."""

    def __init__(self, engine: Engine) -> None:
        self.begin = time.perf_counter()
        self.child, self.pipe = fork(lambda: answer(engine))
        self.forked = 1e3 * (time.perf_counter() - self.begin)
        os.set_blocking(self.pipe, False)
        self.text = b""

    def done(self) -> bool:
        try:
            while part := os.read(self.pipe, 1 << 20):
                self.text += part
        except BlockingIOError:
            return False
        os.close(self.pipe)
        assert os.waitpid(self.child, 0)[1] == 0, "the child ended without an answer"
        self.spent = 1e3 * (time.perf_counter() - self.begin)
        return True


def block(stream: Stream, cycles: int) -> float:
    return statistics.median(stream.cycle() for _ in range(cycles))


def block_with_questions(stream: Stream, cycles: int, right: dict[str, Any], told: dict[str, list[float]]) -> float:
    """The same with a question under way all the time."""
    spent: list[float] = []
    while len(spent) < cycles:
        question = Question(stream.engine)
        while not question.done():
            spent.append(stream.cycle())
        assert essence(question.text) == right, "another answer than in this process"
        told["answer_ms"].append(question.spent)
        told["fork_ms"].append(question.forked)
    return statistics.median(spent)


def measure(nodes: int, blocks: int, cycles: int) -> dict[str, Any]:
    engine = full_cluster(nodes)
    engine.state.pods.put(pending("asked", number=2, memory=12000, cores=20), 0.0)
    stream = Stream(engine, at_once=20)
    gc.collect()
    gc.freeze()  # as the scheduler does once it has read the cluster
    for _ in range(60):
        stream.cycle()
    inside = Question(engine)
    while not inside.done():
        time.sleep(0.005)
    right = essence(inside.text)
    told: dict[str, list[float]] = {"answer_ms": [], "fork_ms": []}
    plain, asked = [block(stream, cycles)], []
    for _ in range(blocks):
        asked.append(block_with_questions(stream, cycles, right, told))
        plain.append(block(stream, cycles))
    ratios = [with_ / ((before + after) / 2) for before, with_, after in zip(plain, asked, plain[1:], strict=False)]
    begin = time.perf_counter()
    assert essence(answer(engine)) == right  # last of all: it runs a cycle on the engine
    alone = 1e3 * (time.perf_counter() - begin)
    return {
        "nodes": nodes, "explain_in_process_ms": round(alone, 1), "questions": len(told["answer_ms"]),
        "explain_in_child_ms": median(told["answer_ms"], 1), "fork_ms": median(told["fork_ms"], 2),
        "cycle_ms": median(plain), "cycle_with_questions_ms": median(asked), "ratio": median(ratios),
    }  # fmt: skip


def main() -> int:
    options = arguments(__doc__, quick="300 nodes, two blocks")
    chosen = options.parse_args()
    found = measure(300, 2, 30) if chosen.quick else measure(5000, 15, 100)
    goals = goals_of("explain_cost", {"a pod explained": found["explain_in_process_ms"],
                                      "a cycle beside questions to one without": found["ratio"]["median"]})  # fmt: skip
    return conclude("explain_cost", found, goals, keep=chosen.save, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
