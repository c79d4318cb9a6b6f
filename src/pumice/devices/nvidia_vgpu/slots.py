"""Which MIG slots one container gets, as far as one walk over the cards can tell (spec deviceshare-nvidia 8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pumice.devices.nvidia_vgpu.ask import ContainerAsk
from pumice.devices.nvidia_vgpu.draft import Chosen, Draft, charge, copied, ordered, passes
from pumice.devices.nvidia_vgpu.mig import TANGLED, Geometry
from pumice.devices.nvidia_vgpu.rows import Row

MigChooser = Callable[[Geometry, int, int, int], tuple[float, int, int] | None]
"""(geometry, active group, used mask, need MiB) -> (cost, group, slot), or None; least cost first, then card order."""


def slots_for(rows: Sequence[Row], ask: ContainerAsk, policy: str, draft: Draft, closed: Collection[int],
              choose: MigChooser | None) -> list[Chosen]:  # fmt: skip
    """Different cards as far as they reach, then further slots of the same cards (E-36b)."""
    in_order = [row for row in ordered(rows, policy, draft) if row.card not in closed]
    found = _rounds(in_order, ask, draft, choose)
    if len(found) < ask.count and ask.count > 1:
        grouped = _grouped(in_order, ask, draft)
        found = max(found, grouped, key=len)
    return found[: ask.count]


def cost_of(draft: Draft, row: Row, group: int, slot: int, choose: MigChooser | None) -> float | None:
    """Return the cost of this slot by the chooser; None where nobody counts costs."""
    if choose is None or row.geometry is None:
        return None
    offer = choose(row.geometry, draft.group[row.card], draft.used[row.card], row.need_mib)
    if offer is not None and offer[1:] == (group, slot):
        return offer[0]
    return float(row.geometry.memory(group, slot) - row.need_mib)  # a further slot of the same container


def _rounds(ordered: Sequence[Row], ask: ContainerAsk, draft: Draft,
            choose: MigChooser | None) -> list[Chosen]:  # fmt: skip
    mine = copied(draft)
    found: list[Chosen] = []
    while len(found) < ask.count:
        taken: set[int] = set()
        while len(found) < ask.count:
            pick = _next_slot(ordered, ask.cores, mine, taken, choose)
            if pick is None:
                break
            row, group, slot = pick
            charge(mine, row, ask, "", group, slot)
            taken.add(row.card)
            found.append(pick)
        if not taken:
            break
    return found


def _next_slot(ordered: Sequence[Row], cores: int, draft: Draft, taken: Collection[int],
               choose: MigChooser | None) -> Chosen | None:  # fmt: skip
    best: Chosen | None = None
    least = 0.0
    for row in ordered:
        geometry = row.geometry
        if row.card in taken or geometry is None or not passes(row, cores, draft):
            continue
        active, used = draft.group[row.card], draft.used[row.card]
        if active == TANGLED:
            continue
        if choose is None:
            choice = geometry.first_fit(active, used, row.need_mib)
            if choice is not None:
                return row, *choice
            continue
        offer = choose(geometry, active, used, row.need_mib)
        if offer is not None and (best is None or offer[0] < least):
            least, best = offer[0], (row, offer[1], offer[2])
    return best


def _grouped(ordered: Sequence[Row], ask: ContainerAsk, draft: Draft) -> list[Chosen]:
    """The other way to several slots: empty cards open the first group that holds as many as possible of them."""
    found: list[Chosen] = []
    mine = copied(draft)
    for row in ordered:
        geometry = row.geometry
        if geometry is None or geometry.anywhere:  # there, first fit leaves as much room as any order
            continue
        index, missing = row.card, ask.count - len(found)
        if not mine.used[index]:
            most = min(missing, max(group.room(row.need_mib, 0) for group in geometry.groups))
            mine.group[index] = geometry.first_with_room(row.need_mib, most)
        group = mine.group[index]
        if group < 0:
            continue
        while len(found) < ask.count and passes(row, ask.cores, mine):
            slot = geometry.groups[group].first(row.need_mib, mine.used[index])
            if slot < 0:
                break
            charge(mine, row, ask, "", group, slot)
            found.append((row, group, slot))
    return found
