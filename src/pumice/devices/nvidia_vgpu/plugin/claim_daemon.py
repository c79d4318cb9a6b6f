"""The driver of claims for NVIDIA's cards on one node: publishes its slices, prepares claims, and keeps the book of them.

The order of a Prepare makes it safe: the claim is booked on disk first, then the API server is asked for pods with annotated
shares. Whoever was bound before is seen there; whoever comes later is refused by the plugin, which reads the book at each answer
(ADR 134).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pumice.adapters.bookings import claims as book
from pumice.adapters.bookings.foreign import SHARED, ForeignPrograms
from pumice.adapters.journal import FileJournal
from pumice.adapters.kubelet.checkpoint import card_holders, claims_held
from pumice.adapters.kubelet.claim_driver import ClaimDriver, ClaimHandler, ClaimKey, PreparedDevice
from pumice.adapters.nvml import NvmlCards
from pumice.adapters.nvml.slices import NvmlSlices
from pumice.apps.node.card_watch import CardWatch, open_cards
from pumice.apps.node.files import digests, install_files, make_directory
from pumice.apps.node.pages import PluginHealth, plugin_pages
from pumice.devices.nvidia_vgpu.node import claims
from pumice.devices.nvidia_vgpu.node.answer import NAMES, install
from pumice.devices.nvidia_vgpu.node.mig_slices import Holds
from pumice.devices.nvidia_vgpu.plugin.claim_cutting import ClaimSlices, Holders, in_thread
from pumice.devices.nvidia_vgpu.plugin.claim_files import ClaimFiles
from pumice.devices.nvidia_vgpu.plugin.claim_slices import publish, taints_of
from pumice.effects.tasks import first, run_until
from pumice.effects.vocabulary import MakeDirectory
from pumice.metrics.claims import ShareView, claim_families
from pumice.metrics.text import MetricFamily
from pumice.model.errors import BadInput, PumiceError
from pumice.node.claims import ClaimShare, PreparedClaim
from pumice.node.health import XidRule
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.ports.slices import Slices
from pumice.wire import names
from pumice.wire.kinds import NODES, PODS, RESOURCE_CLAIMS
from pumice.wire.nvidia_vgpu import parse_handed_out

log = logging.getLogger("pumice.node")
RESYNC = 5.0
LOOK, GRACE = 60.0, 600.0
"""Seconds between two looks for claims that have vanished, and until they are given back, without the kubelet's record."""
TAINT_UNHEALTHY, TAINT_IN_USE = f"{names.CLAIM_DRIVER}/unhealthy", f"{names.CLAIM_DRIVER}/device-plugin"
TAINT_PROGRAM = f"{names.CLAIM_DRIVER}/program"
"""A program of `pumice run` has the card."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Paths are the host's. ``kubelet_dir``: the kubelet's own folder. ``booking_dirs``: where `pumice run` books.

    The claims' book is in the first of them. ``worlds``: whether a card is published as shared, whole, both, or by HAMi's names.
    ``health_address``: where pages are served; empty for nowhere.
    """

    node_name: str
    kubelet_dir: Path = Path("/var/lib/kubelet")
    hook_path: Path = Path("/usr/local/vgpu")
    lock_dir: Path = Path("/tmp/vgpulock")
    library: Path | None = None
    nvml: str = ""
    wait_for_driver: bool = False
    cdi_folder: Path = Path("/var/run/cdi")
    booking_dirs: tuple[Path, ...] = SHARED
    worlds: str = claims.SHARED
    health_address: str = ""
    health_port: int = 0

    @property
    def driver(self) -> str:
        return claims.driver_of(self.worlds)


