"""Prefer cards that are close to each other, among cards that the policy holds equal.

Only where the node reports links or NUMA nodes; without such data the order is upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pumice.devices.nvidia_vgpu.draft import Chosen
from pumice.devices.nvidia_vgpu.rows import Row
from pumice.model.cards import Card


def together(ordered: Sequence[Chosen], count: int, cards: Sequence[Card],
             tier: Callable[[Row], tuple[float, ...]]) -> list[Chosen]:  # fmt: skip
    """Rewrite the first ``count`` of ``ordered``: a tier that is taken only in part gives its closest cards.

    Grows from each possible first card and keeps the set with the widest links; ties keep the policy's order.
    """
    border = tier(ordered[count - 1][0])
    fixed = [item for item in ordered[:count] if tier(item[0]) != border]
    equal = [item for item in ordered if tier(item[0]) == border]
    missing = count - len(fixed)
    if missing >= len(equal):
        return list(ordered)
    starts = [[]] if fixed else [[item] for item in equal]
    grown = [_grow(fixed, start, equal, missing, cards) for start in starts]
    best = max(grown, key=lambda chosen: closeness([row.card for row, _, _ in chosen], cards))
    order = {item[0].card: place for place, item in enumerate(ordered)}
    return sorted(best, key=lambda item: order[item[0].card])


def _grow(fixed: list[Chosen], start: list[Chosen], equal: Sequence[Chosen], missing: int,
          cards: Sequence[Card]) -> list[Chosen]:  # fmt: skip
    chosen = [*fixed, *start]
    rest = [item for item in equal if item not in start]
    while len(chosen) < len(fixed) + missing:
        members = [row.card for row, _, _ in chosen]
        nearest = max(rest, key=lambda item: closeness([*members, item[0].card], cards))
        rest.remove(nearest)
        chosen.append(nearest)
    return chosen


def closeness(members: Sequence[int], cards: Sequence[Card]) -> tuple[int, int]:
    """(sum of NVLink widths, pairs on one NUMA node) inside a set of cards."""
    inside = set(members)
    widths = sum(width for index in members for peer, width in cards[index].links if peer in inside)
    numa = [cards[index].numa for index in members if cards[index].numa >= 0]
    return widths, sum(numa.count(node) for node in numa)
