"""One type of Ascend NPU in HAMi's mode as a family: each method is one step of the protocol, told elsewhere in this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pumice.devices.ascend_hami.ask import NpuAsk, npu_ask
from pumice.devices.ascend_hami.fit import REFUSED, RING_WORTH, choose, explain, node_score, pieces_of, slices_on
from pumice.devices.ascend_hami.inventory import ALL_CORES, Facts, npu_inventory
from pumice.devices.ascend_hami.planning import NpuPlanner
from pumice.devices.ascend_hami.replay import replay_pod
from pumice.devices.ascend_hami.units import units_of
from pumice.devices.card_policies import POLICIES, TIE
from pumice.devices.protocol import Ask, Columns, Family, Fit, Inventory, NodeCards, Ranking, Series, Tunables
from pumice.devices.settings import Settings
from pumice.model.cards import Grant, Piece, Usage
from pumice.model.hardware.npu import NpuChip
from pumice.model.refusal import Misfit, Refusal, Short
from pumice.wire import names
from pumice.wire.ascend_hami import (
    COMMON_KEYS,
    SOFT,
    NpuDevice,
    RuntimeNpu,
    allocated_key,
    nouse_key,
    register_key,
    render_npu_binding,
    runtime_key,
    to_allocate_key,
    use_key,
)
from pumice.wire.device_config import DeviceConfig
from pumice.wire.npu_config import shipped
from pumice.wire.objects import Node, Pod

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SOFT_NODE, HOLDS_SOFT, RINGED, FIRST_TEMPLATE = 1, 2, 4, 8
"""Bits of a card's state; from the last on one for each template of which no slice can be made there any more."""
MOST_TEMPLATES = 27


