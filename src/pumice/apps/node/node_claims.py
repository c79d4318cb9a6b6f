"""A driver of claims on one node, whatever its devices: publishes its slices, prepares claims, and keeps the book of them.

The order of a Prepare makes it safe: the claim is booked on disk first, then the API server is asked for pods with annotated
shares. Whoever was bound before is seen there; whoever comes later is refused by the plugin, which reads the book at each answer
(ADR 134). A device type says what its devices are, what a claim gets of them, and how that is made.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from pumice.adapters.bookings import claims as book
from pumice.adapters.bookings.foreign import SHARED, ForeignPrograms
from pumice.adapters.kubelet.checkpoint import claims_held
from pumice.adapters.kubelet.claim_driver import ClaimDriver, ClaimHandler, ClaimKey, PreparedDevice
from pumice.apps.node.card_watch import CardWatch, open_cards
from pumice.apps.node.claim_files import ClaimFiles
from pumice.apps.node.pages import PluginHealth, plugin_pages
from pumice.effects.tasks import first, run_until
from pumice.metrics.claims import ShareView, claim_families
from pumice.metrics.text import MetricFamily
from pumice.model.errors import BadInput, PumiceError
from pumice.node.claims import (
    ClaimShare,
    Holdings,
    Json,
    PreparedClaim,
    crowded,
    owner_of,
    slice_object,
    stands,
    users,
    uses,
)
from pumice.node.health import XidRule
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

log = logging.getLogger("pumice.node")
T = TypeVar("T")
Endpoint = Callable[[Path, str, ClaimHandler], ClaimDriver]
"""The way to the kubelet."""
Made = Callable[[CardWatch, Cards], "Awaitable[NodeClaims]"]
"""Makes the claims of one node of its cards, which are not looked at yet."""
RESYNC = 5.0
LOOK, GRACE = 60.0, 600.0
"""Seconds between two looks for claims that have vanished, and until they are given back, without the kubelet's record."""


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """Paths are the host's. ``kubelet_dir``: the kubelet's own folder. ``booking_dirs``: where `pumice run` books.

    The claims' book is in the first of them. ``health_address``: where pages are served; empty for nowhere.
    """

    node_name: str
    kubelet_dir: Path = Path("/var/lib/kubelet")
    wait_for_driver: bool = False
    cdi_folder: Path = Path("/var/run/cdi")
    booking_dirs: tuple[Path, ...] = SHARED
    health_address: str = ""
    health_port: int = 0


async def serve_claims(
    settings: ClaimSettings, made: Made, opened: Callable[[], Cards], *, clock: Clock,
    stop: asyncio.Event, ready: asyncio.Event | None = None, cards: Cards | None = None, endpoint: Endpoint = ClaimDriver,
) -> None:  # fmt: skip
    """Serve until ``stop`` what is ``made`` of this machine's cards: ``cards``, or as they are ``opened``. ``ready``: the kubelet
    has the driver, the API server its slices; ``endpoint``: the way to the kubelet. Raises PumiceError."""
    page, ready = PluginHealth(), ready or asyncio.Event()
    async with plugin_pages(settings.health_address, settings.health_port, page):
        found = cards or await open_cards(opened, settings.wait_for_driver, clock, stop)
        if found is None:
            return
        watch = CardWatch(found, clock, XidRule.parse("", ""))
        try:
            served = await made(watch, found)
            await watch.start()
            await _serve(settings, served, page, stop, ready, endpoint)
        finally:
            watch.close(found.close if cards is None else None)


async def _serve(
    settings: ClaimSettings, served: NodeClaims, page: PluginHealth, stop: asyncio.Event, ready: asyncio.Event, endpoint: Endpoint
) -> None:
    held = await _hold_book(settings.booking_dirs[0], served.book, served.clock, stop)
    if held is None:
        return
    try:
        await served.resume()
        page.watch, page.metrics = served.watch, served.metrics
        page.missing = lambda: [] if ready.is_set() else ["the kubelet, or the API server"]
        driver = endpoint(settings.kubelet_dir, served.driver, served)
        await driver.start()
        try:
            await run_until(stop, served.watch.run(), served.keep_published(driver.registered, ready), served.run_daemons())
        finally:
            await driver.stop()
            await served.stop_daemons()
    finally:
        os.close(held)


