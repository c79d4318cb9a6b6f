"""Cards by claim (Dynamic Resource Allocation): the slices that a node publishes, and what an allocated claim gets there. Pure.

One world a card: a card is published as a shared device or as a whole one, unless the operator asks for both, which draw on one
counter set. Kubernetes up to 1.36.1 would give the same bytes twice then (ADR 134). A card in MIG mode is published as the slices
that it can be cut into, whatever was asked for: nothing else of it runs programs (ADR 151). ``HAMI`` is the shared device by the
names of HAMi's driver (Project-HAMi/k8s-dra-driver cmd/hami-kubelet-plugin): of that driver, with its type and policies.

A card in MIG mode by claim: every slice that it can be cut into, as a device that draws on the card's counter set. Pure.

A device for each profile and place, as NVIDIA's driver publishes them where it cuts on demand. The counters say which of them go
together: a memory slice of the card is under one of them at most. The whole card is its largest slice, for in MIG mode programs
run on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pumice.claims.objects import Result
from pumice.devices.nvidia_vgpu.node.claim_sharing import parameters_of, shared_as_asked
from pumice.model.amount import MIB
from pumice.model.hardware.mig import MigProfile, MigTable, mig_table_for
from pumice.node.claims import (
    ClaimShare,
    ClaimSlice,
    Holdings,
    PreparedClaim,
    asked_of,
    asks_for_devices,
    asks_to_look,
    pool_specs,
)
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Place, SliceProfile
from pumice.wire import names
from pumice.wire.kubernetes import PCI_BUS_ID
from pumice.wire.names import CLAIM_DRIVER, HAMI_CLAIM_DRIVER
from pumice.wire.nvidia_vgpu import PodDevices, parse_pod_devices

Json = dict[str, Any]
SHARED, WHOLE, BOTH, HAMI = "shared", "whole", "both", "hami"
CORES: Final = 100
_NOTHING: Final[Offers] = MappingProxyType({})


def driver_of(worlds: str) -> str:
    return HAMI_CLAIM_DRIVER if worlds == HAMI else CLAIM_DRIVER


# -- The slices of a node --------------------------------------------------------------------------------------------


def slice_specs(
    node: str, cards: Sequence[CardFacts], worlds: str, taints: Mapping[str, Sequence[str]], generation: int,
    offers: Offers = _NOTHING,
) -> list[Json]:  # fmt: skip
    """Return the specs of the pool's slices. ``taints``: keys by the UUIDs of cards that take no new claims.

    A sick card stays published with a taint: its counters and capacity are in use.
    """
    sets: list[Json] = []
    devices: list[Json] = []
    for card in (card for card in cards if card.minor >= 0):
        common: Json = {}
        if keys := taints.get(card.uuid, ()):
            common["taints"] = [{"key": key, "effect": "NoSchedule"} for key in keys]
        if card.mig and (parts := partitions(card, offers)):
            sets.append({"name": _set_name(card), "counters": counters(card, parts)})
            devices += [partition_device(card, one, _set_name(card), common) for one in parts]
        elif not card.mig:
            if worlds == BOTH:
                sets.append({"name": _set_name(card), "counters": {"memory": {"value": str(card.memory)}}})
            devices += _devices(card, worlds, common)
    return pool_specs(driver_of(worlds), node, generation, sets, devices)


def _devices(card: CardFacts, worlds: str, common: Json) -> Iterator[Json]:
    if worlds == BOTH:
        counters = {"memory": {"value": str(card.memory)}}
        common = {**common, "consumesCounters": [{"counterSet": _set_name(card), "counters": counters}]}
    memory = str(card.memory // MIB * MIB)
    if worlds != WHOLE:
        hami = worlds == HAMI
        yield {
            "name": f"hami-{_name(card)}" if hami else f"{_name(card)}-shared", "allowMultipleAllocations": True,
            "attributes": _hami_attributes(card) if hami else _attributes(card, "shared-gpu"),
            "capacity": {
                "memory": {"value": memory, "requestPolicy": {
                    "default": memory, "validRange": {"min": "1Mi", "max": memory, "step": "1Mi"}}},
                "cores": {"value": str(CORES), "requestPolicy": {
                    "default": str(CORES), "validRange": {"min": "0" if hami else "1", "max": str(CORES), "step": "1"}}},
            }, **common,
        }  # fmt: skip
    if worlds in (WHOLE, BOTH):
        yield {"name": _name(card), "attributes": _attributes(card, "gpu"), "capacity": {"memory": {"value": memory}}, **common}


def _attributes(card: CardFacts, type_: str) -> Json:
    found: Json = {"type": {"string": type_}, "uuid": {"string": card.uuid}, "productName": {"string": card.name[:64]},
                   "minor": {"int": card.minor}}  # fmt: skip
    if card.bus_id:
        found[PCI_BUS_ID] = {"string": card.bus_id.lower()[-12:]}
    return found


def _hami_attributes(card: CardFacts) -> Json:
    found = _attributes(card, "hami-gpu")
    if card.bus_id:
        found["pcieBusID"] = found[PCI_BUS_ID]
    if card.capability != (0, 0):
        found["cudaComputeCapability"] = {"version": "{}.{}.0".format(*card.capability)}
    return found


def _name(card: CardFacts) -> str:
    return f"gpu-{card.minor}"


def _set_name(card: CardFacts) -> str:
    return f"gpu-{card.minor}-counter-set"


# -- What a claim gets -----------------------------------------------------------------------------------------------


def prepare(
    claim: Json, uid: str, node: str, cards: Sequence[CardFacts], holdings: Holdings, offers: Offers = _NOTHING,
    driver: str = CLAIM_DRIVER, mps: bool = False,
) -> PreparedClaim | str:  # fmt: skip
    """Return what the claim gets here, or why it is refused: the card's sum is counted anew whatever the allocation says. Slices
    are not cut yet. ``driver``: by which name this one goes; ``mps``: whether the node keeps MPS control daemons for claims."""
    results = asked_of(claim, uid, node, driver)
    if isinstance(results, str):
        return results
    meta = claim["metadata"]
    key = f"{meta['namespace']}/{meta['name']}"
    parameters = parameters_of(claim, driver)
    if isinstance(parameters, str):
        return f"claim {key}: {parameters}"
    shares: list[ClaimShare] = []
    for result in results:
        share = _looked_at(claim, result, cards) if result.admin_access else _share(result, cards, offers)
        if isinstance(share, str):
            return f"claim {key}: {share}"
        shares.append(share)
    for at, share in enumerate(shares):
        beside = [one for one in shares[:at] if one.request == share.request and not share.admin]
        if any(one.card == share.card and (one.slice is None or one.device == share.device) for one in beside):
            return f"claim {key}: request {share.request} was given card {share.card} twice"
        if any((one.slice is None) != (share.slice is None) for one in beside):
            return f"claim {key}: request {share.request} was given a MIG slice beside a card that has none; ask for one type"
    shared = shared_as_asked(shares, parameters, cards, mps)
    if isinstance(shared, str):
        return f"claim {key}: {shared}"
    mine = PreparedClaim(uid, meta["namespace"], meta["name"], tuple(shared))
    return _overcommitted(mine, cards, holdings) or mine


def shares_of(node: str, published: Mapping[str, PodDevices], pod: Json) -> set[str]:
    """Return the UUIDs of the cards that an annotated pod has shares of, by its annotations and by what the node's plugin has
    ``published``. Of a pod that asks for no device the annotations are its owner's words alone."""
    meta = pod["metadata"]
    notes = meta.get("annotations") or {}
    own = notes.get(names.VGPU_IDS, "") if notes.get(names.VGPU_NODE) == node and asks_for_devices(pod) else ""
    parts = [*parse_pod_devices(own).containers]
    parts += published[meta["uid"]].containers if meta["uid"] in published else ()
    return {device.uuid for part in parts for device in part}