class NpuRanking(Ranking):
    """Pods that want several cards, or name some, are looked at node by node."""

    def __init__(self, chip: NpuChip) -> None:
        self._units = units_of(chip)
        self._bits = {t.name: FIRST_TEMPLATE << at for at, t in enumerate(chip.templates[:MOST_TEMPLATES])}

    def vector(self, ask: Ask, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        want: NpuAsk = ask.detail
        if len(want.filled) != 1 or want.filled[0].count != 1 or columns.state is None or want.use_uuids or want.nouse_uuids:
            return None
        slot, state = want.filled[0], columns.state.clip(0)  # -1: no card
        if slot.template and slot.template not in self._bits:
            return None
        idle = columns.total - columns.memory
        may: Any = columns.flags & (columns.shares < columns.share_limit)
        may &= (columns.shares == 0) & (idle >= columns.total) if slot.whole else idle >= slot.memory
        if want.soft:
            may &= (state & SOFT_NODE) > 0
            may &= slot.cores <= ALL_CORES - columns.cores
            if slot.cores == ALL_CORES:
                may &= columns.shares == 0
            elif not slot.cores:
                may &= columns.cores < ALL_CORES
        elif not slot.whole:
            may &= (state & (SOFT_NODE | HOLDS_SOFT | self._bits[slot.template])) == 0
        ring: Any = RING_WORTH * ((state & RINGED) > 0).any(axis=1)
        known = POLICIES.get(want.policy)
        if known is None:
            return may.any(axis=1), ring
        best = (may * known.worth(columns.memory, columns.total.clip(1), columns.shares)).max(axis=1)  # it will be taken
        used, total = columns.memory.sum(axis=1), columns.total.sum(axis=1).clip(1)
        shares, limit = columns.shares.sum(axis=1), columns.share_limit.sum(axis=1).clip(1)
        return may.any(axis=1), best + ring + TIE * known.tie(used, total, shares, limit)

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        facts: Facts = inventory.config
        held = slices_on(usage)
        full = sum(bit for name, bit in self._bits.items() if held and self._units.missing(name, held) is not None)
        return SOFT_NODE * facts.soft + HOLDS_SOFT * (SOFT in held) + RINGED * (facts.rings is not None) + full


class AscendHami(Family):
    """One chip of the device configuration; ``soft``: what nodes do that do not say how they share their cards."""

    lock = names.NODE_LOCK_HAMI
    series = Series("pumice_vnpu_card", "pumice_vnpu")

    def __init__(self, chip: NpuChip, settings: Settings, *, soft: bool = False) -> None:
        self.chip, self.settings, self.soft = chip, settings, soft
        self.name = chip.word
        self.ranking = NpuRanking(chip)
        self.planner = NpuPlanner(chip.word, chip)
        self.served_elsewhere = frozenset((chip.resource,))
        self.register = register_key(chip.word)
        self.allocation_keys = (
            to_allocate_key(chip.word), allocated_key(chip.word), runtime_key(chip.word), *COMMON_KEYS,
        )  # fmt: skip

    @classmethod
    def of_config(cls, config: DeviceConfig | None, settings: Settings) -> list[Family]:
        """A family for each chip; those that are known without a configuration where it says nothing of NPUs."""
        found = (None if config is None else config.vnpus) or shipped()
        return [cls(chip, settings, soft=found.soft) for chip in found.chips]

    @property
    def tunables(self) -> Tunables:
        chip = self.chip
        return Tunables(
            chip.resource, chip.memory_resource, chip.core_resource,
            mode=names.VNPU_MODE, modes=(SOFT,), forbids=(use_key(chip.word), nouse_key(chip.word)),
        )  # fmt: skip

    @property
    def steering(self) -> Mapping[str, tuple[str, ...]]:
        return {names.VNPU_MODE: (SOFT,), use_key(self.chip.word): (), nouse_key(self.chip.word): ()}

    def remarks(self, limits: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if self.chip.memory_resource in limits and self.chip.resource not in limits:
            yield self.chip.memory_resource, f"memory without a card gets nothing; add {self.chip.resource}: 1"

    def resources(self) -> frozenset[str]:
        return frozenset((self.chip.resource, self.chip.memory_resource, self.chip.core_resource))

    def parameters(self) -> frozenset[str]:
        """No node offers them: they say what of a card is wanted (section 1.3)."""
        return frozenset((self.chip.memory_resource, self.chip.core_resource))

    def resources_only(self, pod: Pod) -> bool:
        return self.steering.keys().isdisjoint(pod.metadata.annotations)

    def ask(self, pod: Pod) -> Ask | Refusal | None:
        want = npu_ask(pod, self.chip, self.settings.policy)
        return Ask(self.name, (self.name, want), want) if isinstance(want, NpuAsk) else want

    def least_memory(self, ask: Ask) -> int:
        """Of whole cards that is not known: they differ."""
        want: NpuAsk = ask.detail
        return sum(slot.count * slot.memory for slot in want.filled) if all(slot.memory for slot in want.filled) else 0

    def inventory(self, node: Node) -> Inventory | None:
        return npu_inventory(node, self.chip, self.soft)

    def fit(self, ask: Ask, cards: NodeCards) -> Fit | Misfit:
        if not cards.inventory.cards:
            return self.no_devices(cards.node)
        found = choose(ask.detail, cards, self.chip.pairs)
        if isinstance(found, int):
            return explain(ask.detail, found, cards)
        pieces = pieces_of(ask.detail, found, cards.inventory.cards)
        return Fit(Grant(self.name, cards.node, pieces), node_score(ask.detail, found, cards))

    def quick(self, ask: Ask, cards: NodeCards) -> Fit | None:
        found = choose(ask.detail, cards, self.chip.pairs) if cards.inventory.cards else 0
        if isinstance(found, int):
            return None
        pieces = pieces_of(ask.detail, found, cards.inventory.cards)
        return Fit(Grant(self.name, cards.node, pieces), node_score(ask.detail, found, cards))

    def annotations(self, grant: Grant, now_ns: int) -> dict[str, str]:
        devices = [[self._device(piece) for piece in slot] for slot in grant.containers]
        return render_npu_binding(self.chip.word, grant.node, devices, map(_told, grant.pieces), now_ns)

    def _device(self, piece: Piece) -> NpuDevice:
        return NpuDevice(piece.uuid, self.chip.word, piece.asked, piece.cores)

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Grant | Refusal | None:
        want = npu_ask(pod, self.chip, "")
        return replay_pod(self.name, pod, node, inventory, self.chip, want if isinstance(want, NpuAsk) else None, handed)

    def quota(self, ask: Ask) -> dict[str, int]:
        """Cards alone count for queues; the memory of a whole card depends on the card."""
        return {self.chip.resource: sum(slot.count for slot in ask.detail.filled)}

    def no_devices(self, node: str) -> Misfit:
        return Misfit(node, Short.NO_DEVICES, f"{REFUSED}: no {self.chip.word} on the node")


def _told(piece: Piece) -> RuntimeNpu:
    """Whole cards are told by their UUID alone."""
    if piece.slot is None:
        return RuntimeNpu(piece.uuid)
    if piece.slot.profile == SOFT:
        return RuntimeNpu(piece.uuid, memory=piece.asked, cores=piece.cores)
    return RuntimeNpu(piece.uuid, piece.slot.profile)