async def run(
    settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
    ready: asyncio.Event | None = None, cards: Cards | None = None, slices: Slices | None = None,
    endpoint: Callable[[Path, str, ClaimHandler], ClaimDriver] = ClaimDriver,
) -> None:  # fmt: skip
    """Serve until ``stop``. ``ready``: the kubelet has the driver, the API server its slices. ``cards`` and ``slices`` are this
    machine's (NVML unless given), ``endpoint`` the way to the kubelet. Raises PumiceError."""
    page, ready = PluginHealth(), ready or asyncio.Event()
    async with plugin_pages(settings.health_address, settings.health_port, page):
        await _serve(settings, cluster, clock, stop, ready, cards, slices, page, endpoint)


async def _serve(
    settings: Settings, cluster: Cluster, clock: Clock, stop: asyncio.Event, ready: asyncio.Event, cards: Cards | None,
    slices: Slices | None, page: PluginHealth, endpoint: Callable[[Path, str, ClaimHandler], ClaimDriver],
) -> None:  # fmt: skip
    found = cards or await open_cards(partial(NvmlCards, settings.nvml), settings.wait_for_driver, clock, stop)
    if found is None:
        return
    watch = CardWatch(found, clock, XidRule.parse("", ""))
    mig = ClaimSlices(slices or NvmlSlices(), FileJournal(settings.hook_path / "vgpu" / "mig.json"))
    watch.uncut = mig.closed
    await watch.start()
    try:
        await asyncio.to_thread(_install, settings)
        held = await _hold_book(settings.booking_dirs[0], clock, stop)
        if held is None:
            return
        try:
            served = NodeClaims(settings, cluster, clock, watch, mig)
            await served.resume()
            page.watch, page.metrics = watch, served.metrics
            page.missing = lambda: [] if ready.is_set() else ["the kubelet, or the API server"]
            driver = endpoint(settings.kubelet_dir, settings.driver, served)
            await driver.start()
            try:
                await run_until(stop, watch.run(), served.keep_published(driver.registered, ready))
            finally:
                await driver.stop()
        finally:
            os.close(held)
    finally:
        watch.close(found.close if cards is None else None)


async def _hold_book(folder: Path, clock: Clock, stop: asyncio.Event) -> int | None:
    """Wait until no other driver has the node's book, as while one follows the other; None when stopped meanwhile."""
    waiting = False
    while not stop.is_set():
        if (held := book.hold(folder)) is not None:
            return held
        if not waiting:
            log.warning("another driver of claims has %s; waiting until it ends", folder / book.BOOK)
        waiting = True
        await first(stop.wait(), clock.sleep(1.0))
    return None


def _install(settings: Settings) -> None:
    if settings.library is not None:
        content = settings.library.read_bytes()
        install_files(install(str(settings.hook_path), content, digests(settings.hook_path, NAMES)))
    make_directory(MakeDirectory(str(settings.lock_dir)))


