"""The driver of claims for NVIDIA's cards on one node: shares that the library holds to their limits, whole cards, MIG slices."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from pumice.adapters.journal import FileJournal
from pumice.adapters.kubelet.checkpoint import card_holders
from pumice.adapters.kubelet.claim_driver import ClaimDriver
from pumice.adapters.nvml import NvmlCards
from pumice.adapters.nvml.slices import NvmlSlices
from pumice.apps.node.card_watch import CardWatch, open_cards
from pumice.apps.node.claim_files import ClaimFiles
from pumice.apps.node.claim_files import install as install_page
from pumice.apps.node.files import digests, install_files, make_directory
from pumice.apps.node.node_claims import ClaimSettings, Endpoint, in_thread, serve_claims
from pumice.apps.node.node_claims import NodeClaims as Driver
from pumice.apps.node.pages import PluginHealth, plugin_pages
from pumice.devices.nvidia_vgpu.node import claims
from pumice.devices.nvidia_vgpu.node.answer import CACHE, LIBRARY, LOCK, NAMES, PRELOAD, install
from pumice.devices.nvidia_vgpu.node.mig_slices import Holds
from pumice.devices.nvidia_vgpu.plugin.claim_cutting import ClaimSlices, Holders
from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.model.errors import PumiceError
from pumice.node.claims import ClaimShare, Holdings, Json, PreparedClaim, annotated
from pumice.node.health import XidRule
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.ports.slices import Slices
from pumice.wire import cdi, limits_page, names, variables
from pumice.wire.kinds import NODES
from pumice.wire.limits_page import GrantedCard, LimitsPage
from pumice.wire.nvidia_vgpu import parse_handed_out

log = logging.getLogger("pumice.node")


@dataclass(frozen=True, slots=True)
class Settings(ClaimSettings):
    """``worlds``: whether a card is published as shared, whole, both, or by HAMi's names. Paths are the host's."""

    hook_path: Path = Path("/usr/local/vgpu")
    lock_dir: Path = Path("/tmp/vgpulock")
    library: Path | None = None
    nvml: str = ""
    worlds: str = claims.SHARED


async def run(
    settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
    ready: asyncio.Event | None = None, cards: Cards | None = None, slices: Slices | None = None,
    endpoint: Endpoint = ClaimDriver,
) -> None:  # fmt: skip
    """Serve until ``stop``. ``ready``: the kubelet has the driver, the API server its slices. ``cards`` and ``slices`` are this
    machine's (NVML unless given), ``endpoint`` the way to the kubelet. Raises PumiceError."""
    page, ready = PluginHealth(), ready or asyncio.Event()
    async with plugin_pages(settings.health_address, settings.health_port, page):
        await _serve(settings, cluster, clock, stop, ready, cards, slices, page, endpoint)


async def _serve(
    settings: Settings, cluster: Cluster, clock: Clock, stop: asyncio.Event, ready: asyncio.Event, cards: Cards | None,
    slices: Slices | None, page: PluginHealth, endpoint: Endpoint,
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
        await serve_claims(settings, NodeClaims(settings, cluster, clock, watch, mig), watch, page, stop, ready, endpoint)
    finally:
        watch.close(found.close if cards is None else None)


def _install(settings: Settings) -> None:
    if settings.library is not None:
        content = settings.library.read_bytes()
        install_files(install(str(settings.hook_path), content, digests(settings.hook_path, NAMES)))
    make_directory(MakeDirectory(str(settings.lock_dir)))


class NodeClaims(Driver):
    """The claims of one node's cards."""

    taints = (f"{names.CLAIM_DRIVER}/unhealthy", f"{names.CLAIM_DRIVER}/device-plugin", f"{names.CLAIM_DRIVER}/program")

    def __init__(self, settings: Settings, cluster: Cluster, clock: Clock, watch: CardWatch, mig: ClaimSlices) -> None:
        files = ShareFiles(settings.hook_path / "vgpu", settings.cdi_folder, settings.node_name, settings.lock_dir, self._index)
        super().__init__(settings, cluster, clock, watch, claims.driver_of(settings.worlds), files)
        self.worlds, self.mig = settings.worlds, mig
        self._holders = Holders()
        self._untold: dict[str, str] = {}
        """Claims with slices on cards that were settled, whose files do not say which yet, and why not where that was logged."""

    def _index(self, uuid: str) -> int:
        return next((card.index for card in self.watch.facts if card.uuid == uuid), 0)

    def specs(self, taints: Mapping[str, Sequence[str]], generation: int) -> Sequence[Json]:
        return claims.slice_specs(self.node, self.watch.facts, self.worlds, taints, generation, self.mig.offers)

    def decided(self, claim: Json, uid: str, holdings: Holdings) -> PreparedClaim | str:
        return claims.prepare(claim, uid, self.node, self.watch.facts, holdings, self.mig.offers, self.driver)

    async def annotated(self, pods: Sequence[Json]) -> dict[str, str]:
        node = await self.cluster.get(NODES, self.node)
        published = parse_handed_out((node["metadata"].get("annotations") or {}).get(names.HANDED_OUT, ""))
        holders = card_holders(self.kubelet_dir / "device-plugins")
        return annotated(pods, partial(claims.shares_of, self.node, published), holders)

    def serves(self, resource: str) -> bool:
        return resource == names.VGPU_NUMBER

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
        """Return the claim with the UUIDs of its slices; those that are there are left as they are."""
        if all(share.slice is None for share in claim.shares):
            return claim
        holds = self._holder(pods, claim)
        await self._bring_together(holds)
        return await in_thread(partial(self.mig.cut, claim, holds))

    async def _bring_together(self, holds: Holds) -> None:
        """Once a card: bring it and the journal together. The files of its claims are to be told (``_settle``)."""
        cards = self._in_mig_mode()
        new = self.mig.unsettled(cards)
        for claim in self._claims.values():
            if any(share.slice is not None and share.card in new for share in claim.shares):
                self._untold.setdefault(claim.uid, "")
        await in_thread(partial(self.mig.settle, cards, holds))

    async def settle(self) -> None:
        """Settle cards that are new, and bring what came of it into the claims' files, from which containers start again."""
        if not (self._untold or self.mig.unsettled(self._in_mig_mode())):
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
    """``index``: NVML's index of a card, by its UUID."""

    lock_dir: Path
    index: Callable[[str], int]

    def edits(self, claim: PreparedClaim, request: str, shares: Sequence[ClaimShare]) -> cdi.Edits:
        shares = sorted(shares, key=lambda one: self.index(one.card))
        env = {variables.NVIDIA_VISIBLE_DEVICES: ",".join(dict.fromkeys(one.visible for one in shares))}
        if any(one.admin for one in shares):  # the runtime mounts NVML then, and nothing that computes
            env[variables.NVIDIA_DRIVER_CAPABILITIES] = "utility"
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
