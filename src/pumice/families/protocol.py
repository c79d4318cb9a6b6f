"""The contract between the engine and a device family.

The engine owns time, the ledger's ``Usage`` rows and all loops over pods and nodes. A family owns what a request means,
which card fits, and how a decision is written on the wire. Everything here is a synchronous function of values; nothing
may mutate its arguments. A scalar path (``fit``) decides exactly; an optional vector path (``Columns``) lets the engine
rank all nodes of one class at once and must agree with the scalar path (a property test says so).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from pumice.model.cards import Card, Grant, Usage
from pumice.model.refusal import Misfit, Refusal
from pumice.wire.objects import Node, Pod

if TYPE_CHECKING:  # deciding for one node needs no arrays, and `pumice run` should not wait for them
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Inventory:
    """The cards of one node as registered, and what is wrong with the registration (one sentence each)."""

    cards: tuple[Card, ...] = ()
    problems: tuple[str, ...] = ()
    config: Any = None  # what the family wants to remember per node, e.g. the geometries of its models


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod wants of a family. Equal ``key`` means: any card choice for one is a choice for the other.

    ``key`` therefore contains everything of the pod that ``fit`` and ``score`` look at (counts, memory, cores,
    allow lists, mode, spread group, exclusivity rules), and nothing else.
    """

    family: str
    key: Hashable
    detail: Any


@dataclass(frozen=True, slots=True)
class NodeCards:
    """One node as ``fit`` sees it: facts and usage side by side, same length. ``usages`` must not be changed."""

    node: str
    inventory: Inventory
    usages: Sequence[Usage]
    exclusive: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Card index to the exclusivity rules of the pods on it (spec deviceshare-nvidia 13)."""
    groups: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Card index to the PodGroup keys of the pods on it that hold memory or cores (section 14)."""
    quarantined: Mapping[int, str] = field(default_factory=dict)
    """Card index to the reason why it takes no new pods now: a doubt about what some pod on it holds (D-25)."""


class Marks(Struct, frozen=True, gc=False):
    """What a pod means for later pods on its cards, whoever placed it: the material of ``NodeCards.groups`` and
    ``NodeCards.exclusive``. Not part of ``Ask``, whose equal keys may belong to pods of different groups."""

    group: str = ""  # "<namespace>/<PodGroup>"; counts for a card only while the pod holds memory or cores there
    rules: frozenset[int] = frozenset()  # the exclusivity rules that the pod's labels match


@dataclass(frozen=True, slots=True)
class Fit:
    """A choice of cards and the node score in 0..100 (before the plugin's weight)."""

    grant: Grant
    score: float


@dataclass(frozen=True, slots=True)
class WithoutConstraints:
    """How an ask reads on most nodes: those that have none of these cards, no pod of this PodGroup and none of these
    exclusivity rules. ``ask`` decides there as the whole ask would; None: it is refused there."""

    ask: Ask | None
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
    """Per card the number that ``Family.card_state`` gives; None while nobody keeps it (MIG asks then go scalar)."""


@dataclass(frozen=True, slots=True)
class Tunables:
    """What of a pod's text can be changed so that it asks for less, by name; empty where the family has nothing of the kind."""

    count: str = ""
    memory: str = ""
    cores: str = ""
    percent: str = ""
    """Resource names: cards, and what of each."""
    mode: str = ""
    modes: tuple[str, ...] = ()
    """An annotation that chooses how cards are shared, and its values."""
    forbids: tuple[str, ...] = ()
    """Annotations that only ever forbid."""


class Family(Protocol):
    """One device family under one configuration. A changed configuration makes a new object."""

    name: str

    @property
    def tunables(self) -> Tunables:
        """What ``explain`` may try to change."""
        ...

    def resources(self) -> frozenset[str]:
        """Extended resource names that this family accounts card by card."""
        ...

    def parameters(self) -> frozenset[str]:
        """Names that are parameters rather than resources: exempt from the aggregate check (D-40)."""
        ...

    def ask(self, pod: Pod) -> Ask | Refusal | None:
        """What the pod wants; None when it wants nothing of this family; Refusal when it can never be honoured."""
        ...

    def resources_only(self, pod: Pod) -> bool:
        """Whether ``ask`` looks at nothing of this pod but its containers' resources and its labels."""
        ...

    def inventory(self, node: Node) -> Inventory | None:
        """The node's cards; None when the node has none of this family."""
        ...

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Grant | Refusal | None:
        """What a pod already holds on that node by its annotations. Stale annotations (D-46) mean None. A Refusal
        quarantines the card named by its ``field`` (D-25), or all of the node's when it names none. ``handed``: what the
        node's plugin says that it has handed to this pod, in the family's own notation; empty: it says nothing.

        A grant may carry ``doubts`` too: the pieces in it are good and must be charged, each doubt quarantines the card
        whose UUID is its ``field`` for as long as the pod is there."""
        ...

    def marks(self, pod: Pod) -> Marks:
        """The PodGroup and the exclusivity rules by which this pod, once on a card, keeps others away from it."""
        ...

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        """A small number that stands for everything ``vector`` must know of the card beyond the other columns
        (for MIG: geometry, active group and used slots). -1 where there is nothing more to know."""
        ...

    def fit(self, ask: Ask, cards: NodeCards) -> Fit | Misfit:
        """Choose cards for one pod on one node."""
        ...

    def without_constraints(self, ask: Ask) -> WithoutConstraints | None:
        """The part of an ask that looks at counters only; None when that is all of it."""
        ...

    def vector(self, ask: Ask, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        """(may fit, score) per node; None when this ask needs the scalar path on every node. ``may fit`` is False only
        where ``fit`` would refuse; where it is True and ``fit`` accepts, the scores are equal. A score of NaN: only
        ``fit`` can tell."""
        ...

    def annotations(self, grant: Grant, now_ns: int) -> dict[str, str]:
        """The pod annotations that carry the grant, to travel in the Binding (only our own keys, D-15)."""
        ...

    def quota(self, ask: Ask) -> dict[str, int]:
        """Effective demand for queue quotas: per-card value times cards (D-39)."""
        ...

    def quota_known_late(self, ask: Ask) -> bool:
        """Whether ``quota`` leaves out what only a card can tell: the memory of whole cards and of percentages."""
        ...

    def card_kinds(self, inventory: Inventory) -> frozenset[Hashable]:
        """All of a node's cards that ``quota_bound`` looks at, each kind once."""
        ...

    def quota_bound(self, ask: Ask, kinds: Iterable[Any]) -> dict[str, int]:
        """In place of ``quota``, for a vague ask: the most that cards of these kinds would make of it."""
        ...

    def quota_of_grant(self, grant: Grant) -> dict[str, int]:
        """In place of ``quota``, for a vague ask: what the grant comes to."""
        ...

    def no_devices(self, node: str) -> Misfit:
        """The refusal of a node that has no cards of this family (D-10)."""
        ...
