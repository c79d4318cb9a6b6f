"""A runtime without processes, for virtual time and for scale: containers run for as long as the test says."""

from __future__ import annotations

import asyncio
import contextlib
import signal as signals
from collections.abc import Callable, Mapping

from pumice.ports.clock import Clock
from pumice_lab.runtime.spec import ContainerSpec, ExecSession, Exit, StartFailed

Lifetime = Callable[[ContainerSpec], tuple[float, int] | None]


def sleeps(spec: ContainerSpec) -> tuple[float, int] | None:
    """``sleep N`` runs for N seconds, ``true`` and ``false`` end at once, ``nosuch`` is not there; others run on."""
    match spec.argv:
        case ("sleep", text) if text.replace(".", "", 1).isdigit():
            return float(text), 0
        case ("true",):
            return 0.0, 0
        case ("false",):
            return 0.0, 1
        case ("nosuch", *_):
            raise StartFailed("StartError", 'exec: "nosuch": executable file not found in $PATH')
    return None


class HollowRuntime:
    """``lifetime(spec)`` gives (seconds, exit code), or None for a container that runs until it is signalled."""

    isolation = "hollow"
    isolation_note = ""

    def __init__(self, clock: Clock, lifetime: Lifetime = sleeps) -> None:
        self.clock, self.lifetime = clock, lifetime
        self.started: list[ContainerSpec] = []
        self._listeners: dict[str, Callable[[Exit], None]] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}

    async def start(self, spec: ContainerSpec, on_exit: Callable[[Exit], None]) -> int:
        life = self.lifetime(spec)
        self.started.append(spec)
        self._listeners[spec.id] = on_exit
        if life is not None:
            self._timers[spec.id] = asyncio.create_task(self._end_later(spec.id, *life))
        return len(self.started)

    async def _end_later(self, ident: str, seconds: float, code: int) -> None:
        await self.clock.sleep(seconds)
        self._timers.pop(ident, None)
        self.end(ident, code)

    def end(self, ident: str, code: int, signal: int = 0) -> None:
        """End a container now."""
        timer = self._timers.pop(ident, None)
        if timer is not None:
            timer.cancel()
        listener = self._listeners.pop(ident, None)
        if listener is not None:
            listener(Exit(ident, code, signal))

    async def signal(self, container_id: str, signal: int) -> None:
        if signal in (signals.SIGTERM, signals.SIGKILL, signals.SIGINT):
            self.end(container_id, 128 + signal, signal)

    async def exec(self, container_id: str, argv: tuple[str, ...], *, tty: bool, stdin: bool,
                   env: Mapping[str, str] | None = None) -> ExecSession:
        raise StartFailed("NotFound", "a hollow container has no processes")

    def console(self, container_id: str) -> None:
        return None

    def running(self) -> frozenset[str]:
        return frozenset(self._listeners)

    def adopt(self, container_id: str, on_exit: Callable[[Exit], None]) -> bool:
        if container_id not in self._listeners:
            return False
        self._listeners[container_id] = on_exit
        return True

    async def close(self) -> None:
        for timer in list(self._timers.values()):
            timer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await timer
        self._timers.clear()
        self._listeners.clear()
