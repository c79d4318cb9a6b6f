"""Which cards are unhealthy: critical errors make one so, three clean checks make it well (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu).

The list of devices that a plugin shows the kubelet (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/plugin.go), and the
node object.

What stands there is not written twice, and what a replaced plugin left there goes away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from pumice.ports.cards import LOST, CardEvent
from pumice.wire.objects import Node
from pumice.wire.quantity import parse_quantity

log = logging.getLogger("pumice.node")

APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors that a program causes; the card itself is well."""


@dataclass(frozen=True, slots=True)
class XidRule:
    """Which Xids make a card unhealthy. ``honoured`` are always counted, then ``ignored`` never, others by ``others``."""

    ignored: frozenset[int] = APPLICATION_XIDS
    honoured: frozenset[int] = frozenset()
    others: bool = True

    @classmethod
    def parse(cls, disable: str = "", enable: str = "") -> XidRule:
        """From ``DP_DISABLE_HEALTHCHECKS`` and ``DP_ENABLE_HEALTHCHECKS``; words that are no numbers are logged."""
        off, off_words = _numbers(disable)
        on, on_words = _numbers(enable)
        if "all" in on_words:
            return cls(ignored=frozenset())
        if {"all", "xids"} & off_words:
            return cls(honoured=on, others=False)
        return cls(ignored=(APPLICATION_XIDS | off) - on, honoured=on)

    def counts(self, xid: int) -> bool:
        return xid in self.honoured or (self.others and xid not in self.ignored)

    @property
    def off(self) -> bool:
        """Return whether no Xid at all counts."""
        return not self.others and not self.honoured


def _numbers(text: str) -> tuple[frozenset[int], set[str]]:
    numbers, words = set(), set()
    for word in (part.strip().lower() for part in text.split(",")):
        if word.isascii() and word.isdigit() and len(word) < 10:
            numbers.add(int(word))
        elif word in ("all", "xids"):
            words.add(word)
        elif word:
            log.warning("health check setting ignored: %r is no Xid number, nor all or xids", word)
    return frozenset(numbers), words


class Health:
    """The unhealthy cards of this node and why. Every method returns whether the set changed."""

    def __init__(self, uuids: Iterable[str], rule: XidRule, checks_to_recover: int = 3) -> None:
        self._uuids = frozenset(uuids)
        self._rule = rule
        self._needed = checks_to_recover
        self._unhealthy: dict[str, str] = {}
        self._clean: dict[str, int] = {}

    @property
    def unhealthy(self) -> dict[str, str]:
        """UUID to reason."""
        return dict(self._unhealthy)

    def watch(self, uuids: Iterable[str]) -> bool:
        """These are the cards now; one that vanished from the driver's list is unhealthy, not gone."""
        seen = frozenset(uuids)
        lost = self._uuids - seen
        self._uuids |= seen
        return self._blame_all(lost, "the driver does not list the card any more")

    def blame(self, uuid: str, reason: str) -> bool:
        """One card is unhealthy for this reason; the first reason is kept."""
        self._clean.pop(uuid, None)
        if uuid in self._unhealthy:
            return False
        self._unhealthy[uuid] = reason
        return True

    def _blame_all(self, uuids: Iterable[str], reason: str) -> bool:
        changes = [self.blame(uuid, reason) for uuid in sorted(uuids)]
        return any(changes)

    def event(self, event: CardEvent) -> bool:
        """A critical error: one that does not tell its card makes all of them unhealthy."""
        if event.xid != LOST and not self._rule.counts(event.xid):
            return False
        reason = event.text or "the driver has lost the card" if event.xid == LOST else f"Xid {event.xid}"
        if not event.uuid:
            return self._blame_all(self._uuids, f"{reason} of an unknown card")
        return event.uuid in self._uuids and self.blame(event.uuid, reason)

    def check(self, uuid: str, answers: bool) -> bool:
        """The outcome of a regular test of one unhealthy card."""
        if uuid not in self._unhealthy:
            return False
        self._clean[uuid] = self._clean.get(uuid, 0) + 1 if answers else 0
        if self._clean[uuid] < self._needed:
            return False
        del self._unhealthy[uuid], self._clean[uuid]
        return True


MESSAGE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of one list that the kubelet still accepts (gRPC's default)."""


class Unit(Struct, frozen=True):
    """One entry of a device list."""

    id: str
    healthy: bool
    numa: int = -1
    """Its NUMA node, where the kubelet is told; else -1."""


def worst_size(units: Sequence[Unit]) -> int:
    """Bytes of the list message when every unit is unhealthy, exactly (HAMi volcano-vgpu-device-plugin
    pkg/plugin/vgpu/plugin.go): the longest that can be sent."""
    return sum(_entry_size(len(unit.id), unit.numa) for unit in units)


def _entry_size(id_length: int, numa: int) -> int:
    # two strings with tag and length inside one length-delimited entry; ids stay below 128 bytes
    body = 2 + id_length + 2 + len("Unhealthy")
    if numa >= 0:  # TopologyInfo of one NUMANode, whose id 0 is left out
        body += 4 + (1 + max(1, -(-numa.bit_length() // 7)) if numa else 0)
    return 1 + (1 if body < 128 else 2) + body


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Return what another plugin of the same cards leaves on a node when this one takes its place.

    It is taken away only while the kubelet has none of ``alive``, the resource that the other plugin registers.
    """

    alive: str
    resources: tuple[str, ...]
    annotations: tuple[str, ...]

    def of(self, node: Node) -> tuple[dict[str, None], dict[str, None]]:
        """(resources, annotations) to remove."""
        alive = node.status.allocatable.get(self.alive)
        if alive is not None and not _is(alive, 0):
            return {}, {}
        tables = (node.status.capacity, node.status.allocatable)
        return (
            {name: None for name in self.resources if any(name in table for table in tables)},
            {name: None for name in self.annotations if name in node.metadata.annotations},
        )


def holds(node: Node, resource: str, count: int) -> bool:
    """Return whether capacity and allocatable of the node say this much of a resource."""
    return all(_is(table.get(resource), count) for table in (node.status.capacity, node.status.allocatable))


def _is(value: str | int | float | None, count: int) -> bool:
    try:
        return value is not None and parse_quantity(value) == count
    except ValueError:
        return False
