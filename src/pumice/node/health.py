"""Health of cards: critical errors make one unhealthy, three clean checks healthy (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pumice.ports.cards import LOST, CardEvent

log = logging.getLogger("pumice.node")

APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors that a program causes; the card itself is well."""


@dataclass(frozen=True, slots=True)
class XidRule:
    """The Xids that make a card unhealthy. ``honoured`` are always counted, then ``ignored`` never, others by ``others``."""

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
