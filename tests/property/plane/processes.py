"""Daemons as processes that can be killed between any two of their effects, each with its own connection and its own clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

from kit.faulty_cluster import PATIENCE, FaultyCluster
from kit.virtual_time import VirtualClock
from tests.property.plane import last_release

from pumice.model.errors import PumiceError
from pumice.ports.cluster import ApiError
from pumice.ports.slices import CutRefused

Run = Callable[["Connection", VirtualClock, Random, asyncio.Event], Coroutine[Any, Any, None]]
T = TypeVar("T")
CYCLE = "a cycle"
"""What a scheduler does that is no write."""
AGAIN = 2.0
"""Seconds after which a process that ended is started again."""


class Struck(Counter[tuple[str, str]]):
    """How often which fault met which effect. ``faults``: how many of those that were ordered met anything."""

    faults = 0


@dataclass(slots=True)
class Fault:
    """The outcome of the next ``count`` writes. Code 0: no answer for half a minute; ``done``: carried out all the same.
    ``only``: of this effect; of any where empty."""

    code: int
    count: int
    done: bool = False
    only: str = ""
    met: bool = False


@dataclass(slots=True)
class Doom:
    """``writes`` more are carried out, and the next one kills the process: before it, or after it where ``done``. ``only`` those
    of this effect count, where it is named."""

    writes: int
    done: bool
    only: str = ""


class StoppableClock(VirtualClock):
    """The clock of a process that may be stopped for a while (SIGSTOP, or a machine that is suspended): whoever sleeps wakes up
    late."""

    stopped_until = 0.0
    late: Callable[[], None] = staticmethod(lambda: None)  # type: ignore[assignment]
    """Told of each who has to wait for it to go on."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await self.goes_on()

    async def goes_on(self) -> None:
        while (left := self.stopped_until - self.monotonic()) > 0:
            self.late()
            await super().sleep(left)


class Connection(FaultyCluster):
    """One process's way to the API server. ``struck`` counts the pairs of a fault and the effect that it met; ``witness`` sees
    each write as it arrives."""

    def __init__(self, api: Any, clock: StoppableClock, name: str, struck: Struck,
                 witness: Callable[[Connection, str], None] = lambda process, effect: None) -> None:
        super().__init__(api, clock)
        self.name, self.struck, self.process_clock, self.witness = name, struck, clock, witness
        self.faults: list[Fault] = []
        self.doom: Doom | None = None
        self.killed: Callable[[], None] = lambda: None
        self.dead = False
        self.writes_to = ""
        """The path of the write that arrives now."""
        self.away_until = self.deaf_until = 0.0
        """Until when nothing, or no list and watch, is answered."""
        self.cut = False
        """Whether an order to be away has met nobody yet."""

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json") -> bytes:
        if self.dead:
            raise asyncio.CancelledError
        if verb == "GET" and path.rsplit("/", 1)[-1].endswith("s"):
            self.answers_lists()
        elif asyncio.get_running_loop().time() < self.away_until:
            self._refuse()
        if verb == "GET":
            answer = await super().request(verb, path, params=params, body=body, content_type=content_type)
            await self.process_clock.goes_on()
            return answer
        effect = _effect(verb, path)
        doomed = self._doomed(effect)
        if doomed is False:
            self._die("killed before", effect)
        fault = self._next(effect)
        if fault is not None:
            self.struck[f"{fault.code}{' done' if fault.done else ''}", effect] += 1
        if fault is None or fault.done:
            self.writes_to = path
            self.witness(self, effect)
            answer = await super().request(verb, path, params=params, body=body, content_type=content_type)
        if doomed:
            self._die("killed after", effect)
        if fault is None:
            await self.process_clock.goes_on()
            return answer
        if fault.code == 0:
            await self.clock.sleep(PATIENCE)
        raise ApiError(fault.code, "Fault", "it is so")

    def answers_lists(self) -> None:
        """Raises ApiError where no list is answered now."""
        if asyncio.get_running_loop().time() < max(self.away_until, self.deaf_until):
            self._refuse()

    def _refuse(self) -> None:
        self.struck.faults += self.cut
        self.cut = False
        raise ApiError(0, "Unreachable", "connection refused")

    def go_away(self, until: float, *, lists: bool) -> None:
        """Nothing is answered until then, or no list and watch."""
        if lists:
            self.deaf_until = until
        else:
            self.away_until = until
        self.cut = True
        self.hang_up(forget=False, seconds=until - asyncio.get_running_loop().time())

    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> Any:
        if self.dead:
            raise asyncio.CancelledError
        self.answers_lists()
        return await super().stream(path, params, idle=idle)

    def _die(self, when: str, effect: str) -> None:
        self.struck[when, effect] += 1
        self.struck.faults += 1
        self.dead, self.doom = True, None
        self.killed()
        raise asyncio.CancelledError

    def local(self, effect: str, act: Callable[[], T]) -> T:
        """Carry out an effect on the process's own machine, at which it may be killed as at a write."""
        if self.dead:
            raise asyncio.CancelledError
        doomed = self._doomed(effect)
        if doomed is False:
            self._die("killed before", effect)
        if self._next(effect, named=True) is not None:
            self.struck["refused", effect] += 1
            raise CutRefused("the driver is busy")
        found = act()
        if doomed:
            self._die("killed after", effect)
        return found

    def _doomed(self, effect: str) -> bool | None:
        if self.doom is None or self.doom.only not in ("", effect):
            return None
        if self.doom.writes == 0:
            return self.doom.done
        self.doom.writes -= 1
        return None

    def _next(self, effect: str, *, named: bool = False) -> Fault | None:
        """Return what the effect meets, if anything. ``named``: of the faults that are for this effect alone."""
        fault = next((one for one in self.faults if one.only == effect or not (one.only or named)), None)
        if fault is not None:
            self.struck.faults += not fault.met
            fault.met, fault.count = True, fault.count - 1
            if fault.count <= 0:
                self.faults.remove(fault)
        return fault


