"""The driver of claims for NVIDIA's cards on one node: shares that the library holds to their limits, whole cards, MIG slices."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pumice.adapters.journal import FileJournal
from pumice.adapters.kubelet.checkpoint import card_holders
from pumice.adapters.kubelet.claim_driver import ClaimDriver, ClaimKey, PreparedDevice
from pumice.adapters.mps import MpsPrograms
from pumice.adapters.nvml import NvmlCards
from pumice.adapters.nvml.slices import NvmlSlices
from pumice.apps.node.card_watch import CardWatch
from pumice.apps.node.claim_files import ClaimFiles
from pumice.apps.node.claim_files import install as install_page
from pumice.apps.node.control_daemons import ControlDaemons
from pumice.apps.node.files import digests, install_files, make_directory
from pumice.apps.node.node_claims import ClaimSettings, Endpoint, in_thread, serve_claims
from pumice.apps.node.node_claims import NodeClaims as Driver
from pumice.devices.nvidia_vgpu.node import claims
from pumice.devices.nvidia_vgpu.node.answer import CACHE, LIBRARY, LOCK, NAMES, PRELOAD, install
from pumice.devices.nvidia_vgpu.node.mig_slices import CLAIM, Cutter, Holds, of_claim
from pumice.devices.nvidia_vgpu.node.mps import refused_by_claim, reported
from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.model.errors import PumiceError
from pumice.node.claims import ClaimShare, Holdings, Json, PreparedClaim, annotated
from pumice.node.mps import Bounds
from pumice.node.pods import NodePod, Status
from pumice.node.slices import Owners
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.ports.mps import PROGRAM
from pumice.ports.slices import CutRefused, Journal, Place, SliceProfile, Slices
from pumice.wire import cdi, limits_page, names, variables
from pumice.wire.kinds import NODES
from pumice.wire.limits_page import GrantedCard, LimitsPage
from pumice.wire.nvidia_vgpu import parse_handed_out
from pumice.wire.objects import Meta, convert

log = logging.getLogger("pumice.node")


@dataclass(frozen=True, slots=True)
class Settings(ClaimSettings):
    """The settings of the driver of claims. ``worlds``: whether a card is published as shared, whole, both, or by HAMi's
    names. ``mps_root``: the folder of the control daemons of MPS, which ``mps_program`` starts; without it no claim is served
    by MPS. Paths are the host's."""

    hook_path: Path = Path("/usr/local/vgpu")
    lock_dir: Path = Path("/tmp/vgpulock")
    library: Path | None = None
    nvml: str = ""
    worlds: str = claims.SHARED
    mps_root: Path | None = None
    mps_program: str = PROGRAM


async def run(
    settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
    ready: asyncio.Event | None = None, cards: Cards | None = None, slices: Slices | None = None,
    endpoint: Endpoint = ClaimDriver,
) -> None:  # fmt: skip
    """Serve until ``stop``. ``ready``: the kubelet has the driver, the API server its slices. ``cards`` and ``slices`` are this
    machine's (NVML unless given), ``endpoint`` the way to the kubelet. Raises PumiceError."""
    async def made(watch: CardWatch, _: Cards) -> NodeClaims:
        mig = ClaimSlices(slices or NvmlSlices(), FileJournal(settings.hook_path / "vgpu" / "mig.json"))
        watch.uncut = mig.closed
        await asyncio.to_thread(_install, settings)
        mps = ControlDaemons(MpsPrograms(settings.mps_root, settings.mps_program), clock) if settings.mps_root else None
        return NodeClaims(settings, cluster, clock, watch, mig, mps)

    opened = partial(NvmlCards, settings.nvml)
    await serve_claims(settings, made, opened, clock=clock, stop=stop, ready=ready, cards=cards, endpoint=endpoint)


def _install(settings: Settings) -> None:
    if settings.library is not None:
        content = settings.library.read_bytes()
        install_files(install(str(settings.hook_path), content, digests(settings.hook_path, NAMES)))
    make_directory(MakeDirectory(str(settings.lock_dir)))


