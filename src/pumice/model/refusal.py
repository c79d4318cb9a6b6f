"""Refusals are values: who refused, in which dimension, what was wanted and what the best offer was.

Pod conditions, events, ``pumice explain`` and metrics are rendered from these same values.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Short(StrEnum):
    """The dimension in which a card or node was too short; the value is the word that people read."""

    MEMORY = "memory"
    CORES = "cores"
    SHARES = "shares"
    COUNT = "cards"
    MODE = "mode"
    TYPE = "type"
    UUID = "uuid"
    HEALTH = "health"
    CORDON = "cordoned"
    SLOT = "slot"
    GROUP_SPREAD = "podgroup-spread"
    EXCLUSIVE = "exclusive-rule"
    QUARANTINE = "quarantined"
    NO_DEVICES = "no-devices"
    REQUEST = "request"
    LOCK = "lock"


class CardFitError(Struct, frozen=True, gc=False):
    """The reason for which one card was passed over. ``wanted`` and ``best`` are in the dimension's own unit (0 where it has
    none)."""

    uuid: str
    short: Short
    wanted: int = 0
    best: int = 0
    detail: str = ""
    unit: str = ""
    """Of ``wanted`` and ``best``; empty for a number of things."""

    @property
    def text(self) -> str:
        """The detail, or what the numbers say: refusals are made by the thousand and read by the dozen."""
        if self.detail or not self.wanted:
            return self.detail or self.short.value
        unit = f" {self.unit}" if self.unit else ""
        return f"wants {self.short.value} {self.wanted}{unit}, {self.best}{unit} is free"


class FitError(Struct, frozen=True, gc=False):
    """The reason for which one node was refused.

    ``final`` means that evicting other pods would not help (status code 3, *unresolvable*; defect D-34).
    ``text`` is the short reason that is counted over nodes in ``0/3 nodes are unavailable: 2 <text>, ...``; ``detail`` adds
    this node's numbers where no card has them.
    """

    node: str
    short: Short
    text: str
    wanted: int = 0
    best: int = 0
    final: bool = False
    cards: tuple[CardFitError, ...] = ()
    detail: str = ""


class Refusal(Struct, frozen=True):
    """A request that can never be honoured as written, whatever the cluster looks like (e.g. a negative memory). ``waits``: not
    yet, for what it names may still come."""

    field: str
    text: str
    waits: bool = False