@contextmanager
def cycles_seen() -> Iterator[None]:
    """Let the witness of each scheduler see its cycles begin, of this release and of the last one."""

    def seen(real: Callable[[Any], None]) -> Callable[[Any], None]:
        def cycle(self: Any) -> None:
            connection = self.cluster if isinstance(self.cluster, Connection) else self.cluster.connection
            connection.witness(connection, CYCLE)
            real(self)

        return cycle

    with ExitStack() as patches:
        for scheduler in last_release.both("apps.scheduler.daemon"):
            patches.enter_context(patch.object(scheduler.Scheduler, "_cycle", seen(scheduler.Scheduler._cycle)))
        yield


def _effect(verb: str, path: str) -> str:
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return " ".join([verb, parts[0], *parts[2:]])


class Process:
    """``run`` is started by ``start`` and again by ``supervise`` after it was killed or ended by itself."""

    def __init__(self, name: str, api: Any, run: Run, rng: Random, struck: Struck,
                 witness: Callable[[Connection, str], None]) -> None:
        self.name, self.clock = name, StoppableClock()
        self._api, self._run, self._rng, self._struck, self._witness = api, run, rng, struck, witness
        self.connection = Connection(api, self.clock, name, struck, witness)
        self.task: asyncio.Task[None] | None = None
        self.stop = asyncio.Event()
        self.ended_at: float | None = None
        self.crash: BaseException | None = None
        self.on_kill: Callable[[], None] = lambda: None

    @property
    def alive(self) -> bool:
        return self.task is not None and not self.task.done()

    def start(self) -> None:
        old = self.connection
        self.clock.stopped_until = 0.0
        self.connection = Connection(self._api, self.clock, self.name, self._struck, self._witness)
        self.connection.away_until, self.connection.deaf_until, self.connection.cut = old.away_until, old.deaf_until, old.cut
        self.connection.killed = self._cancel
        self.stop, self.ended_at = asyncio.Event(), None
        self.task = asyncio.create_task(self._run(self.connection, self.clock, Random(self._rng.random()), self.stop))

    def stop_until(self, until: float) -> None:
        """As by SIGSTOP."""
        self.clock.stopped_until, self.clock.late = until, self._late

    def _late(self) -> None:
        self._struck.faults += 1
        self.clock.late = lambda: None

    def _cancel(self) -> None:
        self.connection.dead = True
        self.on_kill()
        if self.task is not None:
            self.task.cancel()

    async def kill(self) -> None:
        """As by kill -9: nothing that was under way is finished."""
        if self.alive:
            self._cancel()
            await self._gone()

    async def end(self) -> None:
        """As by SIGTERM."""
        if self.alive:
            self.stop.set()
            await self._gone()

    async def _gone(self) -> None:
        task = self.task
        assert task is not None
        await asyncio.wait([task])
        if self.task is task:  # else ``supervise`` was sooner
            self._take_result()

    def _take_result(self) -> None:
        assert self.task is not None
        self.ended_at = self.clock.monotonic()
        error = None if self.task.cancelled() else self.task.exception()  # asyncio prints what nobody asks for
        if error is not None and not self.connection.dead:
            self.crash = None if _expected(error) else error
        self.task = None

    def supervise(self, now: float) -> None:
        """Start it again some time after it ended."""
        if self.task is not None and self.task.done():
            self._take_result()
        if self.task is None and self.ended_at is not None and now >= self.ended_at + AGAIN:
            self.start()


def _expected(error: BaseException) -> bool:
    """Return whether a daemon ends so by design: with a sentence, to be started again."""
    if isinstance(error, BaseExceptionGroup):
        return all(_expected(one) for one in error.exceptions)
    return isinstance(error, PumiceError)
