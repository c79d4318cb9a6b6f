"""A node's cards of one type, as its plugin registers them (Volcano pkg/scheduler/api/devices/ascend/hami)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from pumice.devices.protocol import Inventory, offers
from pumice.model.cards import Card
from pumice.model.hardware.npu import MEDIA, NpuChip, Size, driver_chips, groups_wanted
from pumice.wire import names
from pumice.wire.ascend_hami import RegisteredNpu, parse_npu_register, register_key
from pumice.wire.nvidia_vgpu import parse_list
from pumice.wire.objects import Node

ALL_CORES = 100
"""The whole of which a soft share's cores are parts."""
RINGED = "Ascend910"
"""Types whose cards hang together in rings, four by four."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a node with chips, apart from who uses them. ``cores`` per card: what its node registered, or 100 on a node
    of soft shares; ``rings`` per card, None where not all of them say theirs; ``units`` as every chip of this type has them."""

    soft: bool
    cores: tuple[int, ...]
    rings: tuple[int, ...] | None
    by_uuid: Mapping[str, int]
    units: Units


def npu_inventory(node: Node, chip: NpuChip, soft: bool) -> Inventory | None:
    """None without a register annotation. ``soft`` is the cluster's default, which the node's annotation overrules."""
    notes, name = node.metadata.annotations, node.metadata.name
    text = notes.get(register_key(chip.word))
    if not text:
        return None
    if not offers(node, chip.resource):
        nothing = Facts(soft, (), None, {}, units_of(chip))
        return Inventory(problems=(f"node {name} offers no {chip.resource} (status.allocatable)",), config=nothing)
    register = parse_npu_register(text)
    own = notes.get(names.NODE_NPU_SOFT)
    soft = soft if own is None else own == "true"
    registered = register.cards
    cordoned = parse_list(notes.get(names.CORDONED_CARDS))
    cards = tuple(_card(place, entry, chip, cordoned) for place, entry in enumerate(registered))
    rings = tuple(entry.ring for entry in registered if entry.ring is not None)
    facts = Facts(
        soft,
        tuple(ALL_CORES if soft else entry.cores for entry in registered),
        rings if chip.word.startswith(RINGED) and len(rings) == len(cards) else None,
        {card.uuid: card.index for card in cards},
        units_of(chip),
    )
    return Inventory(cards, tuple(f"node {name}: {problem}" for problem in register.problems), facts)


def _card(place: int, entry: RegisteredNpu, chip: NpuChip, cordoned: tuple[str, ...]) -> Card:
    blocked = "cordoned" if entry.id in cordoned else ""
    if entry.type and entry.type != chip.word:
        blocked = f"registered as {entry.type}"
    return Card(place, entry.id, chip.word, entry.memory, entry.count, entry.healthy, blocked=blocked, numa=entry.numa)


# -- Amounts that the driver counts of a chip beside the memory that a configuration gives ----------------------------

# AI cores, AI CPUs, media units (DVPP), vGroups (Volcano pkg/scheduler/api/devices/ascend, Huawei's table of 310P
# templates). HAMi's scheduler books none of it, so the driver may refuse what was booked.


NAMES = ("AI cores", "AI CPUs", "MB by the driver's count", *(f"{name} units" for name in MEDIA))
Amounts = tuple[int, ...]
"""By the order of ``NAMES``; of a chip, 0 where it does not count them."""
NOTHING: Amounts = (0,) * len(NAMES)
MANY = 1 << 10
"""More slices than any chip is cut into."""


@dataclass(frozen=True, slots=True)
class Missing:
    """An amount of which a chip has too little for one more slice."""

    name: str
    wanted: int
    left: int

    @property
    def text(self) -> str:
        return f"wants {self.wanted} {self.name}, {self.left} are free"


@dataclass(frozen=True, slots=True)
class Units:
    """Of one type of chip: what it has, and what each template takes of it. ``groups``: vGroups, of which a slice
    of several cores wants some free; 0 where it wants none."""

    has: Amounts = NOTHING
    takes: Mapping[str, Amounts] = field(default_factory=dict)
    groups: int = 0

    def missing(self, template: str, allocated: Iterable[str], unmade: Iterable[str] = ()) -> Missing | None:
        """Return what stands in the way of a slice of that template beside those; None where the driver makes it. How many
        vGroups they lie in nobody says here: as many as there are slices, at most. ``unmade``: those of them that are placed and
        not made yet, which find their vGroups even if they are made last."""
        slices = [self.takes.get(name, NOTHING) for name in allocated]
        wanted = self.takes.get(template, NOTHING)
        for name, has, want, taken in zip(NAMES, self.has, wanted, map(sum, zip(NOTHING, *slices, strict=True)), strict=True):
            if has and taken + want > has:
                return Missing(name, want, max(0, has - taken))
        groups, free = self._wanted(template), max(0, self.groups - len(slices))
        if groups > free:
            return Missing("vGroups", groups, free)
        if len(slices) >= self.most_beside(unmade):
            return Missing("vGroups beside slices that are not made yet", 1, 0)
        return None

    def awaited(self, template: str) -> bool:
        """Return whether a slice of that template may find no vGroup where others are made before it."""
        return self._wanted(template) > 0

    def most_beside(self, unmade: Iterable[str]) -> int:
        """Return how many slices a chip may hold with all of those made last."""
        return min(map(self.most_with, unmade), default=MANY)

    def most_with(self, template: str) -> int:
        """Return how many slices a chip may hold, one of that template among them, whichever is made last."""
        groups = self._wanted(template)
        return self.groups + 1 - groups if groups else MANY

    def _wanted(self, template: str) -> int:
        """Return how many vGroups have to be free for such a slice."""
        return groups_wanted(self.takes.get(template, NOTHING)[0]) if self.groups else 0


@lru_cache(maxsize=64)
def units_of(chip: NpuChip) -> Units:
    """The configuration's own numbers of AI cores and AI CPUs where it has any; the rest as the driver of such a chip has it."""
    driver = driver_chips().get(chip.name)
    takes = {} if driver is None else {name: _amounts(size) for name, size in driver.templates}
    has = NOTHING if driver is None else _amounts(driver.size)
    for template in chip.templates:
        takes[template.name] = _said(template.cores, template.cpus, takes.get(template.name, NOTHING))
    return Units(_said(chip.cores, chip.cpus, has), takes, driver.groups if driver is not None and driver.grouped else 0)


def _amounts(size: Size) -> Amounts:
    return size.cores, size.cpus, size.memory, *size.media


def _said(cores: int, cpus: int, known: Amounts) -> Amounts:
    return cores or known[0], cpus or known[1], *known[2:]
