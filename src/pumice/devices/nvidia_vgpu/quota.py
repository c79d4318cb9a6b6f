"""What a queue pays for vGPUs: cards, and memory and cores times cards; of percentages and slots what the cards make of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from msgspec import Struct

from pumice.devices.nvidia_vgpu.ask import UNSET, VgpuAsk
from pumice.devices.nvidia_vgpu.inventory import Facts
from pumice.devices.nvidia_vgpu.rows import dearest
from pumice.devices.protocol import Ask, Inventory
from pumice.model.cards import Grant, Mode
from pumice.wire.device_config import NvidiaConfig


def quota_of(want: VgpuAsk, config: NvidiaConfig) -> dict[str, int]:
    """What a percentage comes to is known only on a card: see ``VgpuLateQuota``."""
    return {
        config.resource_count_name: sum(x.count for x in want.containers),
        config.resource_memory_name: sum(x.count * x.memory for x in want.containers if x.percent == UNSET),
        config.resource_core_name: sum(x.count * x.cores for x in want.containers),
    }


class VgpuLateQuota(Struct, frozen=True):
    """The memory, where the ask does not say it."""

    config: NvidiaConfig

    def known_late(self, ask: Ask) -> bool:
        """Slots are larger than what was asked for, and the mode may be left to the node."""
        want: VgpuAsk = ask.detail
        return want.mode != Mode.HAMI_CORE or any(container.percent != UNSET for container in want.containers)

    def card_kinds(self, inventory: Inventory) -> frozenset[Hashable]:
        """(memory units, geometry) of its cards."""
        facts: Facts = inventory.config
        return frozenset((card.total, facts.geometries[card.index]) for card in inventory.cards)

    def bound(self, ask: Ask, kinds: Iterable[Any]) -> dict[str, int]:
        """Of a card in MIG mode its largest slot: which groups are in use when the pod's turn comes, nobody knows."""
        want: VgpuAsk = ask.detail
        cards = [(total, geometry) for total, geometry in kinds if geometry is None or want.mode != Mode.HAMI_CORE]
        memory = sum(
            container.count * max((dearest(container, total, geometry) for total, geometry in cards), default=0)
            for container in want.containers
        )
        return {self.config.resource_memory_name: memory}

    def of_grant(self, grant: Grant) -> dict[str, int]:
        """The memory that the cards give: of a slot its size, not what was asked of it (E-30)."""
        return {self.config.resource_memory_name: sum(piece.memory for piece in grant.pieces)}
