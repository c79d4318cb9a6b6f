"""Which cards of a node can ever serve a request, worked out once per ask and kind of node, and remembered.

The walk over cards (fit.py) then compares plain integers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pumice.devices.nvidia_vgpu.ask import UNSET, ContainerAsk, VgpuAsk
from pumice.devices.nvidia_vgpu.inventory import CORDONED, Facts
from pumice.devices.nvidia_vgpu.mig import Geometry
from pumice.model.cards import Card, Mode
from pumice.model.refusal import CardMisfit, Short

MEMO_LIMIT = 4096  # asks remembered per kind of node


class Row(NamedTuple):
    """One card that a container may use. ``need`` in memory units; ``need_mib`` and ``geometry`` matter for MIG."""

    card: int
    total: int
    limit: int
    need: int
    need_mib: int
    geometry: Geometry | None


@dataclass(slots=True)
class Rows:
    """Per sharing mode that the pod may use here, per container, the cards; ``hopeless`` is worked out on demand."""

    ask: VgpuAsk
    modes: tuple[tuple[Mode, tuple[tuple[Row, ...], ...]], ...]
    never: tuple[bool, ...]
    """Per card whether it can never serve the pod, whatever is booked on it."""
    needs: tuple[tuple[tuple[int, int], ...], ...]
    """Per container and card ``needs``."""
    hopeless: bool | None = None


def rows_of(ask: VgpuAsk, cards: tuple[Card, ...], facts: Facts) -> Rows:
    """The remembered rows. An ask that names cards has rows of its own on every node, which are not worth keeping."""
    if ask.use_uuids or ask.nouse_uuids:
        return _rows(ask, cards, facts)
    memo = facts.shape.memo
    found: Rows | None = memo.get(id(ask))
    if found is not None and found.ask is ask:  # by identity: another configuration's ask may have had this address
        return found
    if len(memo) >= MEMO_LIMIT:
        memo.clear()
    rows = memo[id(ask)] = _rows(ask, cards, facts)
    return rows


def _rows(ask: VgpuAsk, cards: tuple[Card, ...], facts: Facts) -> Rows:
    modes = []
    never = tuple(unusable(ask, card, facts.types[card.index]) is not None for card in cards)
    for mode in (Mode.HAMI_CORE, Mode.MIG):
        usable = [card for card in cards if card.mode is mode and not never[card.index]]
        if usable:
            modes.append((mode, tuple(_of_container(c, usable, facts) for c in ask.containers)))
    amounts = tuple(tuple(needs(c, card, facts.geometries[card.index]) for card in cards) for c in ask.containers)
    return Rows(ask, tuple(modes), never, amounts)


def _of_container(ask: ContainerAsk, cards: list[Card], facts: Facts) -> tuple[Row, ...]:
    rows = []
    for card in cards:
        need, need_mib = needs(ask, card, facts.geometries[card.index])
        if need <= card.total and ask.cores <= 100:
            geometry = facts.geometries[card.index]
            if geometry is None or need_mib <= geometry.largest:
                rows.append(Row(card.index, card.total, card.shares, need, need_mib, geometry))
    return tuple(rows)


def needs(ask: ContainerAsk, card: Card, geometry: Geometry | None) -> tuple[int, int]:
    """(memory units, MiB to look for in the geometry)."""
    need = needed(ask, card.total, geometry)
    return (need, 0) if geometry is None else (need, need * geometry.factor)


def needed(ask: ContainerAsk, total: int, geometry: Geometry | None) -> int:
    """Memory units on a card of ``total`` units. In MIG mode a percentage is one of the largest slot, which is what a whole card
    means there (D-24): the driver keeps some memory back, so that no slot is half of what the card registers."""
    if geometry is None or ask.percent > 100:  # UNSET, or more than there is
        return ask.need(total)
    return min(total, geometry.part(ask.percent) // geometry.factor)


def dearest(ask: ContainerAsk, total: int, geometry: Geometry | None) -> int:
    """The most memory units that one card of this kind can give for it; 0 where it gives nothing."""
    need = needed(ask, total, geometry)
    if geometry is None:
        return need if need <= total else 0
    return geometry.largest // geometry.factor if need * geometry.factor <= geometry.largest else 0


def unusable(ask: VgpuAsk, card: Card, lower_type: str) -> CardMisfit | None:
    """Why the card can never serve the pod, whatever is booked on it; None when it can."""
    if ask.mode is not None and ask.mode != card.mode.value:
        return CardMisfit(card.uuid, Short.MODE, detail=f"card is in mode {card.mode.value}, wanted {ask.mode!r}")
    if card.blocked:
        short = Short.CORDON if card.blocked == CORDONED else Short.QUARANTINE
        return CardMisfit(card.uuid, short, detail=card.blocked)
    if not card.healthy:
        unserved = " in MIG mode: its node's plugin cuts no slices, or the card is sick" if card.mode is Mode.MIG else ""
        return CardMisfit(card.uuid, Short.HEALTH, detail=f"card is registered as unhealthy{unserved}")
    if card.uuid in ask.nouse_uuids or (ask.use_uuids and card.uuid not in ask.use_uuids):
        return CardMisfit(card.uuid, Short.UUID, detail="excluded by the pod's UUID lists")
    return None if type_allowed(ask, card.type, lower_type) else CardMisfit(
        card.uuid, Short.TYPE, detail=f"type {card.type!r} is excluded by the pod's type lists"
    )  # fmt: skip


def type_allowed(ask: VgpuAsk, card_type: str, lower_type: str) -> bool:
    """Check h of section 7: the lists compare without regard to case, the vendor word with it."""
    if "NVIDIA" not in card_type:
        return False
    if ask.use_types:
        return any(item in lower_type for item in ask.use_types)
    return not any(item in lower_type for item in ask.nouse_types)


__all__ = ["UNSET", "Row", "Rows", "dearest", "needs", "rows_of", "type_allowed", "unusable"]
