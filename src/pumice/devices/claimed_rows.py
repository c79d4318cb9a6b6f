"""Cards that claims hold (``resource.k8s.io``), for the tables of cards: from what drivers publish and claims' status alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from pumice.claims.attributes import attribute_of, cards_of
from pumice.claims.objects import Device, DeviceID, Result, devices_held, slice_of
from pumice.claims.slices import PoolID, Slices
from pumice.devices.device_type import CardRow, CardTenant
from pumice.model.errors import BadInput

Json = Mapping[str, Any]
MIB = 1 << 20
CORES = ("ai-cores", "compute-slices", "multiprocessors")
"""Names that drivers give the counter of a card's cores; NVIDIA's own the last."""


def with_claims(rows: Sequence[CardRow], slices: Iterable[Json], claims: Iterable[Json]) -> list[CardRow]:
    """Return the rows with who holds a card by claim, and rows for cards that drivers of claims alone publish. A slice or a
    device that cannot be read says nothing."""
    known, found = Slices(), list(rows)
    there = {(row.node, row.uuid): row for row in rows}
    published = []
    for obj in slices:
        with suppress(BadInput):
            one = slice_of(obj)
            known.put(one)
            published += [(one, device) for device in one.spec.devices]
    for kind in ("uuid", "parentUUID"):  # of a card in MIG mode nothing but its slices is published
        for one, device in published:
            name, own = _text(device, one.spec.driver, kind), one.spec.node_name or device.node_name
            is_known = any((own, card) in there for card in cards_of(device, one.spec.driver))
            if not name or not own or is_known:
                continue
            index, counted = sum(row.node == own for row in found), _drawn(device, known, one.pool, "memory")
            total = int(counted[1] / MIB) if counted is not None and kind == "parentUUID" else _memory(device)
            row = CardRow(own, index, name, _text(device, one.spec.driver, "productName") or one.spec.driver, total)
            there[own, name] = row
            found.append(row)
    for obj in claims:
        for held in devices_held(obj):
            _put(held, obj, known, there)
    return found


def _put(held: Result, claim: Json, known: Slices, rows: Mapping[tuple[str, str], CardRow]) -> None:
    if held.admin_access:
        return
    memory, cores = (_consumed(held, name) for name in ("memory", "cores"))
    id_ = DeviceID(held.driver, held.pool, held.device)
    device, template = known.device_of(id_), ""
    if device is not None and _text(device, held.driver, "parentUUID"):
        drawn = next(filter(None, (_drawn(device, known, (held.driver, held.pool), name) for name in CORES)), None)
        memory, cores = Fraction(_memory(device) * MIB), None if drawn is None else 100 * drawn[0] / drawn[1]
        template = _text(device, held.driver, "template") or _text(device, held.driver, "profile")
    for node, uuid in known.cards_of(id_) or ():
        for (place, card), row in rows.items():
            if card == uuid and node in ("", place):
                mib = int(memory / MIB) if memory is not None else 0
                row.memory += mib or row.total
                row.cores += int(cores) if cores is not None else 0 if template else 100
                row.holders.append(CardTenant(_who(claim), mib, None if cores is None else int(cores), template))


def _drawn(device: Device, known: Slices, pool: PoolID, counter: str) -> tuple[Fraction, Fraction] | None:
    """Return what a slice draws of a counter of its card, and what there is of it; None where it draws on no such counter."""
    sets = known.cards_in(pool)[1]
    for drawn in device.consumes_counters:
        part, whole = drawn.counters.get(counter), sets.get(drawn.counter_set, {}).get(counter)
        if part is not None and whole is not None and whole.value > 0:
            return part.value, whole.value
    return None


def _who(claim: Json) -> str:
    """The pods that use it, the first by name, and the claim."""
    meta = claim.get("metadata") or {}
    reserved = (claim.get("status") or {}).get("reservedFor") or ()
    users = sorted(str(one.get("name")) for one in reserved if isinstance(one, Mapping))
    more = f" and {len(users) - 1} more" if len(users) > 1 else ""
    key = f"{meta.get('namespace')}/{meta.get('name')}"
    return f"{meta.get('namespace')}/{users[0]}{more} by claim {meta.get('name')}" if users else f"claim {key}"


def _consumed(held: Result, name: str) -> Fraction | None:
    """Return what it consumes of a capacity, under whichever domain; None where the device is its own."""
    return next((max(value, Fraction()) for key, value in held.consumed_capacity.items() if key.rpartition("/")[2] == name), None)


def _text(device: Device, driver: str, name: str) -> str:
    found = attribute_of(device, driver, f"{driver}/{name}")
    return str(found[1]) if found is not None and found[0] == "string" else ""


def _memory(device: Device) -> int:
    return next((int(one.value / MIB) for key, one in device.capacity.items() if key.rpartition("/")[2] == "memory"), 0)