class NodeClaims(Driver):
    """The claims of one node's cards."""

    taints = (f"{names.CLAIM_DRIVER}/unhealthy", f"{names.CLAIM_DRIVER}/device-plugin", f"{names.CLAIM_DRIVER}/program")

    def __init__(
        self, settings: Settings, cluster: Cluster, clock: Clock, watch: CardWatch, mig: ClaimSlices,
        mps: ControlDaemons | None = None,
    ) -> None:  # fmt: skip
        files = ShareFiles(settings.hook_path / "vgpu", settings.cdi_folder, settings.node_name, settings.lock_dir, self._index,
                           str(settings.mps_root or ""))  # fmt: skip
        super().__init__(settings, cluster, clock, watch, claims.driver_of(settings.worlds), files)
        self.worlds, self.mig, self.mps = settings.worlds, mig, mps
        self._making: PreparedClaim | None = None
        """The claim that is prepared now, which the book does not have yet."""
        if mps is not None:
            mps.wanted = self._bounds
        self._holders = Holders()
        self._untold: dict[str, str] = {}
        """Claims with slices on reconciled cards, whose files do not say which yet, and why not where that was logged."""

    def _index(self, uuid: str) -> int:
        return next((card.index for card in self.watch.facts if card.uuid == uuid), 0)

    def specs(self, taints: Mapping[str, Sequence[str]], generation: int) -> Sequence[Json]:
        return claims.slice_specs(self.node, self.watch.facts, self.worlds, taints, generation, self.mig.offers)

    def decided(self, claim: Json, uid: str, holdings: Holdings) -> PreparedClaim | str:
        return claims.prepare(claim, uid, self.node, self.watch.facts, holdings, self.mig.offers, self.driver,
                              self.mps is not None)  # fmt: skip

    async def annotated(self, pods: Sequence[Json]) -> dict[str, str]:
        node = await self.cluster.get(NODES, self.node)
        published = parse_handed_out((node["metadata"].get("annotations") or {}).get(names.HANDED_OUT, ""))
        holders = card_holders(self.kubelet_dir / "device-plugins")
        return annotated(pods, partial(claims.shares_of, self.node, published), holders)

    def serves(self, resource: str) -> bool:
        return resource == names.VGPU_NUMBER

    # -- cards that a claim has alone, and its programs share by MPS ---------------------------------------------------

    def _bounds(self) -> dict[str, Bounds]:
        """The cards that need a daemon."""
        held = [*self._claims.values(), *([self._making] if self._making is not None else ())]
        return {share.card: share.mps for claim in held for share in claim.shares if share.mps is not None}

    async def _shared_by_mps(self, mps: ControlDaemons, claim: PreparedClaim, pods: Sequence[Json]) -> str:
        """Have a daemon for each card that the claim shares by MPS, and none for its others; return why that is not so. Raises
        Unavailable."""
        wanted = {share.card: share.mps for share in claim.shares if share.mps is not None}
        others = {share.card for share in claim.shares if not share.admin} - wanted.keys()
        if others.intersection(await mps.known()):
            await mps.look()
            for card in sorted(others.intersection(await mps.known())):
                return f"card {card}: {mps.closed().get(card) or 'its MPS control daemon has not ended yet'}"
        if wanted and (why := refused_by_claim(claim, [convert(NodePod, pod) for pod in pods])):
            return why
        self._making = claim
        for card, bounds in wanted.items():
            await mps.allocation(card, bounds)
        return ""

    async def prepare(self, claim: ClaimKey) -> Sequence[PreparedDevice] | str:
        try:
            return await super().prepare(claim)
        finally:
            self._making = None

    async def _drop(self, uids: Sequence[str]) -> None:
        await super()._drop(uids)
        if self.mps is not None and await self.mps.known():
            await self.mps.look()

    async def run_daemons(self) -> None:
        if self.mps is None:
            await super().run_daemons()
        else:
            await self.mps.look()
            await self.mps.keep()

    async def stop_daemons(self) -> None:
        if self.mps is not None:
            await self.mps.leave()

    def look(self, pods: Sequence[Json]) -> None:
        self._holders.look(pods, self.clock.monotonic())

    # -- MIG slices ---------------------------------------------------------------------------------------------------

    def _in_mig_mode(self) -> list[str]:
        return [card.uuid for card in self.watch.facts if card.mig]

    async def learn(self) -> None:
        if cards := self._in_mig_mode():
            await in_thread(partial(self.mig.learn, cards))

    def _holder(self, pods: Sequence[Json], *more: PreparedClaim) -> Holds:
        self._holders.look(pods, self.clock.monotonic())
        recorded = card_holders(self.kubelet_dir / "device-plugins")
        return self._holders.ask([*self._claims.values(), *more], recorded)

    async def make(self, claim: PreparedClaim, pods: Sequence[Json]) -> PreparedClaim | str:
        """Return the claim with the UUIDs of its slices, those that are there left as they are, and with the MPS daemons of its
        cards."""
        if self.mps is not None and (why := await self._shared_by_mps(self.mps, claim, pods)):
            return f"claim {claim.key}: {why}"
        if all(share.slice is None for share in claim.shares):
            return claim
        holds = self._holder(pods, claim)
        await self._bring_together(holds)
        return await in_thread(partial(self.mig.cut, claim, holds))

    async def _bring_together(self, holds: Holds) -> None:
        """Once a card: bring it and the journal together. The files of its claims are to be told (``_reconcile``)."""
        cards = self._in_mig_mode()
        new = self.mig.unreconciled(cards)
        for claim in self._claims.values():
            if any(share.slice is not None and share.card in new for share in claim.shares):
                self._untold.setdefault(claim.uid, "")
        await in_thread(partial(self.mig.reconcile, cards, holds))

    async def reconcile(self) -> None:
        """Reconcile cards that are new, and bring what came of it into the claims' files, from which containers start again."""
        if not (self._untold or self.mig.unreconciled(self._in_mig_mode())):
            return
        pods = await self._pods()
        await self._bring_together(self._holder(pods))
        self._untold = {uid: told for uid, told in self._untold.items() if uid in self._claims}
        for uid, told in list(self._untold.items()):
            try:
                found = await self._made_again(self._claims[uid], pods)
                if isinstance(found, PreparedClaim):
                    await in_thread(partial(self._files.write, found))
                    del self._untold[uid]
                    continue
            except (PumiceError, OSError) as error:
                found = str(error)
            if found != told:
                log.error("the slices of a claim are gone: %s", found)
            self._untold[uid] = found


