"""All nodes at once, for pods of which one container asks for one card: the common case (spec ascend 9 to 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pumice.devices.ascend_hami.ask import NpuAsk
from pumice.devices.ascend_hami.fit import RING_WORTH, slices_on
from pumice.devices.ascend_hami.inventory import ALL_CORES, Facts
from pumice.devices.ascend_hami.units import units_of
from pumice.devices.card_policies import POLICIES, TIE
from pumice.devices.protocol import Ask, Columns, Inventory, Ranking
from pumice.model.cards import Usage
from pumice.model.hardware.npu import NpuChip
from pumice.wire.ascend_hami import SOFT

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
