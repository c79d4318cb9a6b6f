"""The words of a device type for tests only, as ``wire`` keeps those of real ones: cards of slices, one card to a pod."""

from __future__ import annotations

from collections.abc import Mapping

NAME = "toy"
RESOURCE = "toy.pumice.io/slices"
"""The requests of containers, and the registrations of the node's plugin."""
CARDS = "toy.pumice.io/cards"
"""On the node: its cards and how many slices each has."""
CARD = "toy.pumice.io/card"
"""On the pod, by the user: the one card that will do, by its name."""
NAMES = ("toy-0", "toy-1")
ASSIGNED = "toy.pumice.io/assigned"
"""On the pod: the card that the scheduler chose, and how many slices of it."""
SERVED = "toy.pumice.io/served"
"""On the pod: the plugin has handed them out."""
LOCK = "toy.pumice.io/lock"
"""On the node: a scheduler waits for its pod to be served."""


def render(slices: Mapping[str, int]) -> str:
    """``a=4,b=8``: slices by card."""
    return ",".join(f"{uuid}={count}" for uuid, count in slices.items())


def parse(text: str) -> dict[str, int]:
    """Slices by card; what cannot be meant is left out."""
    words = [word.partition("=") for word in text.split(",")]
    return {uuid: int(count) for uuid, _, count in words if uuid and count.isascii() and count.isdigit()}
