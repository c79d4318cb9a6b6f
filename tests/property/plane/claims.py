"""A node whose cards are had by claim as well: the driver of claims, which may be killed at each of its effects, and the
kubelet's manager of claims, without sockets between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from kit.admitting import Refused, Seen
from kit.fake_cluster import Json
from kit.virtual_time import VirtualClock
from tests.property.plane.node import Node, OwnSlices, Running, StillCards
from tests.property.plane.processes import Connection
from tests.property.plane.transport import UNAVAILABLE, called, failure

from pumice.adapters.bookings import claims as book
from pumice.adapters.kubelet.claim_driver import ClaimDriver, ClaimHandler
from pumice.apps.node.claim_files import ClaimFiles
from pumice.devices.nvidia_vgpu.plugin import claim_daemon
from pumice.ports.cards import LOST, CardEvent, CardFacts
from pumice_lab.kubelet.claims import ClaimManager, NotPrepared
from pumice_lab.kubelet.devices import cdi
from pumice_lab.runtime.spec import StartFailed

HERE: ContextVar[ClaimingNode | None] = ContextVar("the node of this process", default=None)


class ClaimLink:
    """The drivers of claims that listen, by the paths of their sockets. Who is killed leaves these behind."""

    def __init__(self) -> None:
        self.drivers: dict[Path, MemoryClaimDriver] = {}

    async def call(self, path: Path, method: str, request: Any, answer: Any, seconds: float) -> Any:
        if (driver := self.drivers.get(path)) is None:
            raise failure(UNAVAILABLE, "connection refused")
        return await driver.answer(method.rpartition("/")[2], request, seconds)

    def cut(self) -> None:
        for driver in dict.fromkeys(self.drivers.values()):
            for call in list(driver.calls):
                call.cancel()
        self.drivers.clear()


class MemoryClaimDriver(ClaimDriver):
    def __init__(self, link: ClaimLink, kubelet: Path, name: str, handler: ClaimHandler) -> None:
        super().__init__(kubelet, name, handler)
        self._link, self._context = link, copy_context()
        self.calls: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        for path in (self._socket, self._registration):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.touch()
            self._link.drivers[path] = self

    async def stop(self) -> None:
        for path in (self._registration, self._socket):
            if self._link.drivers.get(path) is self:
                del self._link.drivers[path]
                path.unlink(missing_ok=True)

    async def answer(self, method: str, request: Any, seconds: float) -> Any:
        handler = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notified,
                   "NodePrepareResources": self._prepare, "NodeUnprepareResources": self._unprepare}[method]  # fmt: skip
        call = asyncio.get_running_loop().create_task(handler(request, None), context=self._context)
        return await called(self.calls, call, seconds)


class ClaimingNode(Node):
    manager: ClaimManager
    driving: Connection | None = None
    """Of the driver that runs, or ran last."""
    boots = 0

    def __init__(self, name: str, cards: tuple[CardFacts, ...], root: Path, rng: Random, started: Any) -> None:
        super().__init__(name, cards, root, rng, started)
        self.claim_link, self.seen_by_driver = ClaimLink(), StillCards(cards, self.cards.lost)

    async def run_driver(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        HERE.set(self)
        self.driving = cluster
        settings = claim_daemon.Settings(
            self.name, kubelet_dir=self.root, hook_path=self.root / "hook", lock_dir=self.root / "lock",
            library=self.root / "lib.so", cdi_folder=self.cdi, booking_dirs=(self.root / "bookings",),
        )  # fmt: skip
        await claim_daemon.run(settings, cluster=cluster, clock=clock, rng=rng, stop=stop, cards=self.seen_by_driver,
                               slices=OwnSlices(self.driver, cluster),
                               endpoint=partial(MemoryClaimDriver, self.claim_link))  # fmt: skip

    async def run_plugin(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        HERE.set(self)
        await super().run_plugin(cluster, clock, rng, stop)

    # -- the kubelet ------------------------------------------------------------------------------------------------------

    async def run_kubelet(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        HERE.set(self)
        self.manager = ClaimManager(self.root, self.name, cluster, clock, self.claim_link.call)
        self.manager.load()
        keeping = asyncio.create_task(self.manager.keep(
            lambda: {uid for uid, found in self.local.items() if found.state != "ended"}))  # fmt: skip
        try:
            await super().run_kubelet(cluster, clock, rng, stop)
        finally:
            keeping.cancel()
            [ended] = await asyncio.gather(keeping, return_exceptions=True)
            if isinstance(ended, Exception):
                raise ended

    async def prepared(self, pod: Json) -> bool:
        """Claims are prepared with the pod's sandbox, and not for one that runs."""
        if not any(uid == pod["metadata"]["uid"] for uid, _ in self.running):
            pod = {**pod, "status": {**pod["status"], "containerStatuses": []}}
        try:
            await self.manager.prepare(pod)
        except NotPrepared:
            return False
        return True

    def begun(self, one: Running) -> Running:
        try:
            edits = self._edits(one.pod, one.container)
        except StartFailed as error:
            raise Refused(str(error)) from error
        mounts = {mount.target: mount.source for mount in edits.mounts.values()}
        return replace(one, seen=Seen({**one.seen.env, **edits.env}, {**one.seen.mounts, **mounts}))

    def _edits(self, pod: Json, name: str) -> cdi.Edits:
        container = next(one for one in pod["spec"]["containers"] if one["name"] == name)
        return cdi.resolve(cdi.requested(self.manager.answers(pod, container)), [self.cdi])

    def could_start(self, uid: str, container: str) -> bool:
        try:
            self._edits(self.running[uid, container].pod, container)
        except StartFailed:
            return False
        return super().could_start(uid, container)

    async def _forget(self, uid: str) -> None:
        await super()._forget(uid)
        await self.manager.unprepare(uid)

    # -- what befalls it --------------------------------------------------------------------------------------------------

    def lose(self, uuid: str) -> None:
        super().lose(uuid)
        self.seen_by_driver.news.append(CardEvent(uuid, LOST))

    def restart_containers(self) -> None:
        """Files of claims are not written again while kubelet and driver go on."""
        kept = {path: path.read_bytes() for path in self.cdi.glob("*claim_*")}
        super().restart_containers()
        for path, content in kept.items():
            path.write_bytes(content)

    def reboot(self) -> None:
        self.boots += 1
        super().reboot()
        for path in self.cdi.iterdir():
            path.unlink()

    def damage_book(self, text: str | None) -> None:
        """Somebody writes something else into the book of claims, or removes it."""
        path = self.root / "bookings" / "claims.json"
        if text is None:
            path.unlink(missing_ok=True)
        elif path.parent.exists():
            path.write_text(text)

    def stays(self) -> list[str]:
        path = self.root / "bookings" / "claims.json"
        try:
            booked = json.loads(path.read_text())
            here = booked["claims"] if booked["boot"] == self._boot() else ()
        except (OSError, ValueError, TypeError, KeyError):  # not there, or damaged by somebody
            here = ()
        files = [path for folder in ("claims", "claim-limits") for path in (self.root / "hook" / "vgpu" / folder).glob("*")]
        return [*(f"the book of {self.name} has claim {one['name']}" for one in here),
                *(f"{path.relative_to(self.root)} of {self.name} stays" for path in files),
                *(f"the kubelet of {self.name} has claim {one.name}" for one in self.manager.claims.values())]  # fmt: skip

    def _boot(self) -> str:
        return f"{self.name} boot {self.boots}"


@contextmanager
def claims_effects() -> Iterator[None]:
    """What the driver does on its machine are effects at which it may be killed, and a boot is one of the node's."""

    def effect(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def met(*given: Any) -> Any:
            node = HERE.get()
            act = partial(real, *given)
            return act() if node is None or node.driving is None else node.driving.local(name, act)

        return met

    def boot() -> str:
        node = HERE.get()
        return "" if node is None else node._boot()

    with ExitStack() as patches:
        patches.enter_context(patch.object(book, "boot", boot))
        patches.enter_context(patch.object(book, "write", effect("write claims", book.write)))
        for name in ("write", "remove"):
            patches.enter_context(patch.object(ClaimFiles, name, effect(f"{name} claim files", getattr(ClaimFiles, name))))
        yield
