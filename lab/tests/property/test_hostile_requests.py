"""Nothing that a namespace's editor sends keeps others waiting: what a request multiplies to is bounded before it is done."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import statistics
import time

import pytest
from kit import pytest_plugin
from kit.seeds import chosen_seed
from lab.tests.property.hostile_requests import CROWD, CROWDS, ROWS, attacked, drawn

SEED = chosen_seed()
LONGEST = 1.5
"""Seconds of the server's own work in one piece, on processors that do nothing else: a second, and half of one for what the
yardstick misses beside others that compute (1.12 s were seen)."""
QUIET = 0.006
"""Seconds of ``yardstick`` there. Beside others that compute, the same work takes up to twice the processor time."""
GROWTH = 1 << 20
"""KiB that the process may grow by."""


DOCUMENT = json.dumps({"items": [{"name": f"n{at}", "values": [*range(20)], "labels": {f"k{key}": "v" * 10 for key in range(10)}}
                                 for at in range(150)]})  # fmt: skip


def yardstick() -> float:
    """Processor time of work that is always the same."""
    begun = time.thread_time()
    for _ in range(3):
        found = json.loads(DOCUMENT)
        sorted((len(str(item)), item["name"]) for item in found["items"])
        json.dumps(found, sort_keys=True)
    return time.thread_time() - begun


def if_quiet(seconds: float) -> float:
    """Return what work that took so long would have taken on processors that do nothing else; only near the limit is it asked."""
    if seconds < LONGEST:
        return seconds
    return seconds * min(1.0, QUIET / statistics.median(yardstick() for _ in range(30)))


async def attack(seed: int, rounds: int) -> dict[str, float]:
    """The longest stretch of work that each kind of request caused. Raises AssertionError for an error of the server's own."""
    rng, longest = random.Random(seed), dict.fromkeys(ROWS, 0.0)
    gc.collect()
    pytest_plugin.FREEZE()  # as `pumice up` does: what the tests before left behind is none of the server's work
    async with attacked(seed) as server:
        for _ in range(rounds):
            for name, row in ROWS.items():
                asked = await asyncio.to_thread(row, rng)
                await asyncio.sleep(0.01)  # what the thread held up is over
                server.longest = 0.0
                code, said = await server.send(asked)
                assert 200 <= code < 500, (name, code, said, asked.method, asked.path, asked.body[:300])
                await asyncio.sleep(0.01)  # what it left to do
                longest[name] = max(longest[name], if_quiet(server.longest))
            asked, server.longest = rng.choice(CROWDS)(rng), 0.0
            codes = await server.crowd(asked, drawn(rng, CROWD, 100))
            assert all(200 <= code < 500 for code in codes), (codes, asked)
            longest["many at once"] = max(longest.get("many at once", 0.0), if_quiet(server.longest))
    return longest


@pytest.mark.timeout(1200)  # ten seconds of the processor, and others may be at work
def test_no_request_of_a_namespaces_editor_keeps_the_others_waiting_for_a_second() -> None:
    print(f"PUMICE_SEED={SEED}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    longest = asyncio.run(attack(SEED, 1))
    assert not {name: seconds for name, seconds in longest.items() if seconds > LONGEST}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_request_of_many_keeps_the_others_waiting_for_a_second() -> None:
    print(f"PUMICE_SEED={SEED}")
    for part in range(20):
        longest = asyncio.run(attack(SEED + part, 3))
        assert not {name: seconds for name, seconds in longest.items() if seconds > LONGEST}, SEED + part
