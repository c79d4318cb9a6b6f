"""What the scheduler's state keeps of a pod stands in eight places, and a pod's events change nothing else of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from kit.engine_world import World
from kit.objects import group, node, pod

from pumice.scheduler.state.state import State
from pumice.wire.objects import Pod, convert

PLACES = {
    "pods": "pods",  # our pods and those of other schedulers, by uid, with the version last seen
    "classes": "classes", "seen_shapes": "classes",  # who is of which class, and how often it came
    "groups": "jobs", "jobs": "jobs", "queues": "jobs",  # members of jobs, sums of jobs and queues
    "scheduling_queue": "scheduling queue", "active_jobs": "scheduling queue",
    "ledger": "ledger",  # who holds what, how firmly, and until when
    "nodes": "nodes",  # sums by node
    "terms": "terms",  # whose labels and terms are on which node
    "cards": "cards", "node_devices": "cards", "card_states": "cards",  # who holds what of which card
}  # fmt: skip
"""Modules of ``scheduler/state`` and the place of which each keeps a part."""
Field = tuple[str, str]


def fields_of(found: object) -> Iterator[str]:
    for cls in type(found).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
    yield from getattr(found, "__dict__", {})


def snapshot(state: State) -> dict[tuple[Field, int], Any]:
    """Return by field and object what stands there: values, and of what is more than one the identities."""
    found: dict[tuple[Field, int], Any] = {}
    seen = set[int]()
    queue = deque[tuple[object, Field]]([(state.pods, ("", "")), (state, ("", ""))])
    while queue:
        at, owner = queue.popleft()
        if id(at) in seen or isinstance(at, type | Callable):  # type: ignore[arg-type]
            continue
        seen.add(id(at))
        if isinstance(at, np.ndarray):
            found[owner, id(at)] = at.tobytes()
        elif isinstance(at, dict | list | set | tuple | frozenset | deque):
            inside = [*at, *at.values()] if isinstance(at, dict) else list(at)
            found[owner, id(at)] = [each if isinstance(each, int | float | str) else id(each) for each in inside]
            queue.extend((each, owner) for each in inside)
        elif type(at).__module__.startswith(("pumice.scheduler.", "pumice.effects.")):
            place = type(at).__module__.rpartition(".")[2]
            for name in fields_of(at):
                value = getattr(at, name, None)
                field = place, f"{type(at).__name__}.{name}"
                found[field, id(at)] = value if isinstance(value, int | float | str) else id(value)
                queue.append((value, field))
    return found


def test_the_events_of_a_pod_change_what_stands_in_eight_places() -> None:
    world = World()
    world.add(node("n1", cards=2, mib=8000), group("g", minimum=1), pod("before", mib=1000, group="g"))
    world.settle()
    state = world.restarted().state
    pending = pod("new", mib=1000, group="g")
    world.add(deepcopy(pending))
    world.settle()
    bound = world.pods["default/new"]
    assert bound["spec"]["nodeName"] == "n1"
    running = {**bound, "status": {"phase": "Running"}}
    terminating = {**running, "metadata": {**bound["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    pending["metadata"]["uid"] = bound["metadata"]["uid"]
    changed = set[Field]()
    for version, seen in enumerate((pending, bound, running, terminating, None), 1000):
        before = snapshot(state)
        if seen is None:
            state.pods.drop(convert(Pod, terminating))
        else:
            state.pods.put(convert(Pod, {**seen, "metadata": {**seen["metadata"], "resourceVersion": str(version)}}), world.now)
        after = snapshot(state)
        changed |= {field for (field, at), value in after.items() if before.get((field, at), value) != value}
    assert {PLACES.get(module, f"{module}: {field}") for module, field in changed} == set(PLACES.values())
