"""Allowed victims of preemption, judged from the API objects alone: nothing of Pumice is imported here on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kit.kube_rules import PREEMPTABLE, Cluster, leaving
from kit.queue_rules import Queues, group_key, members

from pumice.audit.amounts import done, key_of

Json = Mapping[str, Any]
PREEMPT = ("preempt", "gangpreempt")
"""The reasons between jobs of a queue; all others are between queues."""
MOVED = "defrag"
"""The reason of an eviction after which the pod has another place."""
BROKEN_GANG = "its gang could not be bound as a whole"
"""The reason of an eviction that makes place for no pod."""


@dataclass
class Evictions:
    """``gangs``: pods of a PodGroup stand or fall together; ``ranked``: pods of a queue go for more important ones only."""

    gangs: bool
    ranked: bool
    going: set[str] = field(default_factory=set)
    """Uids of pods that were told to go."""

    def wrong(self, reported: list[tuple[str, str]], cluster: Cluster, queues: Queues, waiting: list[Json]) -> Iterable[str]:
        """Return the violations among the evictions of one cycle (by uid, with reasons) on the cluster as it was seen."""
        pods = {pod["metadata"]["uid"]: pod for pod in cluster.tables["Pod"].values()}
        for uid, reason in reported:
            pod = pods.get(uid)
            if pod is None or not pod["spec"].get("nodeName") or leaving(pod) or done(pod) or uid in self.going:
                yield f"{uid if pod is None else key_of(pod)} was told to go and holds nothing, or goes already"
                continue
            self.going.add(uid)
            if pod["metadata"].get("annotations", {}).get(PREEMPTABLE) == "false":
                yield f"{key_of(pod)} was told to go and may not be"
            if reason == MOVED:
                if not any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences", ())):
                    yield f"{key_of(pod)} was moved and no controller makes it anew"
                if not waiting:
                    yield f"{key_of(pod)} was moved for nobody who waits"
                continue
            others = [p for p in waiting if (queues.of(p) == queues.of(pod)) == (reason in PREEMPT)]
            if not any(reason not in PREEMPT or self._may_claim(other, pod, cluster) for other in others):
                yield f"{key_of(pod)} was told to go ({reason}) for nobody who waits"
        if self.gangs:
            yield from self._broken({uid for uid, _ in reported}, cluster)

    def _may_claim(self, claimant: Json, pod: Json, cluster: Cluster) -> bool:
        """By the priorities of their jobs; within a job, and where one's PodGroup is gone, they say nothing."""
        mine, its = _rank(claimant, cluster), _rank(pod, cluster)
        within = group_key(claimant) == group_key(pod) != ""
        return not self.ranked or within or mine is None or its is None or mine > its

    def _broken(self, gone: set[str], cluster: Cluster) -> Iterable[str]:
        """Check that evictions leave a gang whole or evict all of it."""
        before, grouped = self.going - gone, members(cluster.tables)
        for key, group in cluster.tables.get("PodGroup", {}).items():
            mine = grouped[key]
            held = [p for p in mine if p["spec"].get("nodeName") and not leaving(p) and p["metadata"]["uid"] not in before]
            left = [p for p in held if p["metadata"]["uid"] not in gone]
            least = group["spec"].get("minMember", 0)
            if len(left) < len(held) and len(held) >= least > len(left) and not all(done(p) for p in left):
                yield f"{key}: {len(left)} of at least {least} pods were left"


def _rank(pod: Json, cluster: Cluster) -> int | None:
    """The priority of the pod's job; None where its PodGroup is gone."""
    if not group_key(pod):
        return int(pod["spec"].get("priority") or 0)
    group = cluster.tables.get("PodGroup", {}).get(group_key(pod))
    if group is None:
        return None
    found = cluster.tables.get("PriorityClass", {}).get(group["spec"].get("priorityClassName", ""))
    return int(found["value"]) if found is not None else 0
