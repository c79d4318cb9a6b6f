"""Sums of what claims hold of published devices, from ResourceClaims and ResourceSlices alone: a judge imports nothing of what it
judges.

A device for one claim at a time is held once; of a shared one no capacity is given twice; and no counter of a pool is drawn on by
more than it has. A card that claims hold has no shares by annotation. A result with ``adminAccess`` holds nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pumice.audit.amounts import Json, key_of, quantity

Place = tuple[str, str, str]
"""Driver, pool and device."""


def results(claim: Json) -> list[Json]:
    """Return the devices that a claim holds."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return [one for one in (allocation.get("devices") or {}).get("results") or () if not one.get("adminAccess")]


def overbooked(claims: Iterable[Json], slices: Iterable[Json], of: Collection[Place] | None = None) -> Iterator[str]:
    """Yield a sentence for each device, capacity and counter that is given out more than once. ``of``: of these devices alone,
    and of the counters that they draw on."""
    held: dict[Place, list[tuple[str, Json]]] = defaultdict(list)
    for claim in claims:
        for one in results(claim):
            held[one["driver"], one["pool"], one["device"]].append((key_of(claim), one))
    devices, counters = _published(slices)
    for place in sorted(held if of is None else held.keys() & of):
        yield from _device_over(place, held[place], devices.get(place))
    looked_at = _drawn(devices[place] for place in (held if of is None else of) if place in devices)
    drawn: Counter[tuple[str, str, str, str]] = Counter()
    for place in held:
        for (set_, counter), amount in _drawn([devices[place]] if place in devices else ()).items():
            if (set_, counter) in looked_at:
                drawn[*place[:2], set_, counter] += amount
    for key, amount in sorted(drawn.items()):
        if key in counters and amount > counters[key]:
            yield f"counter {'/'.join(key)} has {counters[key]}, and devices in use draw {amount}"


def cards_of_claims(claims: Iterable[Json], slices: Iterable[Json]) -> dict[str, dict[str, str]]:
    """Return by UUID the claims that hold a device of a card, or a part of one, as far as its driver publishes which; each with
    the only node of that slice, or nothing."""
    slices = list(slices)
    devices, _ = _published(slices)
    nodes = {(one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"]): one["spec"].get("nodeName", "")
             for one in slices for device in one["spec"].get("devices") or ()}  # fmt: skip
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for claim in claims:
        for one in results(claim):
            driver = str(one["driver"])
            place = (driver, one["pool"], one["device"])
            attributes = (devices.get(place) or {}).get("attributes") or {}
            for name in ("uuid", "parentUUID"):
                said = attributes.get(name) or attributes.get(f"{driver}/{name}") or {}
                if isinstance(uuid := said.get("string"), str):
                    found[uuid][key_of(claim)] = nodes[place]
    return dict(found)


def in_two_worlds(
    claims: Iterable[Json], slices: Iterable[Json], held: Iterable[tuple[str, str, str]], of: Collection[str] | None = None
) -> Iterator[str]:
    """Yield a sentence for each card of which claims hold a device and annotated pods a share. ``held``: UUIDs, pods that
    hold a share by annotation, and their nodes; ``of``: of these cards alone."""
    claimed = cards_of_claims(claims, slices)
    sharing: dict[str, set[str]] = defaultdict(set)
    for uuid, pod, node in held:
        if any(only in ("", node) for only in claimed.get(uuid, {}).values()):
            sharing[uuid].add(pod)
    for uuid in sorted(claimed.keys() & sharing.keys() if of is None else claimed.keys() & sharing.keys() & set(of)):
        yield f"card {uuid} is held by claims {', '.join(claimed[uuid])} and shared by pods {', '.join(sorted(sharing[uuid]))}"


def _device_over(place: Place, held: list[tuple[str, Json]], device: Json | None) -> Iterator[str]:
    name, who = "/".join(place), ", ".join(sorted(key for key, _ in held))
    shares = [one for _, one in held if one.get("shareID") or one.get("consumedCapacity")]
    if len(shares) < len(held) and len(held) > 1:
        yield f"device {name} is for one claim and is held by {who}"
    ids = [one["shareID"] for one in shares if one.get("shareID")]
    if len(set(ids)) < len(ids):
        yield f"device {name}: two shares have one id, of {who}"
    for capacity, said in ((device or {}).get("capacity") or {}).items():
        taken = sum(max(0, quantity(one.get("consumedCapacity", {}).get(capacity, 0))) for one in shares)
        if taken > quantity(said["value"]):
            yield f"device {name} has {said['value']} of {capacity}, and {who} hold {taken}"


def _published(slices: Iterable[Json]) -> tuple[dict[Place, Json], dict[tuple[str, str, str, str], Any]]:
    """Return the devices and the counters of the newest generation of each pool."""
    pools: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for one in slices:
        pools[one["spec"]["driver"], one["spec"]["pool"]["name"]].append(one["spec"])
    devices: dict[Place, Json] = {}
    counters: dict[tuple[str, str, str, str], Any] = {}
    for pool, specs in pools.items():
        newest = max(spec["pool"]["generation"] for spec in specs)
        for spec in (spec for spec in specs if spec["pool"]["generation"] == newest):
            devices |= {(*pool, device["name"]): device for device in spec.get("devices") or ()}
            for set_ in spec.get("sharedCounters") or ():
                counters |= {(*pool, set_["name"], name): quantity(one["value"]) for name, one in set_["counters"].items()}
    return devices, counters


def _drawn(devices: Iterable[Json]) -> Counter[tuple[str, str]]:
    """Return what devices draw of counters, by set and name."""
    drawn: Counter[tuple[str, str]] = Counter()
    for device in devices:
        for one in device.get("consumesCounters") or ():
            for name, said in one["counters"].items():
                drawn[one["counterSet"], name] += quantity(said["value"])  # type: ignore[assignment]
    return drawn
