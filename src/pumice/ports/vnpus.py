"""The slices (vNPUs) of this machine's NPUs: what is there, making and destroying them. The DCMI library answers it
(``pumice.adapters.dcmi``); whoever starts containers makes slices, and a device plugin sweeps up those that were left.

One call makes or destroys a whole slice, so whoever is killed leaves none in half. Every call blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from pumice.ports.slices import CutRefused

UNOPENED: Final = 0xFFFFFFFFFFFF
"""The container of a slice that none has opened yet; 0 says that it has ended (Huawei's npu-smi reference)."""


class NpuRefused(CutRefused):
    """The driver refused a call, or did not answer; ``code`` is DCMI's."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Vnpu:
    """One slice: the driver's number of it, its template, whether a container or a process has it, and the id of that
    container; what it has of the chip (MB, AI cores), and what of it is used (MB, per cent)."""

    id: int
    template: str
    group: int = 0
    busy: bool = False
    container: int = UNOPENED
    memory: int = 0
    cores: int = 0
    used: int = 0
    load: int = 0


class Vnpus(Protocol):
    """``chip`` is a card's UUID. Raises NpuRefused on whatever the driver does not do."""

    def list(self, chip: str) -> tuple[Vnpu, ...]:
        """The slices that exist now, whoever created them, in the order of the ids."""
        ...

    def make(self, chip: str, template: str, ident: int | None = None) -> int:
        """The driver chooses the group, and the id where none is wanted; returns the id."""
        ...

    def destroy(self, chip: str, ident: int) -> None:
        """Refused while a container or a process has it."""
        ...
