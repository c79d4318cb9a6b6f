"""The driver of claims for NVIDIA's cards on one node: publishes its slices, prepares claims, and keeps the book of them.

The order of a Prepare makes it safe: the claim is booked on disk first, then the API server is asked for pods with annotated
shares. Whoever was bound before is seen there; whoever comes later is refused by the plugin, which reads the book at each answer
(ADR 134).
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pumice.adapters.bookings import claims as book
from pumice.adapters.bookings.foreign import SHARED, ForeignPrograms
from pumice.adapters.kubelet.checkpoint import card_holders
from pumice.adapters.kubelet.claim_driver import ClaimDriver, ClaimKey, PreparedDevice
from pumice.adapters.nvml import NvmlCards
from pumice.apps.node.card_watch import CardWatch, open_cards
from pumice.apps.node.files import digests, install_files, make_directory
from pumice.devices.nvidia_vgpu.node import claims
from pumice.devices.nvidia_vgpu.node.answer import CACHE, LIBRARY, LOCK, NAMES, PRELOAD, install
from pumice.effects.tasks import first, run_until
from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.model.errors import BadInput, PumiceError, Unavailable
from pumice.node.claims import ClaimShare, PreparedClaim
from pumice.node.health import XidRule
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import cdi, limits_page, names, variables
from pumice.wire.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from pumice.wire.limits_page import GrantedCard, LimitsPage
from pumice.wire.nvidia_vgpu import parse_handed_out, parse_pod_devices

log = logging.getLogger("pumice.node")
CLAIM = "claim"
RESYNC = 5.0
TAINT_UNHEALTHY, TAINT_IN_USE = f"{names.CLAIM_DRIVER}/unhealthy", f"{names.CLAIM_DRIVER}/device-plugin"


@dataclass(frozen=True, slots=True)
class Settings:
    """Paths are the host's. ``kubelet_dir``: the kubelet's own folder. ``booking_dirs``: where `pumice run` books.

    The claims' book is in the first of them. ``worlds``: whether a card is published as shared, whole, or both.
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


async def run(
    settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
    ready: asyncio.Event | None = None, cards: Cards | None = None,
) -> None:  # fmt: skip
    """Serve until ``stop``. ``ready``: the kubelet has the driver, the API server its slices. Raises PumiceError."""
    found = cards or await open_cards(partial(NvmlCards, settings.nvml), settings.wait_for_driver, clock, stop)
    if found is None:
        return
    watch = CardWatch(found, clock, XidRule.parse("", ""))
    await watch.start()
    try:
        await asyncio.to_thread(_install, settings)
        served = NodeClaims(settings, cluster, clock, watch)
        await served.resume()
        driver = ClaimDriver(settings.kubelet_dir, names.CLAIM_DRIVER, served)
        await driver.start()
        try:
            await run_until(stop, watch.run(), served.keep_published(driver.registered, ready))
        finally:
            await driver.stop()
    finally:
        watch.close(found.close if cards is None else None)


def _install(settings: Settings) -> None:
    if settings.library is not None:
        content = settings.library.read_bytes()
        install_files(install(str(settings.hook_path), content, digests(settings.hook_path, NAMES)))
    make_directory(MakeDirectory(str(settings.lock_dir)))