# -- The files of shares: for each request a limits page and a region, which its containers mount -------------------


@dataclass(frozen=True)
class ShareFiles(ClaimFiles):
    """The files of prepared shares. ``index``: NVML's index of a card, by its UUID. ``mps_root``: the folder of the control
    daemons of MPS."""

    lock_dir: Path
    index: Callable[[str], int]
    mps_root: str = ""

    def edits(self, claim: PreparedClaim, request: str, shares: Sequence[ClaimShare]) -> cdi.Edits:
        shares = sorted(shares, key=lambda one: self.index(one.card))
        env = {variables.NVIDIA_VISIBLE_DEVICES: ",".join(dict.fromkeys(one.visible for one in shares))}
        if any(one.admin for one in shares):  # the runtime mounts NVML then, and nothing that computes
            env[variables.NVIDIA_DRIVER_CAPABILITIES] = "utility"
        if (bounds := shares[0].mps) is not None:
            make_directory(MakeDirectory(f"{self.mps_root}/shm"))
            bound, shared = reported(shares[0].card, bounds.mib, bounds.percent, self.mps_root)
            mounted = [cdi.Mount(one.host_path, one.container_path, ("rw", "nosuid", "nodev", "bind")) for one in shared]
            return cdi.Edits(env=tuple(f"{key}={value}" for key, value in {**env, **bound}.items()), mounts=tuple(mounted))
        if not any(one.limited for one in shares):
            return cdi.Edits(env=tuple(f"{key}={value}" for key, value in env.items()))
        file = self.folders.region(claim.uid, request)
        directory, region = file.parent, file.name
        page = self.folders.page(claim.uid, request)
        make_directory(MakeDirectory(str(directory)))
        path = f"{CACHE}/{region}"
        limits = LimitsPage(tuple(GrantedCard(one.card, one.memory, one.cores) for one in shares), path, priority=1)
        if not _says(page, limits):
            install_page(page, limits_page.render(limits))
        install_files([InstallFile(str(file), b"", 0o666, keep=True, durable=False)])
        env |= {variables.memory_limit_of(at): f"{one.memory >> 20}m" for at, one in enumerate(shares)}
        env |= {variables.SM_LIMIT: str(shares[0].cores), variables.SHARED_CACHE: path}
        read_only = ("ro", "nosuid", "nodev", "bind")
        mounts = (
            cdi.Mount(f"{self.root.parent}/libvgpu.so", LIBRARY, read_only),
            cdi.Mount(f"{self.root.parent}/ld.so.preload", PRELOAD, read_only),
            cdi.Mount(str(page), limits_page.PATH, read_only),
            cdi.Mount(str(directory), CACHE, ("rw", "bind")),
            cdi.Mount(str(file), path, ("rw", "bind")),
            cdi.Mount(str(self.lock_dir), LOCK, ("rw", "bind")),
        )
        return cdi.Edits(env=tuple(f"{key}={value}" for key, value in env.items()), mounts=mounts)


