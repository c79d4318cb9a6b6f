"""What the roles of a worker have in common."""

from __future__ import annotations

from collections.abc import Callable

Go = Callable[[], str]  # says "ready" and waits for the word to begin

MIB = 1 << 20
