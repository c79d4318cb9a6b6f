"""Cards that a node offers to vGPUs, and what pods ask and hold of them: read from annotations and limits alone; nothing else of
Pumice is imported here on purpose.

Cards that are shared by HAMi-core are judged exactly (shares, memory, cores, a card for itself); of MIG slices only that no
slot is held twice and that one card is cut in one way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pumice.audit.amounts import Json, quantity

REGISTER, HELD = "volcano.sh/node-vgpu-register", "volcano.sh/vgpu-ids-new"
NUMBER, MEMORY, PERCENT, CORES = (f"volcano.sh/vgpu-{part}" for part in ("number", "memory", "memory-percentage", "cores"))


@dataclass(slots=True)
class Card:
    """One registered card and what is held of it."""

    uuid: str
    limit: int
    total: int
    healthy: bool
    mig: bool
    shares: int = 0
    memory: int = 0
    cores: int = 0
    slots: list[str] = field(default_factory=list)

    def takes(self, memory: int, cores: int) -> bool:
        """Return whether a share of that size may join those that are there."""
        if not self.healthy or self.mig or self.shares >= self.limit or self.memory + memory > self.total:
            return False
        return self.cores + cores <= 100 and not (cores == 100 and self.shares) and not (cores == 0 and self.cores >= 100)

    def over(self) -> list[str]:
        found = []
        if self.memory > self.total:
            found.append(f"card {self.uuid}: memory {self.memory} of {self.total}")
        if not self.mig and self.cores > 100:
            found.append(f"card {self.uuid}: cores {self.cores} of 100")
        if self.shares > self.limit:
            found.append(f"card {self.uuid}: {self.shares} shares of {self.limit}")
        if not self.slots:
            return found
        twice = [slot for slot, number in Counter(self.slots).items() if number > 1]
        if twice:
            found.append(f"card {self.uuid}: MIG slots {twice} are held twice")
        if len({slot.rpartition("-")[0] for slot in self.slots if "@" not in slot}) > 1:
            found.append(f"card {self.uuid}: MIG slots of two geometries at once: {sorted(self.slots)}")
        return found


def cards_of(node: Json) -> dict[str, Card]:
    """The cards that its plugin registered, by UUID."""
    found = {}
    for entry in node["metadata"].get("annotations", {}).get(REGISTER, "").split(":"):
        fields = entry.split(",")
        if len(fields) >= 6:
            count, memory = (max(0, int(size)) for size in fields[1:3])  # a card of a negative size takes nobody
            found[fields[0]] = Card(fields[0], count, memory, fields[4] == "true", fields[5] == "mig")
    return found


Device = tuple[str, str, int, int]
"""UUID, slot or "", memory, cores."""


def container_devices(text: str) -> Iterator[Device]:
    """(uuid, slot or "", memory, cores) of each device of an assignment; what cannot be read is left out."""
    for token in text.replace(";", "").split(":"):
        fields = token.split(",")
        if len(fields) >= 4 and fields[2].isdecimal() and fields[3].isdecimal():
            uuid, _, slot = fields[0].partition("[")
            yield uuid, slot.rstrip("]"), int(fields[2]), int(fields[3])


def charge(cards: Mapping[str, Card], devices: Iterable[Device]) -> list[str]:
    """Book the devices of an assignment. Returns their UUIDs that are there."""
    named = []
    for uuid, slot, memory, cores in devices:
        card = cards.get(uuid)
        if card is not None:
            card.shares, card.memory, card.cores = card.shares + 1, card.memory + memory, card.cores + cores
            if slot:
                card.slots.append(slot)
            card.healthy &= card.mig == bool(slot)  # held in a way that it does not know any more: nobody else may have it
            named.append(uuid)
    return named


def discharge(cards: Mapping[str, Card], devices: Iterable[Device]) -> None:
    """Take the devices of an assignment that was booked off the cards."""
    for uuid, slot, memory, cores in devices:
        card = cards.get(uuid)
        if card is not None:
            card.shares, card.memory, card.cores = card.shares - 1, card.memory - memory, card.cores - cores
            if slot:
                card.slots.remove(slot)


@dataclass(frozen=True, slots=True)
class Want:
    """The request of one container: that many different cards, each with so much."""

    number: int
    memory: int
    percent: int
    cores: int

    def of(self, card: Card) -> int:
        if self.percent:
            return card.total * self.percent // 100
        return self.memory


def wants(pod: Json) -> list[Want]:
    """The containers that ask for vGPUs."""
    found = []
    for container in pod["spec"].get("containers", ()):
        limits = container.get("resources", {}).get("limits", {})
        number, memory, percent, cores = (int(quantity(limits.get(name, 0))) for name in (NUMBER, MEMORY, PERCENT, CORES))
        if number or memory:
            found.append(Want(number or 1, memory, percent or (0 if memory else 100), cores))
    return found
