"""To which pods the processes of this machine belong, as its kernel knows it and no tenant can say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a process: UID of the pod and id of the container, both empty outside of pods; ``pid`` is what the process
    itself is called by, in the innermost namespace, and ``shared`` whether that is the host's number. ``mps``: it bears the name
    of MPS's programs, as anything may."""

    pod: str = ""
    container: str = ""
    pid: int = 0
    shared: bool = True
    mps: bool = False


class Owners(Protocol):
    def owners(self, pids: Iterable[int]) -> dict[int, Owner]:
        """Nothing of processes that have gone or cannot be told."""
        ...
