"""NPUs by claim: whole chips and the slices that they can be cut into (vNPUs), as devices of one counter set a chip. Pure.

A device for each template as often as a chip takes it, and one for the chip. The counters are what the chip's driver counts: AI
cores, AI CPUs, memory, media units. Where it wants free vGroups for slices of several cores (310P), these are a counter, too: one
for each slice, two for four cores. So what is given is made in whatever order. Further slices of one core need no vGroup of their
own, and go with no slice of several: a counter for each of those says so (ADR 155).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from pumice.claims.objects import Result
from pumice.model.amount import MIB
from pumice.model.hardware.npu import MEDIA, DriverChip, Size, driver_chips, groups_wanted, slice_kinds
from pumice.node.claims import (
    ClaimShare,
    ClaimSlice,
    Holdings,
    Json,
    PreparedClaim,
    asked_of,
    asks_for_devices,
    pool_specs,
)
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Entry, Phase, Place, Vnpu
from pumice.wire.ascend_hami import cards_given
from pumice.wire.kubernetes import PCI_BUS_ID
from pumice.wire.mindcluster import chip_name, chips_given
from pumice.wire.names import NPU_CLAIM_DRIVER

MEMORY, CORES, CPUS, VGROUPS = "memory", "ai-cores", "ai-cpus", "vgroups"
BESIDE: Final = "beside-"
"""Of a counter: a slice of several AI cores that no further slice of one core goes with."""
ALL: Final = 100
"""Percent of a chip's AI cores."""
ALONE: Final = "a container takes one vNPU, and nothing beside it; ask by one request each"


@dataclass(frozen=True, slots=True)
class Part:
    """A device of a chip: the whole of it, or a slice by a template. ``drawn``: of each counter."""

    name: str
    chip: CardFacts
    template: str
    size: Size
    drawn: Mapping[str, int]


def parts(card: CardFacts) -> list[Part]:
    """Return the devices of a chip; none of a model that is not known, or whose number the driver does not tell."""
    chip = driver_chips().get(card.name)
    if chip is None or card.minor < 0:
        return []
    slices, has = _cut(chip)
    whole = Part(f"npu-{card.minor}", card, "", chip.size, has)
    return [whole, *(Part(f"npu-{card.minor}-{one.name}", card, one.template, one.size, one.drawn) for one in slices)]


def counters(chip: DriverChip) -> Mapping[str, int]:
    """Return what there is of a chip; nothing of what its driver does not count."""
    return _cut(chip)[1]


@dataclass(frozen=True, slots=True)
class _Slice:
    """A device of every chip of one model."""

    name: str
    template: str
    size: Size
    drawn: Mapping[str, int]


@cache
def _cut(chip: DriverChip) -> tuple[list[_Slice], dict[str, int]]:
    """Return the slices of such a chip, and its counters.

    In vGroups that are in use there is room for more slices of one core, as long as no slice of several wants a free one. Such a
    further slice shuts those out, each by a counter of which that one draws all."""
    has = {**_amounts(chip.size), VGROUPS: chip.groups if chip.grouped else 0}
    has = {name: amount for name, amount in has.items() if amount}
    slices: list[_Slice] = []
    further: list[_Slice] = []
    for template, size in chip.templates:
        drawn = {name: amount for name, amount in _amounts(size).items() if name in has and amount}
        many = _most(has, drawn)
        word = template.replace("_", "-")
        slices += [_Slice(f"{word}-{at}", template, size, drawn) for at in range(many)]
        if chip.grouped and not groups_wanted(size.cores):
            joining = {name: amount for name, amount in drawn.items() if name != VGROUPS}
            further += [_Slice(f"{word}-{at}", template, size, joining) for at in range(many, _most(has, joining))]
    if not further:
        return slices, has
    apart = {one.name: f"{BESIDE}{one.name}" for one in slices if groups_wanted(one.size.cores)}
    slices = [replace(one, drawn={**one.drawn, apart[one.name]: len(further)}) if one.name in apart else one for one in slices]
    slices += [replace(one, drawn={**one.drawn, **dict.fromkeys(apart.values(), 1)}) for one in further]
    slices.sort(key=lambda one: [template for template, _ in chip.templates].index(one.template))
    return slices, {**has, **dict.fromkeys(apart.values(), len(further))}