def _looked_at(claim: Json, result: Result, cards: Sequence[CardFacts]) -> ClaimShare | str:
    """With adminAccess: the card of the device."""
    if not asks_to_look(claim, result):
        return f"request {result.request}: its status says adminAccess, and its specification does not ask for it"
    device = result.device.removeprefix("hami-")
    of_card = (one for one in cards if one.minor >= 0 and f"{device}-".startswith(f"{_name(one)}-"))
    if (card := next(of_card, None)) is None:
        return f"request {result.request}: device {result.device} is not on this node"
    return ClaimShare(result.request, result.device, card.uuid, share=result.share_id, admin=True)


def _share(result: Result, cards: Sequence[CardFacts], offers: Offers) -> ClaimShare | str:
    if "-mig-" in result.device:
        return _slice(result, cards, offers)
    hami = result.driver == HAMI_CLAIM_DRIVER
    shared = hami or result.device.endswith("-shared")
    name = result.device.removeprefix("hami-") if hami else result.device.removesuffix("-shared")
    card = next((one for one in cards if _name(one) == name and one.minor >= 0), None)
    if card is None:
        return f"request {result.request}: device {result.device} is not on this node"
    if card.mig:
        return f"request {result.request}: card {card.uuid} is in MIG mode"
    if not shared:
        return ClaimShare(result.request, result.device, card.uuid, card.memory, CORES, whole=True)
    memory, cores = (result.consumed_capacity.get(key) for key in ("memory", "cores"))
    if not result.share_id or not memory or cores is None or (cores == 0 and not hami):  # HAMi's 0 cores are no limit
        return f"request {result.request}: its allocation says neither how much of {result.device} nor which share"
    # no scheduler gives less by the policies that are published, but a status has many writers, and a limit of 0 is none
    if memory < MIB:
        return f"request {result.request}: its allocation gives {float(memory):g} bytes of {result.device}; the least is 1Mi"
    if cores < (0 if hami else 1) or cores.denominator != 1:
        return (f"request {result.request}: its allocation gives {float(cores):g} cores of {result.device}, "
                "which are whole percent from 1")  # fmt: skip
    return ClaimShare(result.request, result.device, card.uuid, int(memory) // MIB * MIB, int(cores), share=result.share_id)


def _slice(result: Result, cards: Sequence[CardFacts], offers: Offers) -> ClaimShare | str:
    if (one := partition_named(result.device, cards, offers)) is None:
        card = next((card for card in cards if result.device.startswith(f"{_name(card)}-mig-") and card.minor >= 0), None)
        off = f": the MIG mode of card {card.uuid} is off" if card is not None and not card.mig else ""
        return f"request {result.request}: device {result.device} is not on this node{off}"
    where = ClaimSlice(one.place.profile, one.place.start, one.size)
    return ClaimShare(result.request, result.device, one.place.card, one.memory, one.cores, slice=where)


def _overcommitted(mine: PreparedClaim, cards: Sequence[CardFacts], holdings: Holdings) -> str:
    own = [share for share in mine.shares if not share.admin]
    for uuid in dict.fromkeys(share.card for share in own):
        if why := holdings.others.get(uuid):
            return f"claim {mine.key}: card {uuid} is {why}, and a card serves claims or those"
        card = next(one for one in cards if one.uuid == uuid)
        others = [claim for claim in holdings.claims if claim.uid != mine.uid]
        theirs = [(claim, share) for claim in others for share in claim.shares if share.card == uuid and not share.admin]
        there = [share for _, share in theirs] + [share for share in own if share.card == uuid]
        who = _named(theirs) or mine.key
        if any(share.whole for share in there) and len(there) > 1:
            return f"claim {mine.key}: card {uuid} would be given whole and in shares; it is held by {who}"
        cut = [share.slice for share in there if share.slice is not None]
        if cut and len(cut) < len(there):
            return f"claim {mine.key}: card {uuid} would be given in MIG slices and in shares; it is held by {who}"
        if cut:
            if why := _overlapping(cut):
                return f"claim {mine.key}: on card {uuid} {why}; the card is held by {who}"
            continue
        for what, sum_, most in (("memory", sum(one.memory for one in there), card.memory),
                                 ("cores", sum(one.cores for one in there), CORES)):  # fmt: skip
            if sum_ > most:
                return f"claim {mine.key}: card {uuid} has {what} {most}, and with what {who} holds it would be {sum_}"
    return ""


def _overlapping(cut: Sequence[ClaimSlice]) -> str:
    """Return which two slices of a card would lie over each other."""
    for at, one in enumerate(cut):
        for other in cut[:at]:
            if one.cover & other.cover:
                return f"slices {other} and {one} lie over each other"
    return ""


def _named(theirs: Iterable[tuple[PreparedClaim, ClaimShare]]) -> str:
    return ", ".join(dict.fromkeys(claim.key for claim, _ in theirs))


# -- Cards in MIG mode --------------------------------------------------------------------------------------------------


Offers = Mapping[str, Sequence[SliceProfile]]
"""The profiles that the driver offers of the cards in MIG mode, by UUID."""
_ENGINES: Final = {"copyEngines": "ce", "decoders": "dec", "encoders": "enc", "jpegEngines": "jpeg", "ofaEngines": "ofa"}


@dataclass(frozen=True, slots=True)
class Partition:
    """A slice that a card can be cut into, and the device's name. ``size``: memory slices that the driver says are under it.
    ``cores``: its part of the card's, in percent."""

    name: str
    place: Place
    size: int
    profile: MigProfile
    cores: int

    @property
    def memory(self) -> int:
        """Bytes."""
        return self.profile.memory * MIB


def partitions(card: CardFacts, offers: Offers) -> list[Partition]:
    """Return those of a card, each profile at its places in the order in which the driver takes them; none of a strange model."""
    table = mig_table_for(card.name) if card.mig else None
    facts = {one.name: one for one in table.profiles} if table is not None else {}
    found = []
    for offered in offers.get(card.uuid, ()):
        if table is None or (profile := facts.get(offered.name)) is None:
            continue
        starts = [start for start in profile.starts if start in offered.starts]
        starts += [start for start in offered.starts if start not in starts]
        word = offered.name.replace(".", "").replace("+", "").lower()
        name, cores = f"gpu-{card.minor}-mig-{word}-{profile.id}", profile.slices * 100 // table.compute_slices
        for start in starts:
            place = Place(card.uuid, offered.name, start)
            found.append(Partition(f"{name}-{start}", place, offered.size, profile, cores))
    return found


def partition_named(device: str, cards: Iterable[CardFacts], offers: Offers) -> Partition | None:
    """Return the partition that a device's name is of."""
    return next((one for card in cards for one in partitions(card, offers) if one.name == device), None)


def counters(card: CardFacts, of: Sequence[Partition]) -> Json:
    """Return the counters of a card: its memory, or more where the driver makes slices that would not go into what it says."""
    table = mig_table_for(card.name)
    assert table is not None
    slices = range(max(one.place.start + one.size for one in of))
    memory = max(card.memory, *(one.memory for one in of))
    return {"memory": {"value": str(memory)}, **_drawn(table.compute_slices, _media(table), slices)}


def partition_device(card: CardFacts, one: Partition, set_: str, common: Json) -> Json:
    """Return the device of a partition. ``common``: what all devices of the card have."""
    profile = one.profile
    engines = {name: {"value": str(getattr(profile, of))} for name, of in _ENGINES.items()}
    under = range(one.place.start, one.place.start + one.size)
    drawn = {"memory": {"value": str(one.memory)}, **_drawn(profile.slices, int(profile.media), under)}
    return {
        "name": one.name,
        "attributes": {
            "type": {"string": "mig"}, "parentUUID": {"string": card.uuid}, "profile": {"string": one.place.profile},
            "productName": {"string": card.name[:64]}, "minor": {"int": card.minor}, "start": {"int": one.place.start},
        },
        "capacity": {"memory": {"value": str(one.memory)}, "multiprocessors": {"value": str(profile.sms)}, **engines},
        "consumesCounters": [{"counterSet": set_, "counters": drawn}], **common,
    }  # fmt: skip


def _drawn(compute: int, media: int, slices: Iterable[int]) -> Json:
    found = {"compute-slices": {"value": str(compute)}}
    if media:
        found["media-extensions"] = {"value": str(media)}
    return found | {f"memory-slice-{at}": {"value": "1"} for at in slices}


def _media(table: MigTable) -> int:
    """Return 1 of a card that has profiles with the media extensions, of which there is one set."""
    return int(any(one.media for one in table.profiles))
