"""A card in MIG mode by claim: every slice that it can be cut into, as a device that draws on the card's counter set. Pure.

A device for each profile and place, as NVIDIA's driver publishes them where it cuts on demand. The counters say which of them go
together: a memory slice of the card is under one of them at most. The whole card is its largest slice, for in MIG mode programs
run on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pumice.model.amount import MIB
from pumice.model.hardware.mig import MigProfile, MigTable, mig_table_for
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Place, SliceProfile

Json = dict[str, Any]
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


def named(device: str, cards: Iterable[CardFacts], offers: Offers) -> Partition | None:
    """Return the partition that a device's name is of."""
    return next((one for card in cards for one in partitions(card, offers) if one.name == device), None)


def counters(card: CardFacts, of: Sequence[Partition]) -> Json:
    """Return the counters of a card: its memory, or more where the driver makes slices that would not go into what it says."""
    table = mig_table_for(card.name)
    assert table is not None
    slices = range(max(one.place.start + one.size for one in of))
    memory = max(card.memory, *(one.memory for one in of))
    return {"memory": {"value": str(memory)}, **_drawn(table.compute_slices, _media(table), slices)}


def device(card: CardFacts, one: Partition, set_: str, common: Json) -> Json:
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