def _most(has: Mapping[str, int], drawn: Mapping[str, int]) -> int:
    return min(has[name] // amount for name, amount in drawn.items())


def _amounts(size: Size) -> dict[str, int]:
    media = {name.lower(): amount for name, amount in zip(MEDIA, size.media, strict=True)}
    groups = max(1, groups_wanted(size.cores))
    return {MEMORY: size.memory * MIB, CORES: size.cores, CPUS: size.cpus, **media, VGROUPS: groups}


# -- The slices of a node --------------------------------------------------------------------------------------------


def slice_specs(node: str, cards: Iterable[CardFacts], taints: Mapping[str, Sequence[str]], generation: int) -> list[Json]:
    """Return the specs of the pool's slices. ``taints``: keys by the UUIDs of chips that take no new claims."""
    sets: list[Json] = []
    devices: list[Json] = []
    for card in cards:
        of_card = parts(card)
        if of_card:
            sets.append({"name": _set_name(card), "counters": _values(of_card[0].drawn)})
        keys = taints.get(card.uuid, ())
        common: Json = {"taints": [{"key": key, "effect": "NoSchedule"} for key in keys]} if keys else {}
        devices += [_device(part, common) for part in of_card]
    return pool_specs(NPU_CLAIM_DRIVER, node, generation, sets, devices)


def _device(part: Part, common: Json) -> Json:
    card, size = part.chip, part.size
    attributes: Json = {
        "type": {"string": "vnpu" if part.template else "npu"},
        "parentUUID" if part.template else "uuid": {"string": card.uuid},
        "productName": {"string": card.name[:64]}, "physicalID": {"int": card.minor},
    }  # fmt: skip
    if kind := next((one for one in slice_kinds().values() if one.driver == card.name), None):
        attributes["chipName"] = {"string": chip_name(kind.name, card.minor)}  # as MindCluster's scheduling counts it
    if part.template:
        attributes["template"] = {"string": part.template}
    if card.bus_id:
        attributes[PCI_BUS_ID] = {"string": card.bus_id.lower()[-12:]}
    capacity = {"memory": {"value": str(size.memory * MIB)}, "aiCores": {"value": str(size.cores)}}
    if size.cpus:
        capacity["aiCPUs"] = {"value": str(size.cpus)}
    drawn = [{"counterSet": _set_name(card), "counters": _values(part.drawn)}]
    return {"name": part.name, "attributes": attributes, "capacity": capacity, "consumesCounters": drawn, **common}


def _values(amounts: Mapping[str, int]) -> Json:
    return {name: {"value": str(amount)} for name, amount in amounts.items()}


def _set_name(card: CardFacts) -> str:
    return f"npu-{card.minor}-counter-set"


# -- What a claim gets -----------------------------------------------------------------------------------------------


def prepare(claim: Json, uid: str, node: str, cards: Sequence[CardFacts], holdings: Holdings) -> PreparedClaim | str:
    """Return what the claim gets here, or why it is refused: the chip's sum is counted anew whatever the allocation says. Slices
    are not cut yet."""
    results = asked_of(claim, uid, node, NPU_CLAIM_DRIVER)
    if isinstance(results, str):
        return results
    meta = claim["metadata"]
    key = f"{meta['namespace']}/{meta['name']}"
    configs = ((claim["status"].get("allocation") or {}).get("devices") or {}).get("config") or ()
    if any((one.get("opaque") or {}).get("driver") == NPU_CLAIM_DRIVER for one in configs):
        return f"claim {key}: opaque parameters are not served by {NPU_CLAIM_DRIVER}; leave config out"
    known = {part.name: part for card in cards for part in parts(card)}
    shares: list[ClaimShare] = []
    for result in results:
        share = _share(result, known)
        if isinstance(share, str):
            return f"claim {key}: request {result.request}: {share}"
        beside = [one for one in shares if one.request == share.request]
        if beside and (share.slice is not None or beside[0].slice is not None):
            return f"claim {key}: request {result.request}: {ALONE}"
        shares.append(share)
    mine = PreparedClaim(uid, meta["namespace"], meta["name"], tuple(shares))
    return _overcommitted(mine, known, holdings) or mine


def _share(result: Result, known: Mapping[str, Part]) -> ClaimShare | str:
    if result.admin_access:
        return "adminAccess is not served: nothing keeps a container from computing on an NPU that it is given to look at"
    if (part := known.get(result.device)) is None:
        return f"device {result.device} is not on this node"
    card, memory = part.chip, part.size.memory * MIB
    if not part.template:
        return ClaimShare(result.request, part.name, card.uuid, memory, ALL, whole=True)
    cores = part.size.cores * ALL // driver_chips()[card.name].size.cores
    return ClaimShare(result.request, part.name, card.uuid, memory, cores, slice=ClaimSlice(part.template, card.minor, 0))


def _overcommitted(mine: PreparedClaim, known: Mapping[str, Part], holdings: Holdings) -> str:
    for uuid in dict.fromkeys(share.card for share in mine.shares):
        if why := holdings.others.get(uuid):
            return f"claim {mine.key}: chip {uuid} is {why}, and a chip serves claims or those"
        others = [claim for claim in holdings.claims if claim.uid != mine.uid]
        theirs = [(claim.key, share.device) for claim in others for share in claim.shares if share.card == uuid]
        there = [device for _, device in theirs] + [share.device for share in mine.shares if share.card == uuid]
        who = ", ".join(dict.fromkeys(claim for claim, _ in theirs)) or mine.key
        if twice := [device for device, times in Counter(there).items() if times > 1]:
            return f"claim {mine.key}: device {twice[0]} would be given twice; chip {uuid} is held by {who}"
        sums: Counter[str] = Counter()
        for device in there:
            sums.update(known[device].drawn if device in known else {})
        chip = next(part.chip for part in known.values() if part.chip.uuid == uuid)
        for name, most in counters(driver_chips()[chip.name]).items():
            if sums[name] > most and name.startswith(BESIDE):
                slice_ = name.removeprefix(BESIDE)
                return f"claim {mine.key}: beside what {who} holds of chip {uuid} there is no vGroup for {slice_}"
            if sums[name] > most:
                return f"claim {mine.key}: chip {uuid} has {name} {most}, and with what {who} holds it would be {sums[name]}"
    return ""


def owners(claims: Iterable[PreparedClaim]) -> dict[str, str]:
    """Return the holders of chips and slices in the journal, by what it calls them: a claim with one of its devices. Allocated
    anew the claim is another, and its old slices go."""
    return {owner_of(claim, share): f"claim {claim.key}" for claim in claims for share in claim.shares}


def owner_of(claim: PreparedClaim, share: ClaimShare) -> str:
    return f"{claim.uid}/{share.device}"


def given(claims: Iterable[PreparedClaim], number: Callable[[str], int]) -> list[Entry]:
    """Return what claims have, as the journal of slices says it. ``number``: the physical id of a chip, by its UUID."""
    found = []
    for claim in claims:
        for share in claim.shares:
            profile, start = ("", number(share.card)) if share.slice is None else (share.slice.profile, _number(share.slice))
            owner = owner_of(claim, share)
            found += [Entry(Place(share.card, profile, start), owner, Phase.MADE, owner)] if start >= 0 else []
    return found


def _number(slice_: ClaimSlice) -> int:
    """Return the number of a vNPU; -1 before it is made."""
    return int(slice_.uuid) if slice_.uuid.isdecimal() else -1


def cut_by_others(slices: Mapping[str, Sequence[Vnpu]]) -> dict[str, str]:
    """Return by UUID the chips that carry slices of nobody's claim, in words: no counter knows of those."""
    numbers = {uuid: ", ".join(str(one.id) for one in there) for uuid, there in slices.items()}
    return {uuid: f"cut by somebody else (vNPU {found})" for uuid, found in numbers.items()}


def chips_of(node: str, cards: Sequence[CardFacts], pod: Json) -> set[str]:
    """Return the UUIDs of the chips of which an annotated pod has a part, by either mode's annotations. Of a pod that asks for no
    device they are its owner's words alone."""
    notes = (pod["metadata"].get("annotations") or {}) if asks_for_devices(pod) else {}
    own, numbers = cards_given(notes, node), chips_given(notes, slice_kinds())
    return {card.uuid for card in cards if card.uuid in own or card.minor in numbers}
