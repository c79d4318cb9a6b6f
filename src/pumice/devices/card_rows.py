"""Cards and the pods on them, from API objects alone, as commands show them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Holder:
    """One pod's part of a card: MiB and percent; ``cores`` None where none are told. ``template``: by what it was cut, where
    that says it all."""

    pod: str
    memory: int
    cores: int | None = None
    template: str = ""

    def __str__(self) -> str:
        if not self.memory:
            return f"{self.pod} ({self.template or 'whole'})"
        return f"{self.pod} ({self.memory} MiB{'' if self.cores is None else f', {self.cores} %'})"


@dataclass(slots=True)
class CardRow:
    """One card. Memory in MiB, cores in percent; ``holders`` are the pods on it."""

    node: str
    index: int
    uuid: str
    type: str
    total: int
    healthy: bool = True
    memory: int = 0
    cores: int = 0
    holders: list[Holder] = field(default_factory=list)
