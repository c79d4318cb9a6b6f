"""The tree of hierarchical drf: queues by the path that their annotations give, and the share of each branch (Volcano
pkg/scheduler/plugins/drf).

The queues are its leaves. A branch holds what its children hold, each scaled down to the smallest share among those that want
more, so that a child which cannot use its part does not make its siblings look rich. Branches that can use
nothing more come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pumice.scheduler.state.groups import together
from pumice.scheduler.state.jobs import QueueState
from pumice.scheduler.state.resources import PODS, Vector, add, subtract
from pumice.wire.names import ROOT_QUEUE
from pumice.wire.volcano import Hierarchy

MANY = 32
"""Of so many changed leaves each is not followed up to the root by itself."""
Key = tuple[tuple[bool, float], ...]


@dataclass(slots=True, eq=False)
class Branch:
    """One name of a path, or one queue at its end."""

    weight: float = 1.0
    parent: Branch | None = None
    children: list[Branch] = field(default_factory=list)
    usage: Mapping[str, float] = field(default_factory=dict)
    share: float = 0.0
    sated: bool = False
    """It can use nothing more of what is left."""

    def path(self) -> list[Branch]:
        """From the root down to it."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]


@dataclass(slots=True)
class Tree:
    """Of a cluster that has so much in total."""

    total: Vector
    short: frozenset[str] = frozenset()
    """Resources of which nothing is left."""
    leaves: dict[QueueState, Branch] = field(default_factory=dict)
    root: Branch = field(default_factory=Branch)
    _seen: dict[QueueState, int] = field(default_factory=dict)

    def grow(self, queues: Iterable[QueueState]) -> None:
        """Anew from the paths. The weight of a name is what the first queue says that passes by it."""
        branches: dict[tuple[str, ...], Branch] = {(ROOT_QUEUE,): self.root}
        for queue in queues:
            place = queue.hierarchy or Hierarchy((ROOT_QUEUE, queue.name), (1.0, 1.0))
            at = self.root
            for depth, weight in enumerate(place.weights[1:], start=2):
                name = place.path[:depth]
                if name not in branches:
                    branches[name] = Branch(weight, at)
                    at.children.append(branches[name])
                at = branches[name]
            self.leaves[queue] = Branch(1.0, at)
            at.children.append(self.leaves[queue])

    def look_at(self, short: frozenset[str]) -> None:
        """Weigh what has changed since it was weighed last; everything, where other resources are all in use now."""
        changed = [queue for queue in self.leaves if short != self.short or self._seen.get(queue) != queue.version]
        self.short = short
        for queue in changed:
            self._seen[queue] = queue.version
            self._weigh_leaf(self.leaves[queue], taken(queue), _wanted(queue))
        if len(changed) > MANY:
            self._weigh_below(self.root)
            return
        for queue in changed:
            self._weigh_above(self.leaves[queue])

    def reweigh(self, queue: QueueState) -> None:
        """Note that the amount of this queue has changed."""
        if (leaf := self.leaves.get(queue)) is not None:
            self._weigh_leaf(leaf, taken(queue), _wanted(queue))
            self._weigh_above(leaf)

    def key(self, queue: QueueState) -> Key:
        """Its place among the queues, from the root down."""
        return tuple([(each.sated, each.share / each.weight) for each in self.branches(queue)])

    def branches(self, queue: QueueState) -> list[Branch]:
        """From below the root down to it."""
        leaf = self.leaves.get(queue)
        return leaf.path()[1:] if leaf is not None else []

    @contextmanager
    def supposing(self, queue: QueueState, has: Vector) -> Iterator[None]:
        """Inside, the queue has so much."""
        leaf = self.leaves.get(queue)
        if leaf is None:
            yield
            return
        self._weigh_leaf(leaf, has, _wanted(queue))
        self._weigh_above(leaf)
        try:
            yield
        finally:
            self.reweigh(queue)

    def _weigh_leaf(self, leaf: Branch, has: Vector, wanted: Vector) -> None:
        leaf.usage, leaf.share = has, self._share(has)
        more = [name for name, value in wanted.items() if name != PODS and value > has.get(name, 0)]
        leaf.sated = not more or not self.short.isdisjoint(more)

    def _weigh_above(self, branch: Branch) -> None:
        at = branch.parent
        while at is not None:
            self._weigh(at)
            at = at.parent

    def _weigh_below(self, branch: Branch) -> None:
        for child in branch.children:
            if child.children:
                self._weigh_below(child)
        self._weigh(branch)

    def _weigh(self, branch: Branch) -> None:
        least = min((child.share for child in branch.children if child.share and not child.sated), default=1.0)
        usage: dict[str, float] = {}
        for child in branch.children:
            if child.share:
                scale = 1.0 if child.sated else least / child.share
                for name, value in child.usage.items():
                    usage[name] = usage.get(name, 0.0) + value * scale
        branch.usage, branch.share = usage, self._share(usage)
        branch.sated = bool(branch.children) and all(child.sated for child in branch.children)

    def _share(self, usage: Mapping[str, float]) -> float:
        return max((usage.get(name, 0) / all_ for name, all_ in self.total.items() if all_ > 0 and name != PODS), default=0.0)


def taken(queue: QueueState) -> Vector:
    """Return the amount that counts as a queue's."""
    return together(queue.allocated, queue.awaited)


def _wanted(queue: QueueState) -> Vector:
    """Return the queue's amount with all pending pods that could start."""
    wanted = dict(taken(queue))
    if queue.open:
        add(wanted, queue.pending.items())
        subtract(wanted, queue.aside.items())
    return wanted
