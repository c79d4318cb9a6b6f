"""The measure of what is left of a card that is cut into slices: by annotation or by claim, of a GPU or an NPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Request = TypeVar("Request")


def remaining(requests: Iterable[tuple[Request, float, float]], room: Callable[[Request], int]) -> float:
    """The amount that the card can still serve, in expectation over the requests to come: each with its size and how frequent it
    is taken to be. ``room`` tells how many of one sort can be cut side by side."""
    served = [(weight, size * room(request)) for request, size, weight in requests]
    return sum(weight * amount for weight, amount in served) / sum(weight for weight, _ in served)