async def _hold_book(folder: Path, name: str, clock: Clock, stop: asyncio.Event) -> int | None:
    """Wait until no other driver has the node's book, as while one follows the other; None when stopped meanwhile."""
    waiting = False
    while not stop.is_set():
        if (held := book.hold(folder, name)) is not None:
            return held
        if not waiting:
            log.warning("another driver of claims has %s; waiting until it ends", folder / name)
        waiting = True
        await first(stop.wait(), clock.sleep(1.0))
    return None


async def in_thread(work: Callable[[], T]) -> T:
    """Do it in a thread, to its end also when the kubelet has given the call up: whoever comes next must find it done."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class NodeClaims(ABC):
    """The claims of one node: what the kubelet asks for, one at a time."""

    book: ClassVar[str] = book.BOOK
    """The file of its book."""
    taints: ClassVar[tuple[str, str, str]]
    """The keys of sick cards, of those with annotated shares, and of those that a program of `pumice run` has."""

    def __init__(
        self, settings: ClaimSettings, cluster: Cluster, clock: Clock, watch: CardWatch, driver: str, files: ClaimFiles
    ) -> None:
        self.node, self.kubelet_dir, self.driver = settings.node_name, settings.kubelet_dir, driver
        self.cluster, self.clock, self.watch = cluster, clock, watch
        self._folder = settings.booking_dirs[0]
        self._foreign = ForeignPrograms(settings.booking_dirs)
        self._files = files
        self._claims: dict[str, PreparedClaim] = {}
        self._users: dict[tuple[str, str], list[str]] = {}
        """Pods by the claims that they name, as last listed."""
        self._refused = 0
        self._since: dict[str, float] = {}
        """Since when claims have vanished, where the kubelet's record cannot be read; and when they are looked at next."""
        self._look_at = 0.0
        self._turn = asyncio.Lock()

    # -- what a device type says -------------------------------------------------------------------------------------

    @abstractmethod
    def specs(self, taints: Mapping[str, Sequence[str]], generation: int) -> Sequence[Json]:
        """Return the specs of the pool's slices. ``taints``: keys by the UUIDs of cards that take no new claims."""

    @abstractmethod
    def decided(self, claim: Json, uid: str, holdings: Holdings) -> PreparedClaim | str:
        """Return what the claim gets here beside those, or why it is refused; nothing is made yet."""

    @abstractmethod
    async def annotated(self, pods: Sequence[Json]) -> dict[str, str]:
        """Return by UUID the pods with annotated shares of a card; under the empty UUID those whose cards are unknown."""

    @abstractmethod
    def serves(self, resource: str) -> bool:
        """Return whether a device plugin gives parts of these cards by that resource."""

    async def learn(self) -> None:
        """Ask the driver about cards that it was not asked about yet."""
        return

    def look(self, pods: Sequence[Json]) -> None:
        """These pods are on the node now."""
        return

    async def make(self, claim: PreparedClaim, pods: Sequence[Json]) -> PreparedClaim | str:
        """Return the claim once what it has of its cards is made; what is there is left as it is. Raises PumiceError."""
        return claim

    @abstractmethod
    async def reconcile(self) -> None:
        """Bring together what is booked and what is there, now and again. Raises PumiceError."""

    async def run_daemons(self) -> None:
        """Run the daemons that claims need besides the driver (control daemons of MPS) until cancelled."""
        await asyncio.Event().wait()

    async def stop_daemons(self) -> None:
        """Stop those daemons that serve nobody."""
        return

    # -- what the kubelet asks ---------------------------------------------------------------------------------------

    async def resume(self) -> None:
        """Go on with the book of before. One that is damaged or lost is made anew of the claims that were answered."""
        try:
            there, lost = book.read(self._folder, self.book), "lost"
        except BadInput as error:
            there, lost = None, str(error)
        if there is None:
            there = await self._made_anew()
            if there or lost != "lost":
                log.error("the book of claims was %s; made anew of those that were answered here claims=%d", lost, len(there))
            self._write(there)
        self._claims = {one.uid: one for one in there if one.checked}
        if len(self._claims) < len(there):  # a crash before the check: nobody was answered
            self._write(list(self._claims.values()))
        if stale := await in_thread(partial(self._files.sweep, self._claims)):
            log.info("removed the files of claims that nobody holds claims=%s", ",".join(stale))

    async def _made_anew(self) -> list[PreparedClaim]:
        """The claims that were answered in this boot, by their own records, and by the API server where they have no good one."""
        found, unknown = await in_thread(self._files.answered)
        if unknown:
            await self.learn()
            for claim in (await self.cluster.list(RESOURCE_CLAIMS))["items"]:
                uid = claim["metadata"]["uid"]
                if uid in unknown and (claim.get("status") or {}).get("reservedFor"):
                    mine = self.decided(claim, uid, Holdings())
                    found += [mine] if isinstance(mine, PreparedClaim) else []
        return [msgspec.structs.replace(one, checked=True) for one in found]

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
            if stands(whole, mine, self.node, self.driver):
                return await self._made_again(mine, await self._pods())
            log.warning("claim=%s has other devices now, and what it had is given back", mine.key)
            await self._drop([claim.uid])
        return await self._book(claim, whole)

    async def _book(self, claim: ClaimKey, whole: Any) -> PreparedClaim | str:
        await self.learn()
        others = list(self._claims.values())
        found = self.decided(whole, claim.uid, Holdings(others))
        if isinstance(found, str):
            return found
        await in_thread(partial(self._files.remove, claim.uid))  # an earlier boot's: in this one nobody was answered
        self._write([*others, found])
        checked: PreparedClaim | str = "it was not looked at to its end"
        try:
            pods = await self._pods()
            held = await self.annotated(pods)
            unknown = held.pop("", "")
            held |= await in_thread(partial(self._foreign.look, wait=True))
            if all(share.admin for share in found.shares):
                unknown = ""
            refused = unknown or crowded(whole, found, pods, others, self.serves)
            decided = refused or self.decided(whole, claim.uid, Holdings(others, held))
            checked = decided if isinstance(decided, str) else await self.make(decided, pods)
        finally:
            if isinstance(checked, str):
                self._write(others)
        if isinstance(checked, str):
            return checked
        checked = msgspec.structs.replace(checked, checked=True)
        self._write([*others, checked])
        self._claims[claim.uid] = checked
        return checked

    async def _made_again(self, claim: PreparedClaim, pods: Sequence[Json]) -> PreparedClaim | str:
        """A claim that was answered before: its slices are made anew where a reset has taken them away."""
        found = await self.make(claim, pods)
        if isinstance(found, PreparedClaim) and found != claim:
            log.warning("claim=%s has other slices than before: somebody has taken away those", claim.key)
            self._write([found if one.uid == found.uid else one for one in self._claims.values()])
            self._claims[found.uid] = found
        return found

    def _write(self, claims: Sequence[PreparedClaim]) -> None:
        book.write(self._folder, claims, self.book)

    async def _pods(self) -> list[Any]:
        """The pods of this node."""
        found = await self.cluster.list(PODS, field_selector=f"spec.nodeName={self.node}")
        return list(found["items"])

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
            self._write(list(left.values()))
            self._claims = left

    # -- now and again ------------------------------------------------------------------------------------------------

    async def metrics(self) -> list[MetricFamily]:
        """The families of the page: limits, and what the regions say of their use."""
        held = [(claim, share) for claim in self._claims.values() for share in claim.shares if not share.admin]
        views = await in_thread(lambda: [self._view(claim, share) for claim, share in held])
        return claim_families(self.node, views, self._refused)

    def _view(self, claim: PreparedClaim, share: ClaimShare) -> ShareView:
        pods = self._users.get((claim.namespace, claim.name), [])
        return ShareView(claim.namespace, claim.name, share.request, share.share, share.device, share.card, pods, share.memory,
                         share.cores, *self.use_of(claim, share))  # fmt: skip

    def use_of(self, claim: PreparedClaim, share: ClaimShare) -> tuple[int | None, float | None]:
        """Return the bytes and the percent of its card's cores that a share uses; None where nobody tells. Called in a thread."""
        return self._files.used(claim.uid, share) if share.limited else None, None

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
                same = book.read(self._folder, self.book) == list(self._claims.values())
            except BadInput as error:
                log.error("%s; it is written anew", error)
                same = False
            if not same and (self._claims or (self._folder / self.book).exists()):
                self._write(list(self._claims.values()))
            await self.reconcile()
            known, now = claims_held(self.kubelet_dir), self.clock.monotonic()
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
            return not uses(claim, await self._pods())
        return there["metadata"]["uid"] != claim.uid or not (there.get("status") or {}).get("reservedFor")

    async def _publish(self) -> None:
        await self.learn()
        pods = await self._pods()
        self.look(pods)
        held, self._users = await self.annotated(pods), users(pods)
        reasons = (self.watch.unhealthy, held, await in_thread(self._foreign.look))
        taints = taints_of([card.uuid for card in self.watch.facts], *zip(self.taints, reasons, strict=True))
        await publish(self.cluster, self.node, partial(self.specs, taints), self.driver)


