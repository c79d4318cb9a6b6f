"""Values that the page shows of nodes, cards and the pods that hold them. A figure that nobody tells is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a pod as a monitor saw it, all of its shares together: bytes, the bytes that it is limited to, percent of cores."""

    memory: float | None
    limit: float | None
    cores: float | None


@dataclass(frozen=True, slots=True)
class Held:
    """One container's part of a card. ``asked`` is what the pod asked for, ``memory`` what it is limited to: a MIG slot may be
    larger. ``number``: which of the pod's containers with devices."""

    pod: str
    number: int
    asked: int
    memory: int
    cores: int
    slot: str = ""
    leaving: bool = False
    use: Use | None = None
    """Of this share alone, where that is told; ``unknown`` is why it is not."""
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slice of a card, or room for one. ``start`` and ``width`` are parts of the card, from 0 to 1. ``pod`` is empty where
    nobody has it."""

    profile: str
    memory: int
    start: float
    width: float
    pod: str = ""


@dataclass(frozen=True, slots=True)
class CardView:
    """One card. ``memory`` and ``cores`` are the sums of what its holders are limited to; ``closed`` is why it takes nobody,
    empty where it does. ``unit`` is that of memory."""

    node: str
    family: str
    index: int
    uuid: str
    type: str
    mode: str
    total: int
    unit: str
    memory: int
    cores: int
    share_limit: int
    closed: str = ""
    held: tuple[Held, ...] = ()
    slots: tuple[Slot, ...] = ()
    counts_cores: bool = True
    use: Use | None = None
    """Of the whole card, as its driver tells it, where that is asked."""

    @property
    def asked(self) -> int:
        """Return what the pods on it have asked for."""
        return sum(held.asked for held in self.held)

    @property
    def overcommitted(self) -> bool:
        """Return whether more is promised than there is."""
        return self.memory > self.total or (self.counts_cores and self.cores > 100)


@dataclass(frozen=True, slots=True)
class NodeSums:
    """Sums of a node's cards: what pods asked for, what they may have, and what they use: bytes of those ``told``
    of ``pods``, which a monitor tells of (None: of none). ``unit`` is that of the first two, None where cards differ in it.
    ``unknown`` is why nothing more is told."""

    asked: int | None
    limit: int | None
    unit: str
    used: float | None
    told: int
    pods: int
    unknown: str = ""

    @property
    def limit_bytes(self) -> int | None:
        """Return the limit in bytes, None where cards differ in their unit or count other blocks than MiB."""
        return self.limit * 2**20 if self.limit is not None and self.unit == "MiB" else None


@dataclass(frozen=True, slots=True)
class Amount:
    """A resource of a node: of so much so much is taken, in the words in which Kubernetes writes it."""

    name: str
    used: str
    total: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. ``remarks`` say what keeps pods away from it, or why its cards are not known."""

    name: str
    cards: tuple[CardView, ...]
    remarks: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    amounts: tuple[Amount, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node in the list of all: sums over its cards. ``models`` in lower case, for the search."""

    name: str
    cards: int
    total: int
    memory: int
    cores: int
    free: int
    """Cards that nobody is on and that take pods."""
    models: str = ""
    remarked: bool = False

    @property
    def fill(self) -> float:
        """The part of its memory that is promised."""
        return self.memory / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class TypeLine:
    """All cards of one type. ``free``: nobody is on them and they take pods; ``closed``: they take nobody."""

    type: str
    unit: str
    cards: int
    free: int
    closed: int
    total: int
    memory: int
    asked: int
    cores: int
    held: int
    overcommitted: int
    counts_cores: bool = True


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole cluster at once."""

    nodes: tuple[NodeLine, ...] = ()
    types: tuple[TypeLine, ...] = ()
    placed: int = 0
    """Pods that hold a part of a card."""
    waiting: int = 0
    """Pods that wait for a node."""
    families: tuple[str, ...] = ()
    """The types of devices that the scheduler's configuration switches on."""


@dataclass(frozen=True, slots=True)
class PodLine:
    """A pod in the list of all."""

    key: str
    queue: str
    job: str
    status: str
    node: str
    priority: int
    created: float
    cards: tuple[Held, ...] = ()
    unit: str = ""
