"""Card policies, a row each: in what order cards are taken on a node (section 9) and what a choice is worth between nodes.

The functions are plain arithmetic, so that they serve numbers and arrays of cards alike. Whoever reads or checks a policy's name
reads this table: settings, asks, lint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

TIE = 1e-4
"""Share of the score that orders nodes whose cards score alike: binpack goes on with the fuller node, spread with the
emptier one. Small enough never to change what upstream's rounding makes of a score."""


class CardPolicy(Struct, frozen=True):
    """One policy. Without any, the highest index comes first and no node is better than another."""

    name: str
    rank: Callable[[Any, Any], Any]
    """(memory in use, shares) of a card: the greatest comes first, of equal ones the lowest index."""
    worth: Callable[[Any, Any, Any], Any]
    """(memory in use with the pod, total, shares before it) of a chosen card, in 0..100; the node's score is their mean."""
    tie: Callable[[Any, Any, Any, Any], Any]
    """(memory in use, total, shares, share limit) of a whole node, in 0..1, before the pod."""


POLICIES: Mapping[str, CardPolicy] = {
    policy.name: policy
    for policy in (
        CardPolicy(
            "binpack",
            lambda memory, shares: memory,
            lambda charged, total, shares: 100.0 * charged / total,
            lambda memory, total, shares, limit: memory / total,
        ),
        CardPolicy(
            "spread",
            lambda memory, shares: -shares,
            lambda charged, total, shares: 100.0 * (shares == 0),
            lambda memory, total, shares, limit: 1.0 - shares / limit,
        ),
    )
}

FOR_SLOTS = "binpack"
"""By whose tie nodes stand that offer slots of equal cost to a pod without a policy of its own: the fuller one goes on."""