# -- The ResourceSlices of the cards: published as the cards are, and again when somebody has taken them away ----------

_LAST: Final = 2**63 - 1
"""The largest generation that the API server stores: an int64."""


async def publish(cluster: Cluster, node: str, specs: Callable[[int], Sequence[Any]], driver: str) -> None:
    """Make the slices of this node's driver what ``specs`` (of a generation) says. A pool that was half written when its driver
    was killed, or changed by somebody else, is written anew as a whole. Raises ApiError."""
    selector = f"spec.nodeName={node},spec.driver={driver}"
    there = (await cluster.list(RESOURCE_SLICES, field_selector=selector))["items"]
    newest = max((one["spec"]["pool"]["generation"] for one in there), default=0)
    current = [one for one in there if one["spec"]["pool"]["generation"] == newest]
    current.sort(key=lambda one: str(one["metadata"]["name"]))
    if [plain(one["spec"]) for one in current] == [plain(spec) for spec in specs(newest)]:
        await _delete(cluster, [one for one in there if one not in current])
        return
    if newest == _LAST:  # nothing counts as newer than these: they go first
        await _delete(cluster, there)
        there, newest = [], 0
    owner = owner_of(node, (await cluster.get(NODES, node))["metadata"]["uid"])
    wanted = specs(newest + 1)
    for at, spec in enumerate(wanted):
        made = await cluster.create(RESOURCE_SLICES, slice_object(spec, at, owner, newest + 1))
        if plain(made["spec"]) != plain(spec):
            log.error("the API server has dropped fields of slice %s: are its gates of Dynamic Resource Allocation on?",
                      made["metadata"]["name"])  # fmt: skip
    await _delete(cluster, there)
    log.info("published generation=%d slices=%d", newest + 1, len(wanted))


async def _delete(cluster: Cluster, slices: Sequence[Any]) -> None:
    for one in slices:
        with suppress(ApiError):
            await cluster.delete(RESOURCE_SLICES, one["metadata"]["name"], uid=one["metadata"]["uid"])


def plain(spec: Mapping[str, Any]) -> Any:
    """A spec without what the API server adds."""
    devices = [{**one, "taints": [{"key": taint["key"], "effect": taint["effect"]} for taint in one.get("taints") or ()]}
               for one in spec.get("devices") or ()]  # fmt: skip
    return {**{key: value for key, value in spec.items() if key != "devices"}, "devices": devices}


def taints_of(cards: Sequence[str], *reasons: tuple[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the taints of cards by UUID. ``reasons``: keys with their cards; all cards where the UUID is empty."""
    return {uuid: [key for key, of in reasons if uuid in of or "" in of] for uuid in cards}
