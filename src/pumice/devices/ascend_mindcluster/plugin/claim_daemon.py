"""The driver of claims for Ascend NPUs on one node: whole chips, and slices that it makes as MindCluster's plugin makes them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from pumice.adapters.dcmi import DcmiCards, DcmiVnpus
from pumice.adapters.journal import FileJournal
from pumice.adapters.kubelet.checkpoint import holders_of
from pumice.apps.node.card_watch import CardWatch
from pumice.apps.node.claim_files import ClaimFiles
from pumice.apps.node.node_claims import ClaimSettings, in_thread, serve_claims
from pumice.apps.node.node_claims import NodeClaims as Driver
from pumice.devices.ascend_mindcluster.node import claims
from pumice.devices.ascend_mindcluster.node.allocator import answer
from pumice.devices.ascend_mindcluster.node.keeper import ChipKeeper, State, foreign
from pumice.model.amount import MIB
from pumice.model.errors import PumiceError
from pumice.model.hardware.npu import driver_chips
from pumice.node.claims import ClaimShare, Holdings, Json, PreparedClaim, annotated
from pumice.ports.cards import CardReading, Cards, CardsUnavailable
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.ports.slices import NpuRefused, Place, Vnpus
from pumice.wire import cdi, names
from pumice.wire.our_devices import NPU_CLAIMS

log = logging.getLogger("pumice.node")


@dataclass(frozen=True, slots=True)
class Settings(ClaimSettings):
    """The settings of the driver of claims. ``dcmi``: file or folder of the driver's library, empty for the system's.
    ``hook_path``: the host's folder of the journal and of the claims' records."""

    dcmi: str = ""
    hook_path: Path = Path("/usr/local/hami-vnpu-core")


async def run(
    settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
    ready: asyncio.Event | None = None, cards: Cards | None = None, vnpus: Vnpus | None = None,
) -> None:  # fmt: skip
    """Serve until ``stop``. ``ready``: the kubelet has the driver, the API server its slices. ``cards`` and ``vnpus`` are this
    machine's (DCMI unless given). Raises PumiceError."""
    async def made(watch: CardWatch, found: Cards) -> NodeClaims:
        return NodeClaims(settings, cluster, clock, watch, vnpus or DcmiVnpus(settings.dcmi), found.readings)

    opened = partial(DcmiCards, settings.dcmi)
    await serve_claims(settings, made, opened, clock=clock, stop=stop, ready=ready, cards=cards)


@dataclass(frozen=True)
class ChipFiles(ClaimFiles):
    """The files of prepared claims for chips. ``number``: the physical id of a chip, by its UUID."""

    number: Callable[[str], int]
    kind: ClassVar[str] = f"{names.OUR_DOMAIN}/npu-claim"

    def edits(self, claim: PreparedClaim, request: str, shares: Sequence[ClaimShare]) -> cdi.Edits:
        """Return the variables that Ascend's container runtime reads."""
        slices = [share.slice.uuid for share in shares if share.slice is not None]
        chips = [str(number) for number in sorted(self.number(share.card) for share in shares)]
        env = answer(slices or chips, is_slice=bool(slices)).env
        return cdi.Edits(env=tuple(f"{key}={value}" for key, value in env.items()))


@dataclass(frozen=True, slots=True)
class _Holders:
    """Claims as the owners that the slice journal names: who holds a slice also runs with it."""

    names: Mapping[str, str]

    def runs(self, uid: str) -> str:
        return self.names.get(uid, "")

    def holds(self, uid: str) -> str:
        return self.names.get(uid, "")


