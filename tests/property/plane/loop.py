"""The event loop of the plane: a seed plays the same story each time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from typing import Any
from unittest.mock import DEFAULT, patch

from kit.faulty_cluster import faulty_cluster
from kit.virtual_time import VirtualClock, VirtualLoop
from tests.property.plane import last_release
from tests.property.plane.claims import claims_effects
from tests.property.plane.monitors import monitors_effects
from tests.property.plane.mps import mps_effects
from tests.property.plane.processes import cycles_seen


def _hash(self: Any) -> int:
    """Return a number and not the address: sets of tasks, as asyncio keeps them, are then in one order in each run."""
    if not hasattr(self, "number"):
        self.number = next(self.get_loop().numbers)
    return int(self.number)


class _Task(asyncio.Task):  # type: ignore[type-arg]
    __hash__ = _hash


class _Future(asyncio.Future):  # type: ignore[type-arg]
    __hash__ = _hash


class PlaneLoop(VirtualLoop):
    """A seed plays the same story each time: work for threads is done at once, and real time has no part."""

    def __init__(self) -> None:
        super().__init__()
        self._jumping.deaf = True
        self.numbers = count()
        self.set_task_factory(lambda loop, work, **more: _Task(work, loop=loop, **more))

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def virtually(work: Coroutine[Any, Any, Any]) -> Any:
    """Drive a history of this door. What the garbage collector ends, it ends between steps."""
    _warm_up()
    gc.collect()
    gc.freeze()  # what was there before is not looked through again, neither between steps nor by the next history
    gc.disable()
    try:
        still = [patch.object(tasks, "perf_counter", lambda: 0.0) for tasks in last_release.both("effects.tasks")]
        effects = (claims_effects(), monitors_effects(), mps_effects(), cycles_seen(), _garbage_left_alone())
        with asyncio.Runner(loop_factory=PlaneLoop) as runner, ExitStack() as patches:
            for each in (*still, *effects):
                patches.enter_context(each)
            return runner.run(work)
    finally:
        gc.enable()


@contextmanager
def _garbage_left_alone() -> Iterator[None]:
    """A daemon sets aside what its process has, and turns the collector on again; here it would do so to all others."""
    with patch.multiple(gc, enable=DEFAULT, freeze=DEFAULT, get_freeze_count=lambda: 0):
        yield


@cache
def _warm_up() -> None:
    """Make the first objects once: later API servers read them, and the first history shall be played like every other."""
    with asyncio.Runner(loop_factory=PlaneLoop) as runner:
        runner.run(faulty_cluster(VirtualClock()))