class NodeClaims:
    """The claims of one node: what the kubelet asks for, one at a time."""

    def __init__(self, settings: Settings, cluster: Cluster, clock: Clock, watch: CardWatch) -> None:
        self.settings, self.cluster, self.clock, self.watch = settings, cluster, clock, watch
        self._folder = settings.booking_dirs[0]
        self._foreign = ForeignPrograms(settings.booking_dirs)
        self._claims: dict[str, PreparedClaim] = {}
        self._turn = asyncio.Lock()

    async def resume(self) -> None:
        """Go on with the book of before. A damaged one is made anew of the claims that the API server has reserved here."""
        try:
            there = book.prepared(self._folder)
        except BadInput as error:
            log.error("%s; it is made anew by the API server's claims", error)
            there = [mine for claim in (await self.cluster.list(RESOURCE_CLAIMS))["items"]
                     if (claim.get("status") or {}).get("reservedFor")
                     and isinstance(mine := self._decided(claim, claim["metadata"]["uid"], claims.Holdings()), PreparedClaim)]
            there = [msgspec.structs.replace(one, checked=True) for one in there]
            book.write(self._folder, there)
        self._claims = {one.uid: one for one in there if one.checked}
        if len(self._claims) < len(there):  # a crash before the check: nobody was answered
            book.write(self._folder, list(self._claims.values()))

    def _decided(self, claim: Any, uid: str, holdings: claims.Holdings) -> PreparedClaim | str:
        return claims.prepare(claim, uid, self.settings.node_name, self.watch.facts, holdings)

    async def prepare(self, claim: ClaimKey) -> Sequence[PreparedDevice] | str:
        async with self._turn:
            try:
                found = self._claims.get(claim.uid) or await self._book(claim)
                if isinstance(found, str):
                    log.warning("not prepared claim=%s/%s: %s", claim.namespace, claim.name, found)
                    return found
                await asyncio.to_thread(self._write, found)
            except (PumiceError, OSError) as error:
                return str(error)
            log.info("prepared claim=%s uid=%s devices=%d", found.key, found.uid, len(found.shares))
            return self._answer(found)

    async def _book(self, claim: ClaimKey) -> PreparedClaim | str:
        whole = await self.cluster.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        others = list(self._claims.values())
        found = self._decided(whole, claim.uid, claims.Holdings(others))
        if isinstance(found, str):
            return found
        book.write(self._folder, [*others, found])
        checked: PreparedClaim | str = "it was not looked at to its end"
        try:
            pods = (await self.cluster.list(PODS, field_selector=f"spec.nodeName={self.settings.node_name}"))["items"]
            held = await self._annotated(pods)
            unknown = held.pop("", "")
            held |= await asyncio.to_thread(self._foreign.look, settled=True)
            refused = unknown or claims.crowded(whole, found, pods, others)
            checked = refused or self._decided(whole, claim.uid, claims.Holdings(others, held))
        finally:
            if isinstance(checked, str):
                book.write(self._folder, others)
        if isinstance(checked, str):
            return checked
        checked = msgspec.structs.replace(checked, checked=True)
        book.write(self._folder, [*others, checked])
        self._claims[claim.uid] = checked
        return checked

    async def _annotated(self, pods: Sequence[Any]) -> dict[str, str]:
        """Return by UUID the pods with annotated shares of a card; under the empty UUID those whose cards are unknown."""
        node = await self.cluster.get(NODES, self.settings.node_name)
        published = parse_handed_out((node["metadata"].get("annotations") or {}).get(names.HANDED_OUT, ""))
        holders = card_holders(self.settings.kubelet_dir / "device-plugins")
        found: dict[str, list[str]] = {}
        unnamed = []
        for pod in pods:
            meta, notes = pod["metadata"], pod["metadata"].get("annotations") or {}
            if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                continue
            own = notes.get(names.VGPU_IDS, "") if notes.get(names.VGPU_NODE) == self.settings.node_name else ""
            parts = [*parse_pod_devices(own).containers]
            parts += published[meta["uid"]].containers if meta["uid"] in published else ()
            cards = {device.uuid for part in parts for device in part}
            if meta["uid"] in holders and not cards:
                unnamed.append(f"{meta['namespace']}/{meta['name']}")
            for uuid in cards:
                found.setdefault(uuid, []).append(f"{meta['namespace']}/{meta['name']}")
        said = {uuid: f"shared by annotated pods ({', '.join(sorted(who))})" for uuid, who in found.items()}
        if unnamed:
            said[""] = f"pods {', '.join(unnamed)} hold cards of this node that no annotation names"
        return said

    async def unprepare(self, claim: ClaimKey) -> str:
        async with self._turn:
            try:
                await asyncio.to_thread(self._remove, claim.uid)
                if claim.uid in self._claims:
                    left = {uid: one for uid, one in self._claims.items() if uid != claim.uid}
                    book.write(self._folder, list(left.values()))
                    self._claims = left
            except (PumiceError, OSError) as error:
                return str(error)
        return ""

    # -- files ----------------------------------------------------------------------------------------------------

    def _answer(self, claim: PreparedClaim) -> list[PreparedDevice]:
        """A request's CDI device goes with the first of its devices: edits that come twice would be mounted twice."""
        seen: set[str] = set()
        found = []
        for share in claim.shares:
            ids = () if share.request in seen else (f"{names.OUR_DOMAIN}/{CLAIM}={_device_name(claim, share.request)}",)
            seen.add(share.request)
            found.append(PreparedDevice(share.request, self.settings.node_name, share.device, ids, share.share))
        return found

    def _places(self, uid: str) -> tuple[Path, Path]:
        root = self.settings.hook_path / "vgpu"
        return root / "claims" / uid, root / "claim-limits" / uid

    def _write(self, claim: PreparedClaim) -> None:
        """Pages, regions and the CDI file. What is there stays: containers may run."""
        devices = []
        for request in dict.fromkeys(share.request for share in claim.shares):
            shares = sorted((one for one in claim.shares if one.request == request), key=lambda one: self._index(one.card))
            devices.append(cdi.Device(_device_name(claim, request), self._edits(claim, request, shares)))
        spec = cdi.Specification(cdi.VERSION, f"{names.OUR_DOMAIN}/{CLAIM}", tuple(devices))
        install_files([InstallFile(str(self._cdi_file(claim.uid)), cdi.render(spec), 0o644, durable=False)])

    def _index(self, uuid: str) -> int:
        return next((card.index for card in self.watch.facts if card.uuid == uuid), 0)

    def _edits(self, claim: PreparedClaim, request: str, shares: Sequence[ClaimShare]) -> cdi.Edits:
        settings = self.settings
        env = {variables.NVIDIA_VISIBLE_DEVICES: ",".join(dict.fromkeys(one.card for one in shares))}
        if all(one.whole for one in shares):
            return cdi.Edits(env=tuple(f"{key}={value}" for key, value in env.items()))
        regions, pages = self._places(claim.uid)
        name = request.replace("/", "_")
        directory, page, region = regions / name, pages / name / "limits", f"{claim.uid}.cache"
        make_directory(MakeDirectory(str(directory)))
        path = f"{CACHE}/{region}"
        limits = LimitsPage(tuple(GrantedCard(one.card, one.memory, one.cores) for one in shares), path, priority=1)
        install_files([InstallFile(str(page), limits_page.render(limits), 0o644, keep=True, durable=False),
                       InstallFile(str(directory / region), b"", 0o666, keep=True, durable=False)])  # fmt: skip
        env |= {variables.memory_limit_of(at): f"{one.memory >> 20}m" for at, one in enumerate(shares)}
        env |= {variables.SM_LIMIT: str(shares[0].cores), variables.SHARED_CACHE: path}
        read_only = ("ro", "nosuid", "nodev", "bind")
        mounts = (
            cdi.Mount(f"{settings.hook_path}/libvgpu.so", LIBRARY, read_only),
            cdi.Mount(f"{settings.hook_path}/ld.so.preload", PRELOAD, read_only),
            cdi.Mount(str(page), limits_page.PATH, read_only),
            cdi.Mount(str(directory), CACHE, ("rw", "bind")),
            cdi.Mount(str(directory / region), path, ("rw", "bind")),
            cdi.Mount(str(settings.lock_dir), LOCK, ("rw", "bind")),
        )
        return cdi.Edits(env=tuple(f"{key}={value}" for key, value in env.items()), mounts=mounts)

    def _cdi_file(self, uid: str) -> Path:
        return self.settings.cdi_folder / f"{names.OUR_DOMAIN}-{CLAIM}_{uid}.json"

    def _remove(self, uid: str) -> None:
        if "/" in uid or uid in ("", ".", ".."):
            raise BadInput(f"{uid!r} is no claim's uid")
        self._cdi_file(uid).unlink(missing_ok=True)
        for folder in self._places(uid):
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)

    # -- slices ---------------------------------------------------------------------------------------------------

    async def keep_published(self, registered: asyncio.Event, ready: asyncio.Event | None) -> None:
        """Publish what the cards are now; again when they change, and when somebody has taken the slices away."""
        await registered.wait()
        while True:
            try:
                await self._publish()
                if ready is not None:
                    ready.set()
            except (ApiError, Unavailable) as error:
                log.warning("slices not published: %s", error)
            await first(self.watch.changed.wait(), self.clock.sleep(RESYNC))

    async def _publish(self) -> None:
        node = self.settings.node_name
        pods = (await self.cluster.list(PODS, field_selector=f"spec.nodeName={node}"))["items"]
        held = await self._annotated(pods)
        taints = {card.uuid: [*([TAINT_UNHEALTHY] if card.uuid in self.watch.unhealthy else []),
                              *([TAINT_IN_USE] if card.uuid in held else [])] for card in self.watch.facts}  # fmt: skip
        selector = f"spec.nodeName={node},spec.driver={names.CLAIM_DRIVER}"
        there = (await self.cluster.list(RESOURCE_SLICES, field_selector=selector))["items"]
        newest = max((one["spec"]["pool"]["generation"] for one in there), default=0)
        wanted = claims.slice_specs(node, self.watch.facts, self.settings.worlds, taints, newest)
        current = [one for one in there if one["spec"]["pool"]["generation"] == newest]
        current.sort(key=lambda one: str(one["metadata"]["name"]))
        if [_plain(one["spec"]) for one in current] == [_plain(spec) for spec in wanted]:
            return
        owner = claims.owner_of(node, (await self.cluster.get(NODES, node))["metadata"]["uid"])
        wanted = claims.slice_specs(node, self.watch.facts, self.settings.worlds, taints, newest + 1)
        for at, spec in enumerate(wanted):
            made = await self.cluster.create(RESOURCE_SLICES, claims.slice_object(spec, at, owner, newest + 1))
            if _plain(made["spec"]) != _plain(spec):
                log.error("the API server has dropped fields of slice %s: are its gates of Dynamic Resource Allocation on?",
                          made["metadata"]["name"])  # fmt: skip
        for one in there:
            with suppress(ApiError):
                await self.cluster.delete(RESOURCE_SLICES, one["metadata"]["name"], uid=one["metadata"]["uid"])
        log.info("published generation=%d slices=%d", newest + 1, len(wanted))


def _device_name(claim: PreparedClaim, request: str) -> str:
    return f"{claim.uid}-{request.replace('/', '_')}"


def _plain(spec: Any) -> Any:
    """A spec without what the API server adds."""
    devices = [{**one, "taints": [{"key": taint["key"], "effect": taint["effect"]} for taint in one.get("taints") or ()]}
               for one in spec.get("devices") or ()]  # fmt: skip
    return {**{key: value for key, value in spec.items() if key != "devices"}, "devices": devices}
