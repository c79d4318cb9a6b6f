"""Rules of queues, judged from the API objects alone: nothing of Pumice is imported here on purpose.

A queue is charged for the pods of its jobs that have a node and are not leaving it. By a pod that is placed neither it nor any
queue above it may come to more than its ``spec.capability``; what is guaranteed to some is kept from the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kit.kube_rules import leaving
from pumice.audit.amounts import done, key_of, quantity

Json = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Json]]
Amounts = Counter[str]
GROUP, QUEUE = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/queue-name"
ROOT = "root"


def group_key(pod: Json) -> str:
    """The PodGroup that the pod names; empty for none."""
    name = pod["metadata"].get("annotations", {}).get(GROUP)
    return f"{pod['metadata']['namespace']}/{name}" if name else ""


def members(tables: Tables) -> dict[str, list[Json]]:
    """Pods by the PodGroup that they name."""
    found: dict[str, list[Json]] = defaultdict(list)
    for pod in tables["Pod"].values():
        if key := group_key(pod):
            found[key].append(pod)
    return found


class Queues:
    """The queues at one moment. ``charged`` says what a queue pays for a pod, ``pods`` are those that count. ``hoping``: a pod is
    leaving somewhere, and what it holds may have been promised to any that waits: those count as well."""

    def __init__(
        self, tables: Tables, pods: Iterable[Json], charged: Callable[[Json], Mapping[str, Any]], ours: str, *,
        hoping: bool = False,
    ) -> None:  # fmt: skip
        self.hoping = hoping
        self.queues, self.groups, self.members = tables.get("Queue", {}), tables.get("PodGroup", {}), members(tables)
        self.allocated: dict[str, Amounts] = defaultdict(Counter)
        """The placed and pending pods, by the queue of their job."""
        self.requested: Amounts = Counter()
        """The placed and pending pods of all queues."""
        self.busy: set[str] = set()
        for pod in pods:
            if done(pod) or pod["spec"].get("schedulerName") != ours:
                continue
            name, amounts = self.of(pod), charged(pod)
            self.busy.add(name)
            self.requested.update(amounts)
            if (pod["spec"].get("nodeName") or hoping) and not leaving(pod):
                self.allocated[name].update(amounts)

    def of(self, pod: Json) -> str:
        """The queue that pays for the pod. Members of a PodGroup that is gone stand in the one that the first of them names."""
        key = group_key(pod)
        if key in self.groups:
            return str(self.groups[key]["spec"].get("queue") or "default")
        first = min(self.members[key], key=key_of, default=pod) if key else pod
        return str(first["metadata"].get("annotations", {}).get(QUEUE) or "default")

    def above(self, name: str) -> list[str]:
        """A queue's parents up to the root, as far as they are there; those of a queue that is its own ancestor are ignored."""
        found: list[str] = []
        while name in self.queues and name != ROOT and not self._circles(name):
            name = self.queues[name]["spec"].get("parent") or ROOT
            if name in self.queues:
                found.append(name)
        return found

    def _circles(self, name: str) -> bool:
        seen: list[str] = []
        at = name
        while at in self.queues and at != ROOT and at not in seen:
            seen.append(at)
            at = self.queues[at]["spec"].get("parent") or ""
        return at == name

    def capped(self, name: str, amounts: Mapping[str, Any], *, already: bool = False) -> list[str]:
        """Return the resources that the queue, or one above it, would exceed with so much more (``already``: the counted
        part)."""
        found = []
        for at in (name, *self.above(name)):
            limits = self.queues[at]["spec"].get("capability", {}) if at in self.queues else {}
            below = [other for other in self.allocated if other == at or at in self.above(other)]
            for what, limit in limits.items():
                total = sum(self.allocated[other][what] for other in below) + (0 if already else amounts.get(what, 0))
                if amounts.get(what, 0) and total > quantity(limit):
                    found.append(f"{what}: {total} of {limit} in queue {at}")
        return found

    def kept_above(self, name: str, amounts: Mapping[str, Any]) -> bool:
        """Return whether a queue above may keep what is missing of its capability for others below it, which are guaranteed
        it."""
        for at in self.above(name):
            below = [other for other in self.queues if at in self.above(other) and other != name]
            for what, limit in self.queues[at]["spec"].get("capability", {}).items():
                held = sum(max(self.allocated[other][what], self._guarantee(other, what)) for other in below)
                own = self.allocated[name][what] + self.allocated[at][what] + amounts.get(what, 0)
                if amounts.get(what, 0) and held + own > quantity(limit):
                    return True
        return False

    def robbed(self, name: str, amounts: Mapping[str, Any], total: Mapping[str, Any]) -> list[str]:
        """Of what the queue, with these amounts, has taken what others are guaranteed and do not use; every queue for itself."""
        found = []
        for what in (what for what, amount in amounts.items() if amount):
            if self.allocated[name][what] <= self._guarantee(name, what):
                continue
            unused = sum(max(0, self._guarantee(other, what) - self.allocated[other][what])
                         for other in self.queues if other != name)  # fmt: skip
            taken = sum(held[what] for held in self.allocated.values())
            if unused and taken + unused > total[what]:
                found.append(f"{what}: {taken} of {total[what]} is in use, {unused} is guaranteed to others")
        return found

    def guaranteed(self, what: str, *, but: str = "") -> Any:
        """Return the sum of all queues' guarantees, ``but`` that of one."""
        return sum(self._guarantee(name, what) for name in self.queues if name != but)

    def _guarantee(self, name: str, what: str) -> Any:
        queue = self.queues.get(name)
        return 0 if queue is None else quantity(queue["spec"].get("guarantee", {}).get("resource", {}).get(what, 0))
