"""Two 310P chips as a node's plugin meets them, without a driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pumice.ports.cards import LOST, CardEvent, CardFacts, CardReading
from pumice.ports.vnpus import NpuRefused, Vnpu

U = tuple(f"{at:08X}-00000000-00000000-00000000-00000000" for at in (1, 2))


@dataclass
class Npus:
    """Two 310P cards and their slices (``ports.cards.Cards`` and ``ports.vnpus.Vnpus``)."""

    ill: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    made: dict[str, dict[int, Vnpu]] = field(default_factory=lambda: {uuid: {} for uuid in U})

    def facts(self) -> tuple[CardFacts, ...]:
        return tuple(CardFacts(at, uuid, "310P3", 24 << 30, minor=at) for at, uuid in enumerate(U) if uuid not in self.gone)

    def readings(self) -> tuple[CardReading, ...]:
        return ()

    def subscribe(self, uuids: Any) -> dict[str, str]:
        return {uuid: self.ill[uuid] for uuid in uuids if uuid in self.ill}

    def events(self) -> tuple[CardEvent, ...]:
        return tuple(CardEvent(uuid, LOST, text) for uuid, text in self.ill.items())

    def answers(self, uuid: str) -> bool:
        return uuid not in self.ill and uuid not in self.gone

    def close(self) -> None:
        return

    def list(self, chip: str) -> tuple[Vnpu, ...]:
        if chip in self.mute:
            raise NpuRefused("the device is not ready", -8012)
        return tuple(self.made[chip].values())

    def make(self, chip: str, template: str, ident: int | None = None) -> int:
        if template in self.refused:
            raise NpuRefused("check aicore num failed", -8001)
        ident = max([99, *self.made[chip]]) + 1 if ident is None else ident
        self.made[chip][ident] = Vnpu(ident, template)
        return ident

    def destroy(self, chip: str, ident: int) -> None:
        if self.made[chip][ident].busy:
            raise NpuRefused("the resource is busy", -8020)
        del self.made[chip][ident]
