"""All nodes of one class at once: the arithmetic on arrays is in ``vector``, imported when somebody ranks."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pumice.devices.nvidia_vgpu.ask import VgpuAsk
from pumice.devices.nvidia_vgpu.inventory import Facts
from pumice.devices.nvidia_vgpu.mig import STATES
from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue
from pumice.devices.nvidia_vgpu.mig_policy import Chooser
from pumice.devices.protocol import Ask, Columns, Inventory, Ranking, WithoutConstraints
from pumice.model.cards import Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class VgpuRanking(Ranking):
    """``remembered`` gives equal asks one value."""

    catalogue: Catalogue
    choose: Chooser | None
    remembered: Callable[[VgpuAsk], Ask]

    def vector(self, ask: Ask, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        from pumice.devices.nvidia_vgpu.vector import rank_nodes

        return rank_nodes(ask.detail, columns, self.catalogue, self.choose)

    def without_constraints(self, ask: Ask) -> WithoutConstraints | None:
        want: VgpuAsk = ask.detail
        if not (want.group or want.rules or want.use_uuids or want.nouse_uuids):
            return None
        uuids = frozenset(want.use_uuids or want.nouse_uuids)
        plain = replace(want, use_uuids=(), nouse_uuids=(), group="", rules=frozenset())
        return WithoutConstraints(None if want.use_uuids else self.remembered(plain), uuids, want.group, want.rules)

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        facts: Facts = inventory.config
        geometry = facts.geometries[card] if card < len(facts.geometries) else None
        if geometry is None:
            return -1
        state = geometry.number_of(*geometry.held(usage))
        return state if state < 0 else geometry.number * STATES + state

    def empty_kind(self, inventory: Inventory) -> Hashable:
        facts: Facts = inventory.config
        return facts.geometries
