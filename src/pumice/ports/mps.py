"""The control daemons of NVIDIA's Multi-Process Service on this machine, one for each card. A program starts them and speaks to
them (``pumice.adapters.mps``). Every call blocks, so callers run it in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

PROGRAM: Final = "nvidia-cuda-mps-control"
COMM: Final = "nvidia-cuda-mps"
"""Name that the kernel has for both daemons and servers: it keeps 15 letters."""


@dataclass(frozen=True, slots=True)
class DaemonSeen:
    """The state in which a card's daemon was found. ``pid``: 0 where none lives. ``answers``: whether it did, None where it was
    not asked; ``clients``: how many programs its servers have, -1 where that was not asked. ``left``: servers of a daemon that
    is gone,
    which still run."""

    pid: int = 0
    answers: bool | None = None
    clients: int = -1
    left: tuple[int, ...] = ()


def folder_of(card: str) -> str:
    """The name of the folder of a card's daemon: short, for the path of a socket has 107 bytes."""
    return card[:12]


class MpsControl(Protocol):
    def known(self) -> tuple[str, ...]:
        """The cards that have had a daemon here, by UUID."""
        ...

    def look(self, card: str, *, ask: bool) -> DaemonSeen:
        """``ask``: whether it answers and whom it serves, which takes a program's start; else only whether it lives."""
        ...

    def start(self, card: str) -> None:
        """For that card alone, which from then on takes no program beside the daemon's. Raises Unavailable."""
        ...

    def say(self, card: str, *commands: str) -> Sequence[str]:
        """The lines of the answers. Raises Unavailable."""
        ...

    def servers(self, card: str) -> tuple[int, ...]:
        """The pids of the servers that its daemon has. Raises Unavailable."""
        ...

    def kill(self, card: str, pid: int) -> None:
        """End a daemon that does not answer; what it serves may go on."""
        ...

    def quit(self, card: str) -> None:
        """End it and its servers. Raises Unavailable."""
        ...

    def forget(self, card: str) -> None:
        """Open a card without a daemon to everybody again: it is known no longer. Raises Unavailable."""
        ...
