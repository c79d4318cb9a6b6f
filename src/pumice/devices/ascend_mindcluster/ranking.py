"""All nodes at once (spec ascend 32 to 37): what ``fit`` says of each, by arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pumice.devices.ascend_mindcluster.ask import CoreAsk
from pumice.devices.ascend_mindcluster.chips import chip_state, others_made, takes, untouched
from pumice.devices.ascend_mindcluster.fit import AS_ASKED, MOST_IDLE
from pumice.devices.ascend_mindcluster.inventory import Facts
from pumice.devices.protocol import Ask, Columns, Inventory, Ranking
from pumice.model.cards import Usage
from pumice.model.hardware.npu_slices import SliceKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class CoreRanking(Ranking):
    """``scale``: what the score is multiplied with."""

    def __init__(self, kind: SliceKind, scale: float) -> None:
        self.kind, self.scale = kind, scale
        (self.cpus,) = set(kind.cpus.values())

    def vector(self, ask: Ask, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        want: CoreAsk = ask.detail
        if columns.state is None:
            return None
        present = columns.total > 0
        state: Any = columns.state.clip(0)
        cores: Any = (columns.total - columns.memory) * columns.flags
        idle = (MOST_IDLE - cores.sum(axis=1)).clip(0)
        if want.whole:
            free = columns.flags & present & untouched(columns.shares, state)
            size = columns.total.max(axis=1)
            may = (free.sum(axis=1) * size >= want.cores) & (want.cores % size.clip(1) == 0)
            return may, self.scale * (AS_ASKED + idle) * may
        may, score = idle < 0, 0.0 * idle
        for template in reversed(want.templates):  # the first that fits decides
            fits = (columns.flags & takes(template, cores, self.cpus - columns.cores, state)).any(axis=1)
            settled = ((state & others_made(self.kind, template)) == 0).all(axis=1)
            may = may & (fits == 0) | fits & settled
            score = score * (fits == 0) + fits * (AS_ASKED * (template is want.templates[0]) + idle)
        return may, self.scale * score * may

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        facts: Facts = inventory.config
        return chip_state(usage, self.kind, listed=facts.listed[card])
