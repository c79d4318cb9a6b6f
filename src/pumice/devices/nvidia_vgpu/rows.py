"""Cards of a node that can ever serve a request, worked out once per ask and kind of node, and remembered.

The walk over cards (fit.py) then compares plain integers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pumice.devices.nvidia_vgpu.device_request import UNSET, ContainerRequest, VgpuRequest
from pumice.devices.nvidia_vgpu.inventory import CORDONED, Facts
from pumice.devices.nvidia_vgpu.mig import Geometry
from pumice.model.cards import Card, Mode
from pumice.model.refusal import CardFitError, Short

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

    device_request: VgpuRequest
    modes: tuple[tuple[Mode, tuple[tuple[Row, ...], ...]], ...]
    never: tuple[bool, ...]
    """Per card whether it can never serve the pod, whatever is booked on it."""
    needs: tuple[tuple[tuple[int, int], ...], ...]
    """Per container and card ``needs``."""
    hopeless: bool | None = None


def rows_of(device_request: VgpuRequest, cards: tuple[Card, ...], facts: Facts) -> Rows:
    """The remembered rows. An ask that names cards has rows of its own on every node, which are not worth keeping."""
    if device_request.use_uuids or device_request.nouse_uuids:
        return _rows(device_request, cards, facts)
    memo = facts.shape.memo
    found: Rows | None = memo.get(id(device_request))
    # by identity: another configuration's ask may have had this address
    if found is not None and found.device_request is device_request:
        return found
    if len(memo) >= MEMO_LIMIT:
        memo.clear()
    rows = memo[id(device_request)] = _rows(device_request, cards, facts)
    return rows


def _rows(device_request: VgpuRequest, cards: tuple[Card, ...], facts: Facts) -> Rows:
    modes = []
    never = tuple(unusable(device_request, card, facts.types[card.index]) is not None for card in cards)
    for mode in (Mode.HAMI_CORE, Mode.MIG):
        usable = [card for card in cards if card.mode is mode and not never[card.index]]
        if usable:
            modes.append((mode, tuple(_of_container(c, usable, facts) for c in device_request.containers)))
    amounts = tuple(tuple(needs(c, card, facts.geometries[card.index]) for card in cards) for c in device_request.containers)
    return Rows(device_request, tuple(modes), never, amounts)


def _of_container(device_request: ContainerRequest, cards: list[Card], facts: Facts) -> tuple[Row, ...]:
    rows = []
    for card in cards:
        need, need_mib = needs(device_request, card, facts.geometries[card.index])
        if need <= card.total and device_request.cores <= 100:
            geometry = facts.geometries[card.index]
            if geometry is None or need_mib <= geometry.largest:
                rows.append(Row(card.index, card.total, card.shares, need, need_mib, geometry))
    return tuple(rows)


def needs(device_request: ContainerRequest, card: Card, geometry: Geometry | None) -> tuple[int, int]:
    """(memory units, MiB to look for in the geometry)."""
    need = needed(device_request, card.total, geometry)
    return (need, 0) if geometry is None else (need, need * geometry.factor)


def needed(device_request: ContainerRequest, total: int, geometry: Geometry | None) -> int:
    """Memory units on a card of ``total`` units. In MIG mode a percentage is one of the largest slot, which is what a whole card
    means there (D-24): the driver keeps some memory back, so that no slot is half of what the card registers."""
    if geometry is None or device_request.percent > 100:  # UNSET, or more than there is
        return device_request.need(total)
    return min(total, geometry.part(device_request.percent) // geometry.factor)


def costliest(device_request: ContainerRequest, total: int, geometry: Geometry | None) -> int:
    """The most memory units that one card of this kind can give for it; 0 where it gives nothing."""
    need = needed(device_request, total, geometry)
    if geometry is None:
        return need if need <= total else 0
    return geometry.largest // geometry.factor if need * geometry.factor <= geometry.largest else 0


def unusable(device_request: VgpuRequest, card: Card, lower_type: str) -> CardFitError | None:
    """Return why the card can never serve the pod, whatever is booked on it; None when it can."""
    if device_request.mode is not None and device_request.mode != card.mode.value:
        return CardFitError(card.uuid, Short.MODE, detail=f"card is in mode {card.mode.value}, wanted {device_request.mode!r}")
    if card.blocked:
        short = Short.CORDON if card.blocked == CORDONED else Short.QUARANTINE
        return CardFitError(card.uuid, short, detail=card.blocked)
    if not card.healthy:
        unserved = " in MIG mode: its node's plugin cuts no slices, or the card is sick" if card.mode is Mode.MIG else ""
        return CardFitError(card.uuid, Short.HEALTH, detail=f"card is registered as unhealthy{unserved}")
    if card.uuid in device_request.nouse_uuids or (device_request.use_uuids and card.uuid not in device_request.use_uuids):
        return CardFitError(card.uuid, Short.UUID, detail="excluded by the pod's UUID lists")
    return None if type_allowed(device_request, card.type, lower_type) else CardFitError(
        card.uuid, Short.TYPE, detail=f"type {card.type!r} is excluded by the pod's type lists"
    )  # fmt: skip


def type_allowed(device_request: VgpuRequest, card_type: str, lower_type: str) -> bool:
    """Return whether the request's lists allow the type: they compare without regard to case, the vendor word with it."""
    if "NVIDIA" not in card_type:
        return False
    if device_request.use_types:
        return any(item in lower_type for item in device_request.use_types)
    return not any(item in lower_type for item in device_request.nouse_types)


__all__ = ["UNSET", "Row", "Rows", "costliest", "needs", "rows_of", "type_allowed", "unusable"]
