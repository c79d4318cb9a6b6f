"""The owners of nodes and jobs where several schedulers share a cluster, each with a shard of its nodes.

Volcano's NodeShards (Volcano pkg/scheduler/cache/shard_coordinator.go) say which nodes a shard desires and which its scheduler
uses. A node is used by one scheduler at a time: the next one waits until the one before has let it go, with every Binding that
was on its way. Which scheduler of several takes a job follows from the job's key, and from where it would fit, so that all of
them come to the same answer without asking each other. Without shards nothing here is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import Job
from pumice.scheduler.state.nodes import NodeTable
from pumice.scheduler.state.tasks import ALLOCATED_STATUSES, DONE_STATUSES, Status

# -- nodes ----------------------------------------------------------------------------------------------------------------


class Shard(NamedTuple):
    """A scheduler's share of the nodes. ``desired``: the nodes that it is to have. ``in_use``: those on which its scheduler
    may place pods, until it says otherwise."""

    desired: frozenset[str] = frozenset()
    in_use: frozenset[str] = frozenset()


def assigned(shards: Mapping[str, Shard]) -> dict[str, str]:
    """By node its shard. Of several that claim it, the one that uses it keeps it; else the first by name has it."""
    found: dict[str, str] = {}
    for name in sorted(shards, reverse=True):  # who comes later in this line counts more
        found.update(dict.fromkeys(shards[name].desired, name))
    for name in sorted(shards, reverse=True):
        found.update(dict.fromkeys(shards[name].desired & shards[name].in_use, name))
    return found


class Moves(NamedTuple):
    """The next step of one scheduler: nodes that it lets go, and nodes that it asks for."""

    leave: frozenset[str]
    take: frozenset[str]


def moves(mine: str, shards: Mapping[str, Shard], owner: Mapping[str, str], ours: Collection[str]) -> Moves:
    """``owner`` is ``assigned``; ``ours`` are the nodes that this scheduler places on now. A node that another one still uses is
    not asked for yet."""
    used: set[str] = set()
    for name, shard in shards.items():
        if name != mine:
            used |= shard.in_use
    leave = frozenset(node for node in ours if owner.get(node) != mine)
    take = frozenset(node for node, name in owner.items() if name == mine and node not in ours and node not in used)
    return Moves(leave, take)


# -- jobs -----------------------------------------------------------------------------------------------------------------


def first_by_hash(key: str, names: Iterable[str]) -> str:
    """One of the names, the same for everybody who asks. Where a name comes or goes, the other keys stay where they are."""
    return max(names, key=lambda name: (blake2b(f"{name}/{key}".encode(), digest_size=8).digest(), name))


_HAVING_A_NODE: Final = (ALLOCATED_STATUSES - {Status.ALLOCATED}) | DONE_STATUSES | {Status.RELEASING}
"""Not those that have one on trial: others do not see that."""
NOWHERE: Final = -1


class ShardCapacity(NamedTuple):
    """Numbers of pods of a class that the empty nodes of each shard would take, when they were counted, and for which nodes."""

    counted_at: float
    version: tuple[int, int]
    by_shard: Mapping[str, int]


@dataclass(slots=True)
class Shards:
    """The shards as this scheduler sees them. ``peers`` are those among whose schedulers jobs are divided, ``mine`` among them:
    they serve pods of one schedulerName."""

    table: NodeTable
    mine: str = ""
    """The name of its own; empty: there are no shards."""
    soft: bool = False
    peers: tuple[str, ...] = ()
    owner: Mapping[str, str] = field(default_factory=dict)
    """By node its shard."""
    ours: frozenset[str] = frozenset()
    """The nodes on which pods may be placed now."""
    version: int = 0
    lifted: bool = False
    """True while somebody asks what other shards could take."""
    elsewhere: dict[Job, str] = field(default_factory=dict)
    """Jobs that another shard's scheduler takes, and its shard."""
    doubted: dict[Job, None] = field(default_factory=dict)
    """Those of them of which it is to be asked again."""
    look_again: float = 0.0
    looked_at: tuple[int, int] = (0, 0)
    capacities: dict[PodClass, ShardCapacity] = field(default_factory=dict)
    _open: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(16, bool))
    _of_row: NDArray[np.int32] = field(default_factory=lambda: np.full(16, NOWHERE, np.int32))
    """Per row the number of its shard among the peers."""

    # -- nodes ------------------------------------------------------------------------------------------------------------

    def put(self, mine: str, peers: Iterable[str], owner: Mapping[str, str], ours: Iterable[str], *, soft: bool) -> None:
        """Take over whose the nodes are."""
        before, first = self.ours, not self.mine
        self.mine, self.soft, self.peers = mine, soft, tuple(sorted({mine, *peers}))
        self.owner, self.ours = owner, frozenset(ours)
        self.version += 1
        self.table.version += 1
        self._lengthen()
        for name, row in self.table.row_of.items():
            self._mark(name, row)
        for name in self.table.row_of if first else before ^ self.ours:
            if name in self.table.row_of:
                self.table.touch(self.table.row_of[name], gain=name in self.ours)
        self.doubted = dict.fromkeys(self.elsewhere)

    def seen(self, name: str, row: int) -> None:
        """A node has come, or changed."""
        if self.mine:
            self._lengthen()
            self._mark(name, row)

    def _mark(self, name: str, row: int) -> None:
        self._open[row] = name in self.ours
        shard = self.owner.get(name, "")
        self._of_row[row] = self.peers.index(shard) if shard in self.peers else NOWHERE

    def _lengthen(self) -> None:
        more = self.table.capacity - len(self._open)
        if more > 0:
            self._open = np.concatenate([self._open, np.zeros(more, bool)])
            self._of_row = np.concatenate([self._of_row, np.full(more, NOWHERE, np.int32)])

    @property
    def open_rows(self) -> NDArray[np.bool_]:
        """Per row of the table: may we place pods there?"""
        return self._open[: self.table.capacity]

    def by_peer(self, per_row: NDArray[np.int64]) -> dict[str, int]:
        """Sum a number per row up over the nodes of each peer."""
        of_row = self._of_row[: len(per_row)]
        return {peer: int(per_row[of_row == number].sum()) for number, peer in enumerate(self.peers)}

    # -- jobs -------------------------------------------------------------------------------------------------------------

    @property
    def divide(self) -> bool:
        """Return whether jobs are divided among several schedulers."""
        return len(self.peers) > 1

    @property
    def speaks(self) -> bool:
        """Return whether it is this scheduler that writes what concerns no single job: how queues and HyperNodes stand."""
        return not self.divide or first_by_hash("", self.peers) == self.mine

    def begun(self, job: Job) -> str:
        """The peer on whose nodes most of the job's pods are, by name between equal ones; empty where none are. Who has begun a
        job goes on with it, and a job whose nodes move goes with them."""
        there: Counter[str] = Counter()
        for task in job.tasks.values():
            shard = self.owner.get(task.node, "") if task.node and task.status in _HAVING_A_NODE else ""
            if shard in self.peers:
                there[shard] += 1
        return min(there, key=lambda shard: (-there[shard], shard)) if there else ""

    def keeper(self, job: Job, able: Iterable[str] = ()) -> str:
        """The shard whose scheduler takes the job. ``able``: the peers that could hold it; where none could, any may be it."""
        if not self.divide:
            return self.mine
        return self.begun(job) or first_by_hash(job.key, [*able] or self.peers)

    def leave_to(self, job: Job, shard: str) -> None:
        self.elsewhere[job] = shard
        self.doubted.pop(job, None)

    def take(self, job: Job) -> None:
        """It is ours, or gone."""
        self.elsewhere.pop(job, None)
        self.doubted.pop(job, None)
