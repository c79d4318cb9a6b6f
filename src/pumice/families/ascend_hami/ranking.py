"""All nodes at once, for pods of which one container asks for one card: the common case (spec ascend 9 to 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pumice.families.ascend_hami.ask import NpuAsk
from pumice.families.ascend_hami.fit import RING_WORTH
from pumice.families.ascend_hami.inventory import ALL_CORES, Facts
from pumice.families.card_policies import POLICIES, TIE
from pumice.families.protocol import Ask, Columns, Inventory, Ranking
from pumice.model.cards import Usage
from pumice.wire.ascend_hami import SOFT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SOFT_NODE, HOLDS_SOFT, RINGED = 1, 2, 4
"""Bits of a card's state."""


class NpuRanking(Ranking):
    """Pods that want several cards, or name some, are looked at node by node."""

    def vector(self, ask: Ask, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        want: NpuAsk = ask.detail
        if len(want.filled) != 1 or want.filled[0].count != 1 or columns.state is None or want.use_uuids or want.nouse_uuids:
            return None
        slot, state = want.filled[0], columns.state.clip(0)  # -1: no card
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
            may &= (state & (SOFT_NODE | HOLDS_SOFT)) == 0
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
        held = usage.holders.values()
        holds_soft = any(piece.slot is not None and piece.slot.profile == SOFT for pieces in held for piece in pieces)
        return SOFT_NODE * facts.soft + HOLDS_SOFT * holds_soft + RINGED * (facts.rings is not None)

