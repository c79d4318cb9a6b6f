"""The cards of this machine, as the node side needs them. NVML answers it (``pumice.adapters.nvml``).

Every call blocks and may take long on an unhealthy card, so callers run it in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from pumice.model.errors import Unavailable


class CardsUnavailable(Unavailable):
    """The driver did not answer at all (no library, no driver, no card); the text says which."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """The constant facts of one card while it is in the machine.

    ``index`` is NVML's, ``minor`` the number of ``/dev/nvidia<minor>`` (-1 unknown), ``memory`` bytes as NVML reports them,
    ``mig`` whether MIG mode is on now, ``numa`` -1 when unknown, ``pci_id`` PCI's device and vendor in one (0 unknown),
    ``links`` the NVLinks to each peer, by its UUID, ``capability`` the compute capability ((0, 0) unknown).
    """

    index: int
    uuid: str
    name: str
    memory: int
    minor: int = -1
    mig: bool = False
    numa: int = -1
    bus_id: str = ""
    pci_id: int = 0
    links: tuple[tuple[str, int], ...] = ()
    capability: tuple[int, int] = (0, 0)


class CardReading(Struct, frozen=True):
    """The measurements of one card now: bytes and percent (-1 where the card does not tell, as in MIG mode)."""

    index: int
    uuid: str
    memory_used: int
    memory_total: int
    utilization: int
    memory_utilization: int = -1
    name: str = ""


class CardProcess(Struct, frozen=True):
    """A process that computes on a card: its pid as the driver tells it, the bytes it has there (0 where the driver does not
    tell), and the GPU instance of a card in MIG mode, else -1."""

    card: str
    pid: int
    memory: int
    instance: int = -1


class InstanceReading(Struct, frozen=True):
    """One MIG device and what it measures now. ``start``: the first of the card's memory slices below it."""

    card: str
    uuid: str
    profile: str
    start: int
    gpu_instance: int
    compute_instance: int
    memory_used: int
    memory_total: int


LOST = -1


class CardEvent(Struct, frozen=True):
    """A critical error that the driver reported. ``uuid`` is empty when it could not be told which card it was; ``xid`` is
    LOST when the driver lost the card without naming an error; ``text`` says more, where there is more to say."""

    uuid: str
    xid: int
    text: str = ""


class Cards(Protocol):
    """One machine's cards. Only ``facts`` raises (CardsUnavailable); single unhealthy cards are left out of the answers."""

    def facts(self) -> tuple[CardFacts, ...]:
        """Every card that the driver enumerates, in NVML order."""
        ...

    def readings(self) -> tuple[CardReading, ...]:
        """The measurements of each card; a card that does not answer is left out."""
        ...

    def subscribe(self, uuids: Sequence[str]) -> dict[str, str]:
        """Listen for critical errors on these cards. Returns what went wrong, by UUID: ``unsupported`` means that the
        card has no such events and counts as healthy, any other text that it is unhealthy."""
        ...

    def events(self) -> tuple[CardEvent, ...]:
        """Errors since the last call, without waiting."""
        ...

    def answers(self, uuid: str) -> bool:
        """Return whether the card can be found, tells its memory and asks for no recovery."""
        ...

    def close(self) -> None: ...


class WatchedCards(Protocol):
    """One machine's cards as a monitor reads them. Raises CardsUnavailable; single unhealthy cards are left out of the
    answers."""

    def readings(self) -> tuple[CardReading, ...]: ...

    def processes(self) -> tuple[CardProcess, ...]:
        """The processes by card."""
        ...

    def instances(self) -> tuple[InstanceReading, ...]:
        """The MIG devices of all cards in MIG mode."""
        ...

    def close(self) -> None: ...
