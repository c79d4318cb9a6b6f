"""The contract between the engine and a device type.

The engine owns time, the ledger's ``Usage`` rows and all loops over pods and nodes. A device type owns what a request means,
which card fits, and how a decision is written on the wire. Everything here is a synchronous function of values; nothing
may mutate its arguments.

``DeviceSharing`` is a base class: what every device type must say is abstract, the rest has an answer that is right for one of
which nothing more is known. What only some can do is a part of its own, which a device type has or has not: ``Ranking``,
``LateQuota``, ``Planner``. What other rooms need to know of its names, it declares: lock, series, annotations, resources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from pumice.model.cards import Allocation, Card, ContainerDevice, Usage
from pumice.model.refusal import FitError, Refusal, Short
from pumice.wire.device_reports import Reported
from pumice.wire.objects import ConfigMap, Node, Pod
from pumice.wire.quantity import parse_quantity

if TYPE_CHECKING:  # deciding for one node needs no arrays, and `pumice run` should not wait for them
    import numpy as np
    from numpy.typing import NDArray

    from pumice.devices.fragmentation import CardPart


class Inventory(Struct, frozen=True):
    """The cards of one node as registered, and what is wrong with the registration (one sentence each)."""

    cards: tuple[Card, ...] = ()
    problems: tuple[str, ...] = ()
    config: Any = None  # what the device type wants to remember per node, e.g. the geometries of its models


def offers(node: Node, resource: str) -> bool:
    """Return whether the node has any of it to give; the kubelet drops it to 0 when the plugin dies."""
    try:
        return parse_quantity(node.status.allocatable.get(resource, 0)) > 0
    except ValueError:
        return False


class DeviceRequest(Struct, frozen=True):
    """A pod's request of a device type. Equal ``key`` means: any card choice for one is a choice for the other.

    ``key`` therefore contains everything of the pod that ``fit`` and ``score`` look at (counts, memory, cores,
    allow lists, mode, spread group, exclusivity rules), and nothing else.
    """

    device_type: str
    key: Hashable
    detail: Any


class SlotView(Struct, frozen=True):
    """One slice of a card, for people. ``start`` and ``width`` are parts of the card, from 0 to 1; ``memory`` is in memory units;
    ``holder`` is the uid of the pod that has it, None where it is free."""

    profile: str
    memory: int
    start: float
    width: float
    holder: str | None = None


class NodeCards(Struct, frozen=True):
    """One node as ``fit`` sees it: facts and usage side by side, same length. ``usages`` must not be changed."""

    node: str
    inventory: Inventory
    usages: Sequence[Usage]
    marks: Mapping[str, Marks] = {}
    """Of the pods on its cards, by uid, those that mean something for later ones. Must not be changed either."""
    quarantined: Mapping[int, str] = {}
    """Card index to the reason why it takes no new pods now: a doubt about what some pod on it holds (D-25)."""

    def rules(self, card: int) -> frozenset[int]:
        """The exclusivity rules of the pods on a card (Volcano pkg/scheduler/api/devices/nvidia/vgpu)."""
        return frozenset(rule for marks, _ in self._marked(card) for rule in marks.rules)

    def groups(self, card: int) -> frozenset[str]:
        """The PodGroup keys of the pods on a card that hold memory or cores: a policy spreads a group over cards."""
        return frozenset(
            marks.group
            for marks, container_devices in self._marked(card)
            if marks.group and any(p.memory or p.cores for p in container_devices)
        )

    def _marked(self, card: int) -> Iterator[tuple[Marks, tuple[ContainerDevice, ...]]]:
        holders = self.usages[card].holders
        return ((self.marks[uid], container_devices) for uid, container_devices in holders.items() if uid in self.marks)


class Marks(Struct, frozen=True, gc=False):
    """The marks of a pod for later pods on its cards, whoever placed it: the material of ``NodeCards.groups`` and
    ``NodeCards.rules``. Not part of ``DeviceRequest``, whose equal keys may belong to pods of different groups."""

    group: str = ""  # "<namespace>/<PodGroup>"; counts for a card only while the pod holds memory or cores there
    rules: frozenset[int] = frozenset()  # the exclusivity rules that the pod's labels match


NO_MARKS = Marks()


class Fit(Struct, frozen=True, gc=False):
    """A choice of cards and the node score in 0..100 (before the plugin's weight)."""

    allocation: Allocation
    score: float


class WithoutConstraints(Struct, frozen=True):
    """The request on most nodes: those that have none of these cards, no pod of this PodGroup and none of these
    exclusivity rules. ``device_request`` decides there as the whole ask would; None: it is refused there."""

    device_request: DeviceRequest | None
    uuids: frozenset[str] = frozenset()
    group: str = ""
    rules: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Columns:
    """The cards of all nodes as arrays, for ranking one class at once. Shape (nodes, cards); absent cards have total 0.

    Kept by the ledger: only rows of changed nodes are rewritten. ``flags`` holds 1 where the card takes pods at all.
    """

    total: NDArray[np.int64]
    memory: NDArray[np.int64]
    cores: NDArray[np.int64]
    shares: NDArray[np.int64]
    share_limit: NDArray[np.int64]
    flags: NDArray[np.bool_]
    mig: NDArray[np.bool_]
    type_id: NDArray[np.int32]  # index into ``types``; -1 absent
    types: tuple[str, ...]
    state: NDArray[np.int32] | None = None
    """Per card the number that ``Ranking.card_state`` gives; None while nobody keeps it (MIG asks then go scalar)."""


class Ranking(ABC):
    """Ranks all nodes of one class at once. It must agree with ``fit``, and a property test says so."""

    @abstractmethod
    def vector(self, device_request: DeviceRequest, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        """(may fit, score) per node; None when this ask needs ``fit`` on every node. ``may fit`` is False only where ``fit``
        would refuse; where it is True and ``fit`` accepts, the scores are equal. A score of NaN: only ``fit`` can tell."""

    def without_constraints(self, device_request: DeviceRequest) -> WithoutConstraints | None:
        """The part of an ask that looks at counters only; None when that is all of it."""
        return None

    def part(self, device_request: DeviceRequest) -> tuple[CardPart | None, str]:
        """Return what a pod takes of cards shared by memory and cores, and the name of its card policy between nodes. None:
        its policy counts nothing that such pods strand."""
        return None, ""

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        """A small number that stands for everything an ask can meet of the card beyond the other columns (for MIG: geometry,
        active group and used slots). -1 where there is nothing more to know."""
        return -1

    def empty_kind(self, inventory: Inventory) -> Hashable:
        """Equal for nodes whose cards have equal ``card_state``s place by place while nothing is booked on them; None where
        that is not known without asking for each."""
        return None


class LateQuota(Protocol):
    """For a device type whose ``quota`` may leave out what only a card can tell: the memory of whole cards and of percentages."""

    def known_late(self, device_request: DeviceRequest) -> bool:
        """Return whether it does so for this ask."""
        ...

    def card_kinds(self, inventory: Inventory) -> frozenset[Hashable]:
        """All of a node's cards that ``bound`` looks at, each kind once."""
        ...

    def bound(self, device_request: DeviceRequest, kinds: Iterable[Any]) -> dict[str, int]:
        """In place of ``quota``: the most that cards of these kinds would make of it."""
        ...

    def of_allocation(self, allocation: Allocation) -> dict[str, int]:
        """In place of ``quota``: what the grant comes to."""
        ...


class Planned(Struct, frozen=True):
    """One pod of those that are laid out together. ``nodes``: numbers of the nodes that it may have. ``must``: it comes before
    all that need not be."""

    device_request: DeviceRequest
    nodes: frozenset[int]
    must: bool


class Planner(ABC):
    """For a device type whose cards are partitioned, so that it matters who gets which slice: pods are laid out together. The
    layout is a hint: ``fit`` looks at what is in use, as for every other pod."""

    @abstractmethod
    def plannable(self, device_request: DeviceRequest) -> bool:
        """Return whether pods with this ask can be laid out: one slice that is to be cut."""

    @abstractmethod
    def lay_out(self, pods: Sequence[Planned], nodes: Sequence[NodeCards]) -> list[tuple[int, Any] | None]:
        """For each pod the number of its node, and what ``fit`` is to look for there; None for who is left out."""

    @abstractmethod
    def fit(self, device_request: DeviceRequest, cards: NodeCards, where: Any) -> Fit | None:
        """The choice of cards that was planned, by all the rules by which others are chosen; None where it does not stand."""


class Tunables(Struct, frozen=True):
    """The parts of a pod's text that can be changed so that it asks for less, by name; empty where the device type has nothing
    of the kind."""

    count: str = ""
    memory: str = ""
    cores: str = ""
    percent: str = ""
    """Resource names: cards, and what of each."""
    memory_unit: str = "MiB"
    """The unit of ``memory``."""
    rounds_up: bool = False
    """True if a part of a unit counts as a whole one; else it counts as 0."""
    mode: str = ""
    modes: tuple[str, ...] = ()
    """An annotation that chooses how cards are shared, and its values."""
    forbids: tuple[str, ...] = ()
    """Annotations that only ever forbid."""

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(name for name in (self.count, self.memory, self.cores, self.percent) if name)


class Series(Struct, frozen=True):
    """The prefixes of the names of a device type's series on the scheduler's metrics page: of its cards, and of its pods, told
    apart by namespace."""

    cards: str
    pods: str
    memory: str = "memory"
    cores: str = "cores"
    """The units of a piece's memory and cores."""


class ReportSource(Struct, frozen=True):
    """ConfigMaps in which others tell what ``inventory`` has to know of a node: those of a namespace (empty: of all) with a label
    (``key=value``), and how one is read. What it says reaches ``inventory`` as ``Node.reports``."""

    namespace: str
    label: str
    read: Callable[[ConfigMap], Reported]

    def names(self, found: ConfigMap) -> bool:
        """Return whether that ConfigMap is one of them."""
        key, _, value = self.label.partition("=")
        return self.namespace in ("", found.metadata.namespace) and found.metadata.labels.get(key) == value


class DeviceSharing(ABC):
    """One device type under one configuration. A changed configuration makes a new object."""

    name: str
    lock: str = ""
    """The annotation of a node that is its lock around Bindings; empty: it needs none."""
    register: str = ""
    """The annotation of a node in which its plugin registers the cards; empty: it uses none."""
    series: Series | None = None
    """None: no series."""
    allocation_keys: tuple[str, ...] = ()
    """Annotations of a pod that carry the assignment: only the scheduler and the node's plugin write them."""
    served_elsewhere: frozenset[str] = frozenset()
    """Of its resources those that other vendors' plugins serve as well, for whole cards."""
    ranking: Ranking | None = None
    """None: every node is looked at by ``fit``, and no two are held to be alike."""
    reports: tuple[ReportSource, ...] = ()
    """Empty: all that it needs to know of a node stands in the Node object."""
    late_quota: LateQuota | None = None
    """None: ``quota`` is all there is to know."""
    planner: Planner | None = None
    """None: pods are placed one by one."""

    # -- what every device type says -----------------------------------------------------------------------------------

    @abstractmethod
    def resources(self) -> frozenset[str]:
        """Extended resource names that this device type accounts card by card."""

    @abstractmethod
    def device_request(self, pod: Pod) -> DeviceRequest | Refusal | None:
        """Return what the pod wants; None when it wants nothing of this device type; Refusal when it can never be honoured."""

    @abstractmethod
    def inventory(self, node: Node) -> Inventory | None:
        """The node's cards; None when the node has none of this device type."""

    @abstractmethod
    def fit(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | FitError:
        """Choose cards for one pod on one node."""

    @abstractmethod
    def annotations(self, allocation: Allocation, now_ns: int) -> dict[str, str]:
        """The pod annotations that carry the grant, to travel in the Binding (only our own keys, D-15)."""

    @abstractmethod
    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Allocation | Refusal | None:
        """Return what a pod already holds on that node by its annotations. Stale annotations (D-46) mean None. A Refusal
        quarantines the card named by its ``field`` (D-25), or all of the node's when it names none. ``handed``: what the
        node's plugin says that it has handed to this pod, in the device type's own notation; empty: it says nothing.

        A grant may carry ``doubts`` too: the pieces in it are good and must be charged, each doubt quarantines the card
        whose UUID is its ``field`` for as long as the pod is there."""

    @abstractmethod
    def quota(self, device_request: DeviceRequest) -> dict[str, int]:
        """Effective demand for queue quotas: per-card value times cards (D-39)."""

    # -- what has an answer that is right for all -----------------------------------------------------------------

    @property
    def tunables(self) -> Tunables:
        """The amounts that ``explain`` may try to change, and by which ``lint`` knows the units."""
        return Tunables()

    @property
    def steering(self) -> Mapping[str, tuple[str, ...]]:
        """Annotations of a pod that the device type reads, each with the values that it knows; none listed: any may."""
        return {}

    def parameters(self) -> frozenset[str]:
        """Names that are parameters rather than resources: exempt from the aggregate check (D-40)."""
        return frozenset()

    def resources_only(self, pod: Pod) -> bool:
        """Return whether ``device_request`` looks at nothing of this pod but its containers' resources and its labels."""
        return False

    def least_memory(self, device_request: DeviceRequest) -> int:
        """Return how much memory of cards a pod with this ask holds at least, in the cards' units: who looks for room need not
        look where so much cannot be freed. 0: nothing is known."""
        return 0

    def marks(self, pod: Pod) -> Marks:
        """The PodGroup and the exclusivity rules by which this pod, once on a card, keeps others away from it."""
        return NO_MARKS

    def quick(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | None:
        """``fit`` without the explanation: most refusals are never read."""
        found = self.fit(device_request, cards)
        return found if isinstance(found, Fit) else None

    def no_devices(self, node: str) -> FitError:
        """The refusal of a node that has no cards of this device type (D-10)."""
        return FitError(node, Short.NO_DEVICES, f"{self.name}: no cards on the node", final=True)

    def remarks(self, limits: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(key, sentence) on a container's limits or a pod's annotations: what ``lint`` shall say beyond units and spelling. An
        empty key means all of them."""
        yield from ()

    def slots(self, place: int, inventory: Inventory, usage: Usage) -> tuple[SlotView, ...]:
        """The slices of a card, those that are taken and those that could be as it is cut now, in their order; none for cards
        that are not cut."""
        return ()