def _says(path: Path, limits: LimitsPage) -> bool:
    """Return whether the page grants that, whatever the monitor has said there since: containers that run have it mapped."""
    try:
        found = limits_page.parse(path.read_bytes())
    except OSError:
        return False
    return found is not None and msgspec.structs.replace(found, lifted=False, held=0, burst=0) == limits


# -- MIG slices for claims: cut by the plan and in the journal by which the plugin cuts them for pods ------------------


class ClaimSlices:
    """Synchronous and slow, as a driver is: callers run it in a thread, one call at a time."""

    def __init__(self, slices: Slices, journal: Journal) -> None:
        self._slices, self._cutter = slices, Cutter(slices, journal, of_claim)
        self._offers: dict[str, tuple[SliceProfile, ...]] = {}
        self._reconciled: set[str] = set()
        """Cards of which journal and slices have been brought together."""

    @property
    def offers(self) -> Mapping[str, Sequence[SliceProfile]]:
        """The driver's profiles of cards in MIG mode, by UUID. What it has said once stays published."""
        return self._offers

    def learn(self, cards: Iterable[str]) -> None:
        """Ask the driver about cards that it was not asked about yet."""
        for card in cards:
            if not self._offers.get(card):
                try:
                    self._offers[card] = self._slices.profiles(card)
                except CutRefused as error:
                    log.warning("not published: %s", error)

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        """The cards that cannot be cut, and why."""
        return self._cutter.closed(cards)

    def unreconciled(self, cards: Iterable[str]) -> list[str]:
        """The cards whose slices and journal were not brought together yet."""
        return [card for card in cards if card not in self._reconciled]

    def reconcile(self, cards: Iterable[str], holds: Holds) -> None:
        """Once a card: bring together what a crash, a reset or a boot has left of claims' slices; those of pods are left to the
        node's plugin. Raises Unavailable."""
        if new := self.unreconciled(cards):
            self._cutter.start(new, holds)
            self._reconciled.update(new)

    def cut(self, claim: PreparedClaim, holds: Holds) -> PreparedClaim | str:
        """Return the claim with the UUIDs of its slices, made where they are missing; or why it cannot have them. Raises
        Unavailable."""
        places = [_place(share) for share in claim.shares if share.slice is not None]
        if not places:
            return claim
        given = self._cutter.cut(places, claim.owner, holds)
        if isinstance(given, str):
            return f"claim {claim.key}: {given}"
        if given.made or given.removed:
            log.info("claim=%s: cut %s; removed %s", claim.key, _told(given.made), _told(given.removed))
        shares = []
        for share in claim.shares:
            if share.slice is not None:
                uuid = given.slices[_place(share)].uuid
                share = msgspec.structs.replace(share, slice=msgspec.structs.replace(share.slice, uuid=uuid))
            shares.append(share)
        return msgspec.structs.replace(claim, shares=tuple(shares))


class Holders:
    """The holders of slices: claims by their names in the journal, and pods as the node's plugin counts them."""

    def __init__(self) -> None:
        self._pods = Owners()

    def look(self, pods: Iterable[Any], now: float) -> None:
        """These pods, as the API server tells them, are there at this moment of a monotonic clock."""
        self._pods.look([_seen(pod) for pod in pods], now)

    def ask(self, claims: Iterable[PreparedClaim], recorded: Iterable[str]) -> Holds:
        """Return who holds what now. ``recorded``: UIDs of pods that have cards by the kubelet's record, which is late."""
        self._pods.ask({(uid, ""): frozenset() for uid in recorded})
        found = self._pods.holders() | {claim.owner: f"{CLAIM}{claim.key}" for claim in claims}
        return lambda uid: found.get(uid, "")


def _seen(pod: Any) -> NodePod:
    meta, phase = pod["metadata"], (pod.get("status") or {}).get("phase") or ""
    return NodePod(Meta(meta["name"], meta["namespace"], meta["uid"]), status=Status(phase))


def _place(share: ClaimShare) -> Place:
    assert share.slice is not None
    return Place(share.card, share.slice.profile, share.slice.start)


def _told(places: Sequence[Place]) -> str:
    return ",".join(f"{place}:{place.card}" for place in places) or "nothing"
