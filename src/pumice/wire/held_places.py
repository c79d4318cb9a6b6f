"""Cards of a node that take nobody but one pod for a while (``pumice.io/held-places``), as ``pumice defrag apply`` writes them.

Only those who may write nodes can write it, and it is not trusted all the same: an entry is void that is malformed, that ends
more than ``LONGEST`` ahead, or that names an unknown card, pod or controller.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

LONGEST: Final = 900.0
"""Seconds from now for which a place may be held; who needs it longer writes it again."""
MOST: Final = 64
"""Entries that are read on one node."""
_RUN: Final = ", run "


class HeldPlace(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A held place as the node says it. ``until``: in RFC 3339. ``pod``: the uid of who has the place, or, with
    ``controller``, of the one that leaves so that the controller of that uid makes it anew; without both nobody has it."""

    cards: tuple[str, ...]
    until: str
    pod: str = ""
    controller: str = ""


_decode = msgspec.json.Decoder(tuple[HeldPlace, ...]).decode


def render_held_places(places: tuple[HeldPlace, ...]) -> str:
    return msgspec.json.encode(places).decode()


def parse_held_places(text: str) -> tuple[HeldPlace, ...] | str:
    """Return the entries, or why there are none."""
    try:
        found = _decode(text) if text else ()
    except msgspec.DecodeError as error:
        return f"no list of held places: {error}"
    return found if len(found) <= MOST else f"{len(found)} held places, more than {MOST}"


def render_held_for(goal: str, run: str) -> str:
    """The text of ``pumice.io/held-for-moves``: what pods are moved for, and a name of the run that does it."""
    return f"{goal}{_RUN}{run}" if run else goal


def parse_held_for(text: str) -> tuple[str, str]:
    """Return goal and run; of older versions no run is known."""
    goal, _, run = text.rpartition(_RUN) if _RUN in text else (text, "", "")
    return goal, run
