"""Which nodes have room for a pod of the legacy sharing, all at once; none is better than another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pumice.devices.protocol import Ask, Columns, Ranking

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class GpushareRanking(Ranking):
    """``number``: whole cards, else memory of one."""

    number: bool

    def vector(self, ask: Ask, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        amount: int = ask.detail.amount
        if self.number:
            may = (columns.flags & (columns.shares == 0)).sum(axis=1) >= amount
        else:
            may = (columns.flags & ((columns.total - columns.memory).clip(0) >= amount)).any(axis=1)
        return may, may * 0.0
