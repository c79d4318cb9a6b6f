"""NVLinks between the cards of one machine, directly or through switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pynvml

from pumice.ports.cards import CardFacts

SWITCH = "switch"


def link_ends(handle: Any) -> Counter[str]:
    """The peers of the card's links that are up: PCI address of a card, or ``switch``, with the number of links."""
    ends: Counter[str] = Counter()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) != pynvml.NVML_FEATURE_ENABLED:
                continue
            ends[_end(handle, link)] += 1
        except pynvml.NVMLError:
            break  # no such link, so no further one either
    return ends


def _end(handle: Any, link: int) -> str:
    try:
        if pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return SWITCH
    except pynvml.NVMLError:  # older drivers tell only the address
        pass
    address = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
    return (address.decode("ascii", "replace") if isinstance(address, bytes) else str(address)).upper()


def with_links(cards: Sequence[CardFacts], ends: Mapping[str, Mapping[str, int]]) -> tuple[CardFacts, ...]:
    """The cards with their peers. Cards on switches reach each other with as many links as the lesser of them has."""
    return tuple(replace(card, links=tuple(_peers(card, cards, ends))) for card in cards)


def _peers(
    card: CardFacts, cards: Sequence[CardFacts], ends: Mapping[str, Mapping[str, int]]
) -> list[tuple[str, int]]:
    mine = ends.get(card.uuid, {})
    peers = []
    for other in cards:
        switched = min(mine.get(SWITCH, 0), ends.get(other.uuid, {}).get(SWITCH, 0))
        width = mine.get(other.bus_id.upper(), 0) + switched
        if other.uuid != card.uuid and width:
            peers.append((other.uuid, width))
    return peers
