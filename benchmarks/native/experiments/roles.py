"""The common part of a worker's roles."""

from __future__ import annotations

from collections.abc import Callable

Go = Callable[[], str]  # says "ready" and waits for the word to begin

MIB = 1 << 20
