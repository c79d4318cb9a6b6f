"""What one pod holds on a node, how firmly, and the proof of an operation on it."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from pumice.devices.protocol import NO_MARKS, Marks
from pumice.engine.state.features import Features
from pumice.engine.state.resources import Request
from pumice.model.cards import Grant


class Hold(IntEnum):
    """How firmly a pod holds its place."""

    RESERVED = 1
    ASSUMED = 2
    CONFIRMED = 3
    TOLD = 4
    """We told it to go, and the API server may refuse: those who decide on what it shows count it as one that stays."""
    TERMINATING = 5
    STUCK = 6
    """Terminating for so long that nobody waits for its place any more."""


LEAVING = (Hold.TOLD, Hold.TERMINATING)
"""Their places are waited for."""
GOING = (*LEAVING, Hold.STUCK)


class Holding(Struct):
    """What one pod holds. ``features`` are the parts that other pods' predicates look at (ports, labels, terms)."""

    uid: str
    node: str
    request: Request
    grants: tuple[Grant, ...] = ()
    state: Hold = Hold.CONFIRMED
    marks: Marks = NO_MARKS
    features: Features | None = None


class Receipt(Struct, frozen=True):
    """Proof of one operation. ``before`` is the holding as it was (None: there was none)."""

    serial: int
    uid: str
    operation: str
    before: Holding | None