class NodeClaims:
    """The claims of one node: what the kubelet asks for, one at a time."""

    def __init__(self, settings: Settings, cluster: Cluster, clock: Clock, watch: CardWatch, mig: ClaimSlices) -> None:
        self.settings, self.cluster, self.clock, self.watch, self.mig = settings, cluster, clock, watch, mig
        self._folder = settings.booking_dirs[0]
        self._foreign = ForeignPrograms(settings.booking_dirs)
        self._files = ClaimFiles(settings.hook_path, settings.lock_dir, settings.cdi_folder, settings.node_name, self._index)
        self._claims: dict[str, PreparedClaim] = {}
        self._users: dict[tuple[str, str], list[str]] = {}
        """Pods by the claims that they name, as last listed."""
        self._refused = 0
        self._since: dict[str, float] = {}
        """Since when claims have vanished, where the kubelet's record cannot be read; and when they are looked at next."""
        self._look_at = 0.0
        self._turn = asyncio.Lock()
        self._holders = Holders()
        self._untold: dict[str, str] = {}
        """Claims with slices on cards that were settled, whose files do not say which yet, and why not where that was logged."""

    async def resume(self) -> None:
        """Go on with the book of before. One that is damaged or lost is made anew of the claims that were answered."""
        try:
            there, lost = book.read(self._folder), "lost"
        except BadInput as error:
            there, lost = None, str(error)
        if there is None:
            there = await self._made_anew()
            if there or lost != "lost":
                log.error("the book of claims was %s; made anew of those that were answered here claims=%d", lost, len(there))
            book.write(self._folder, there)
        self._claims = {one.uid: one for one in there if one.checked}
        if len(self._claims) < len(there):  # a crash before the check: nobody was answered
            book.write(self._folder, list(self._claims.values()))
        if stale := await in_thread(partial(self._files.sweep, self._claims)):
            log.info("removed the files of claims that nobody holds claims=%s", ",".join(stale))

    async def _made_anew(self) -> list[PreparedClaim]:
        """The claims that were answered in this boot, by their own records, and by the API server where they have no good one."""
        found, unknown = await in_thread(self._files.answered)
        if unknown:
            await self._learn()
            for claim in (await self.cluster.list(RESOURCE_CLAIMS))["items"]:
                uid = claim["metadata"]["uid"]
                if uid in unknown and (claim.get("status") or {}).get("reservedFor"):
                    mine = self._decided(claim, uid, claims.Holdings())
                    found += [mine] if isinstance(mine, PreparedClaim) else []
        return [msgspec.structs.replace(one, checked=True) for one in found]

    def _decided(self, claim: Any, uid: str, holdings: claims.Holdings) -> PreparedClaim | str:
        settings = self.settings
        return claims.prepare(claim, uid, settings.node_name, self.watch.facts, holdings, self.mig.offers, settings.driver)

    def _index(self, uuid: str) -> int:
        return next((card.index for card in self.watch.facts if card.uuid == uuid), 0)

    async def prepare(self, claim: ClaimKey) -> Sequence[PreparedDevice] | str:
        async with self._turn:
            try:
                found = await self._booked(claim)
                if isinstance(found, str):
                    self._refused += 1
                    log.warning("not prepared claim=%s/%s: %s", claim.namespace, claim.name, found)
                    return found
                await in_thread(partial(self._files.write, found))
            except (PumiceError, OSError) as error:
                return str(error)
            log.info("prepared claim=%s uid=%s devices=%d", found.key, found.uid, len(found.shares))
            return self._files.answer(found)

    async def _booked(self, claim: ClaimKey) -> PreparedClaim | str:
        """Return what is booked, if the claim's allocation still says so: one that was given back may have others since,
        while its Unprepare was missed."""
        whole = await self.cluster.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        mine = self._claims.get(claim.uid)
        if mine is not None:
            if claims.stands(whole, mine, self.settings.node_name, self.settings.driver):
                return await self._cut_again(mine, await self._pods())
            log.warning("claim=%s has other devices now, and what it had is given back", mine.key)
            await self._drop([claim.uid])
        return await self._book(claim, whole)

    async def _book(self, claim: ClaimKey, whole: Any) -> PreparedClaim | str:
        await self._learn()
        others = list(self._claims.values())
        found = self._decided(whole, claim.uid, claims.Holdings(others))
        if isinstance(found, str):
            return found
        await in_thread(partial(self._files.remove, claim.uid))  # an earlier boot's: in this one nobody was answered
        book.write(self._folder, [*others, found])
        checked: PreparedClaim | str = "it was not looked at to its end"
        try:
            pods = await self._pods()
            held = await self._annotated(pods)
            unknown = held.pop("", "")
            held |= await in_thread(partial(self._foreign.look, settled=True))
            if all(share.admin for share in found.shares):
                unknown = ""
            refused = unknown or claims.crowded(whole, found, pods, others)
            decided = refused or self._decided(whole, claim.uid, claims.Holdings(others, held))
            checked = decided if isinstance(decided, str) else await self._cut(decided, pods)
        finally:
            if isinstance(checked, str):
                book.write(self._folder, others)
        if isinstance(checked, str):
            return checked
        checked = msgspec.structs.replace(checked, checked=True)
        book.write(self._folder, [*others, checked])
        self._claims[claim.uid] = checked
        return checked

    # -- MIG slices ---------------------------------------------------------------------------------------------------

    def _in_mig_mode(self) -> list[str]:
        return [card.uuid for card in self.watch.facts if card.mig]

    async def _learn(self) -> None:
        if cards := self._in_mig_mode():
            await in_thread(partial(self.mig.learn, cards))

    def _holder(self, pods: Sequence[Any], *more: PreparedClaim) -> Holds:
        self._holders.look(pods, self.clock.monotonic())
        recorded = card_holders(self.settings.kubelet_dir / "device-plugins")
        return self._holders.ask([*self._claims.values(), *more], recorded)

    async def _cut(self, claim: PreparedClaim, pods: Sequence[Any]) -> PreparedClaim | str:
        """Return the claim with the UUIDs of its slices; those that are there are left as they are."""
        if all(share.slice is None for share in claim.shares):
            return claim
        holds = self._holder(pods, claim)
        await self._bring_together(holds)
        return await in_thread(partial(self.mig.cut, claim, holds))

    async def _cut_again(self, claim: PreparedClaim, pods: Sequence[Any]) -> PreparedClaim | str:
        """A claim that was answered before: its slices are made anew where a reset has taken them away."""
        found = await self._cut(claim, pods)
        if isinstance(found, PreparedClaim) and found != claim:
            log.warning("claim=%s has other slices than before: somebody has taken away those", claim.key)
            book.write(self._folder, [found if one.uid == found.uid else one for one in self._claims.values()])
            self._claims[found.uid] = found
        return found

    async def _bring_together(self, holds: Holds) -> None:
        """Once a card: bring it and the journal together. The files of its claims are to be told (``_settle``)."""
        cards = self._in_mig_mode()
        new = self.mig.unsettled(cards)
        for claim in self._claims.values():
            if any(share.slice is not None and share.card in new for share in claim.shares):
                self._untold.setdefault(claim.uid, "")
        await in_thread(partial(self.mig.settle, cards, holds))

    async def _settle(self) -> None:
        """Settle cards that are new, and bring what came of it into the claims' files, from which containers start again."""
        if not (self._untold or self.mig.unsettled(self._in_mig_mode())):
            return
        pods = await self._pods()
        await self._bring_together(self._holder(pods))
        self._untold = {uid: told for uid, told in self._untold.items() if uid in self._claims}
        for uid, told in list(self._untold.items()):
            try:
                found = await self._cut_again(self._claims[uid], pods)
                if isinstance(found, PreparedClaim):
                    await in_thread(partial(self._files.write, found))
                    del self._untold[uid]
                    continue
            except (PumiceError, OSError) as error:
                found = str(error)
            if found != told:
                log.error("the slices of a claim are gone: %s", found)
            self._untold[uid] = found

    # -- who else is there --------------------------------------------------------------------------------------------

    async def _pods(self) -> list[Any]:
        """The pods of this node."""
        found = await self.cluster.list(PODS, field_selector=f"spec.nodeName={self.settings.node_name}")
        return list(found["items"])

    async def _annotated(self, pods: Sequence[Any]) -> dict[str, str]:
        """Return by UUID the pods with annotated shares of a card; under the empty UUID those whose cards are unknown."""
        node = await self.cluster.get(NODES, self.settings.node_name)
        published = parse_handed_out((node["metadata"].get("annotations") or {}).get(names.HANDED_OUT, ""))
        holders = card_holders(self.settings.kubelet_dir / "device-plugins")
        return claims.annotated(self.settings.node_name, pods, published, holders)

    async def unprepare(self, claim: ClaimKey) -> str:
        async with self._turn:
            try:
                await self._drop([claim.uid])
            except (PumiceError, OSError) as error:
                return str(error)
        return ""

    async def _drop(self, uids: Sequence[str]) -> None:
        for uid in uids:
            await in_thread(partial(self._files.remove, uid))
        left = {uid: one for uid, one in self._claims.items() if uid not in uids}
        if len(left) < len(self._claims):
            book.write(self._folder, list(left.values()))
            self._claims = left

    # -- now and again ------------------------------------------------------------------------------------------------

    async def metrics(self) -> list[MetricFamily]:
        """The families of the page: limits, and what the regions say of their use."""
        held = [(claim, share) for claim in self._claims.values() for share in claim.shares if not share.admin]
        views = await in_thread(lambda: [self._view(claim, share) for claim, share in held])
        return claim_families(self.settings.node_name, views, self._refused)

    def _view(self, claim: PreparedClaim, share: ClaimShare) -> ShareView:
        pods = self._users.get((claim.namespace, claim.name), [])
        used = self._files.used(claim.uid, share) if share.limited else None
        return ShareView(claim.namespace, claim.name, share.request, share.share, share.device, share.card, pods, share.memory,
                         share.cores, used)  # fmt: skip

    async def keep_published(self, registered: asyncio.Event, ready: asyncio.Event) -> None:
        """Publish what the cards are now; again when they change, and when somebody has taken the slices away. The book is put
        right where somebody has damaged it, and claims go that vanished without an Unprepare."""
        await registered.wait()
        while True:
            try:
                await self._publish()
                ready.set()
                await self.put_right()
            except (PumiceError, OSError) as error:
                log.warning("slices not published: %s", error)
            await first(self.watch.changed.wait(), self.clock.sleep(RESYNC))

    async def put_right(self) -> None:
        """Raises PumiceError and OSError."""
        async with self._turn:
            try:
                same = book.read(self._folder) == list(self._claims.values())
            except BadInput as error:
                log.error("%s; it is written anew", error)
                same = False
            if not same and (self._claims or (self._folder / book.BOOK).exists()):
                book.write(self._folder, list(self._claims.values()))
            await self._settle()
            known, now = claims_held(self.settings.kubelet_dir), self.clock.monotonic()
            left = [one for uid, one in self._claims.items() if uid not in (known or ())]
            vanished = [one for one in left if await self._vanished(one)] if known is not None or now >= self._look_at else []
            if known is None and now >= self._look_at:
                self._look_at = now + LOOK
                self._since = {one.uid: self._since.get(one.uid, now) for one in vanished}
                vanished = [one for one in vanished if now - self._since[one.uid] >= GRACE]
            await self._drop([one.uid for one in vanished])
            for one in vanished:
                log.warning("claim=%s uid=%s has vanished, and what it had is given back", one.key, one.uid)

    async def _vanished(self, claim: PreparedClaim) -> bool:
        """Return whether no pod may use the claim any more. The kubelet writes it down before it asks: where its record is to be
        read and does not name the claim, that is all; else it has to be so for a while, as containers of forgotten pods end."""
        try:
            there = await self.cluster.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return not claims.uses(claim, await self._pods())
        return there["metadata"]["uid"] != claim.uid or not (there.get("status") or {}).get("reservedFor")

    async def _publish(self) -> None:
        node, watch = self.settings.node_name, self.watch
        await self._learn()
        pods = await self._pods()
        self._holders.look(pods, self.clock.monotonic())
        held, self._users = await self._annotated(pods), claims.users(pods)
        taints = taints_of([card.uuid for card in watch.facts], (TAINT_UNHEALTHY, watch.unhealthy), (TAINT_IN_USE, held),
                           (TAINT_PROGRAM, await in_thread(self._foreign.look)))  # fmt: skip
        specs = partial(claims.slice_specs, node, watch.facts, self.settings.worlds, taints, offers=self.mig.offers)
        await publish(self.cluster, node, specs, self.settings.driver)