class NodeClaims(Driver):
    """The claims of one node's chips."""

    book = NPU_CLAIMS.book
    taints = (f"{names.NPU_CLAIM_DRIVER}/unhealthy", f"{names.NPU_CLAIM_DRIVER}/device-plugin",
              f"{names.NPU_CLAIM_DRIVER}/program")  # fmt: skip

    def __init__(
        self, settings: Settings, cluster: Cluster, clock: Clock, watch: CardWatch, vnpus: Vnpus,
        readings: Callable[[], Iterable[CardReading]] = tuple,
    ) -> None:  # fmt: skip
        """``readings``: the measurements of this machine's chips."""
        files = ChipFiles(settings.hook_path, settings.cdi_folder, settings.node_name, self._number)
        super().__init__(settings, cluster, clock, watch, names.NPU_CLAIM_DRIVER, files)
        self._keeper = ChipKeeper("NPU", vnpus, FileJournal(settings.hook_path / "claims.json"), slices=self._slices)
        self._vnpus, self._readings = vnpus, readings
        self._failed: Mapping[Place, str] = {}
        self._cut: Mapping[str, str] = {}
        """Chips with slices that no claim has, as last seen."""

    def _number(self, uuid: str) -> int:
        return next((card.minor for card in self.watch.facts if card.uuid == uuid), -1)

    def _slices(self, uuid: str) -> int:
        return next((driver_chips()[card.name].slices for card in self.watch.facts if card.uuid == uuid), 0)

    def specs(self, taints: Mapping[str, Sequence[str]], generation: int) -> Sequence[Json]:
        return claims.slice_specs(self.node, self.watch.facts, taints, generation)

    def decided(self, claim: Json, uid: str, holdings: Holdings) -> PreparedClaim | str:
        return claims.prepare(claim, uid, self.node, self.watch.facts, holdings)

    async def annotated(self, pods: Sequence[Json]) -> dict[str, str]:
        holders = holders_of(self.kubelet_dir / "device-plugins", names.HUAWEI)
        return {**self._cut, **annotated(pods, partial(claims.chips_of, self.node, self.watch.facts), holders)}

    def serves(self, resource: str) -> bool:
        return resource.startswith(names.HUAWEI)

    def use_of(self, claim: PreparedClaim, share: ClaimShare) -> tuple[int | None, float | None]:
        """As the driver tells it of a slice, and of a whole chip."""
        with suppress(NpuRefused, CardsUnavailable):
            if share.slice is None:
                chip = next((one for one in self._readings() if one.uuid == share.card), None)
                return (None, None) if chip is None else (chip.memory_used, chip.utilization if chip.utilization >= 0 else None)
            for one in self._vnpus.list(share.card):
                if (str(one.id), one.template) == (share.slice.uuid, share.slice.profile):
                    return one.used * MIB, one.load * share.cores / claims.ALL
        return None, None

    async def make(self, claim: PreparedClaim, pods: Sequence[Json]) -> PreparedClaim | str:
        holders = _Holders(claims.owners([*self._claims.values(), claim]))
        before = claims.given(self._claims.values(), self._number)
        shares = []
        for share in claim.shares:
            place = Place(share.card, share.slice.profile if share.slice is not None else "", self._number(share.card))
            owner = claims.owner_of(claim, share)
            given, state = await in_thread(partial(self._keeper.give, [place], owner, [owner], self._chips, holders, before))
            self._tell(state)
            if share.slice is not None:
                share = msgspec.structs.replace(share, slice=msgspec.structs.replace(share.slice, uuid=given[place].uuid))
            shares.append(share)
        return msgspec.structs.replace(claim, shares=tuple(shares))

    @property
    def _chips(self) -> list[str]:
        return [card.uuid for card in self.watch.facts]

    async def reconcile(self) -> None:
        """Destroy slices that no claim has, and make again what has vanished under one."""
        await self._reconcile(self._claims.values())

    async def _reconcile(self, had: Iterable[PreparedClaim]) -> None:
        """``had``: the claims as they were, whose slices are ours also where the journal of slices was lost."""
        owners, given = claims.owners(self._claims.values()), claims.given(had, self._number)
        state = await in_thread(partial(self._keeper.sweep, self._chips, _Holders(owners), {}, owners.keys(), given))
        self._cut = claims.cut_by_others(foreign(state.entries, state.seen))
        self._tell(state)

    async def _drop(self, uids: Sequence[str]) -> None:
        before = self._claims
        with suppress(PumiceError):  # whoever is killed below leaves a journal that says whose slices these were
            await self.reconcile()
        await super()._drop(uids)
        if len(self._claims) < len(before):  # the next one may be for the same chip
            await self._reconcile(before.values())

    def _tell(self, state: State) -> None:
        for place in state.destroyed:
            log.info("vNPU %d (%s) of chip %s destroyed: no claim has it", place.start, place.profile, place.card)
        for place in state.restored:
            log.info("vNPU %d (%s) of chip %s made again for its claim", place.start, place.profile, place.card)
        failed: dict[Place, Any] = dict(state.failed)
        for place, why in failed.items():
            if self._failed.get(place) != why:
                log.error("vNPU %d (%s) vanished under its claim and cannot be made again: %s", place.start, place.profile, why)
        self._failed = failed
