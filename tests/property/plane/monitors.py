"""A node with a monitor, which may be killed at each of its effects, and programs in containers that have a region each."""

from __future__ import annotations

import asyncio
import os
import re
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from kit.fake_cluster import Json
from kit.region_files import Proc, region_bytes
from kit.virtual_time import VirtualClock
from tests.property.plane import monitor_judge, monitor_kinds
from tests.property.plane.node import Node, Running, StillCards
from tests.property.plane.processes import Connection

from pumice.adapters.region import ContainerFolders, reader
from pumice.apps.monitor import daemon

HERE: ContextVar[MonitoredNode | None] = ContextVar("the node of this monitor", default=None)
USED = 100 << 20
"""Bytes that each program has of each card."""
LIES = (1 << 20, 3000 << 20, 1 << 40)
"""What a program may write into its region as its limit."""
REMEMBERED = 90.0
"""Seconds in which a monitor that was stopped, or heard of nobody, may speak for somebody who has ended."""
Key = tuple[str, str]


class SeenCards(StillCards):
    """What a monitor asks of the driver beside."""

    def processes(self) -> tuple[Any, ...]:
        return ()

    def instances(self) -> tuple[Any, ...]:
        return ()


class MonitoredNode(Node):
    watching: Connection | None = None
    """Of the monitor that runs, or ran last."""

    def __init__(self, name: str, cards: tuple[Any, ...], root: Path, rng: Random, started: Any) -> None:
        super().__init__(name, cards, root, rng, started)
        self.pages: Mapping[str, Callable[[Any], Any]] = {}
        self.complaints: list[str] = []
        self.busy: dict[Key, float] = {}
        self._regions: dict[Key, Path] = {}
        self._gone: list[tuple[float, Running]] = []
        self._stamps: dict[Path, int] = {}

    async def run_monitor(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        HERE.set(self)
        self.watching = cluster
        settings = daemon.Settings(self.name, hook_path=self.root / "hook", sweep_every=20.0, grace=60.0)
        await daemon.run(settings, cluster=cluster, clock=clock, rng=rng, stop=stop, cards=SeenCards(self.cards.cards))

    async def page(self) -> str | None:
        """Return what the monitor tells of its metrics; None while it does not listen."""
        handler = self.pages.get("/metrics")
        return None if handler is None else (await handler(None)).body.decode()

    # -- programs ---------------------------------------------------------------------------------------------------------

    def begun(self, one: Running) -> Running:
        one = super().begun(one)
        key = one.pod["metadata"]["uid"], one.container
        uuids = monitor_judge.cards_of(one)
        if uuids:
            path = self._regions[key] = monitor_judge.region_of(one)
            proc = Proc(used=dict.fromkeys(range(len(uuids)), (0, 0, USED, USED)))
            names = {at: uuid.encode() for at, uuid in enumerate(uuids)}
            path.write_bytes(region_bytes(devices=len(uuids), procs=(proc,), uuids=names, limits=self.rng.choice(LIES)))
            self.busy[key] = self.clock.monotonic() + self.rng.choice(monitor_kinds.BUSY)
        return one

    async def _sync(self) -> None:
        await super()._sync()
        now = self.clock.monotonic()
        for key, until in list(self.busy.items()):
            if key in self.running and now < until:
                self._launch(self._regions[key])

    def _launch(self, region: Path) -> None:
        """As the library says of a launch: unless it is to wait."""
        if region.exists() and monitor_judge.word_of(region) >= 0:
            with region.open("r+b") as file:
                os.pwrite(file.fileno(), struct.pack("<i", 2), monitor_judge.RECENT_AT)

    def ended(self, one: Running) -> None:
        self._gone.append((self.clock.monotonic(), one))
        super().ended(one)

    def left(self, one: Running) -> None:
        self._gone.append((self.clock.monotonic(), one))
        super().left(one)

    def rest(self) -> None:
        """From now on no program launches anything."""
        self.busy.clear()

    # -- what holds -------------------------------------------------------------------------------------------------------

    def held(self, region: Path) -> None:
        """A monitor is about to hold a container back."""
        now = self.clock.monotonic()
        self._gone = [(at, one) for at, one in self._gone if now < at + REMEMBERED]
        there = [*self.running.values(), *(one for _, one in self._gone)]
        self.complaints += monitor_judge.held_for_nobody(region, there)

    def told(self) -> list[str]:
        found, self.complaints = self.complaints, []
        return found

    async def said_wrongly(self, given: Mapping[str, Json], alive: set[str]) -> list[str]:
        """Return what does not hold although nothing befalls anybody."""
        page = await self.page()
        if page is None:
            return [f"the monitor of {self.name} does not listen"]
        running = list(self.running.values())
        return [*monitor_judge.reported_wrongly(page, running, given, USED), *monitor_judge.told_of_nobody(page, alive),
                *monitor_judge.still_held(running)]  # fmt: skip

    def stays(self) -> list[str]:
        return [f"{path.relative_to(self.root)} of {self.name} stays" for folder in ("containers", "limits")
                for path in sorted((self.root / "hook" / "vgpu" / folder).glob("*"))]  # fmt: skip

    def stamp(self, directory: Path) -> None:
        """Let the folders that were changed since the last time have been changed just now, by the monitor's clock."""
        now = self.watching.process_clock.now() if self.watching is not None else self.clock.now()
        for path in directory.iterdir() if directory.is_dir() else ():
            if path.lstat().st_mtime_ns != self._stamps.get(path):
                os.utime(path, (now, now))
                self._stamps[path] = path.lstat().st_mtime_ns


@asynccontextmanager
async def _served(routes: Mapping[str, Callable[[Any], Any]], address: str, port: int, name: str) -> AsyncIterator[int]:
    node = HERE.get()
    assert node is not None
    node.pages = routes
    try:
        yield port
    finally:
        if node.pages is routes:
            node.pages = {}


@contextmanager
def monitors_effects() -> Iterator[None]:
    """What a monitor writes on its machine are effects at which it may be killed, and its page is asked for without sockets."""

    def effect(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def met(target: Any, *given: Any) -> Any:
            node = HERE.get()
            act = partial(real, target, *given)
            if node is None or node.watching is None:
                return act()
            if name == "sweep folders":
                node.stamp(target.directory)
            if name == "hold back" and given[0] > 0:
                node.held(target)
            return node.watching.local(name, act)

        return met

    with ExitStack() as patches:
        patches.enter_context(patch.object(reader, "_UUID", re.compile(rb"GPU-\w+-\d")))  # cards have short names here
        patches.enter_context(patch.object(daemon, "served", _served))
        for name in ("write_feedback", "hold_back", "write_pulse"):
            patches.enter_context(patch.object(daemon, name, effect(name.replace("_", " "), getattr(daemon, name))))
        patches.enter_context(patch.object(ContainerFolders, "sweep", effect("sweep folders", ContainerFolders.sweep)))
        yield
