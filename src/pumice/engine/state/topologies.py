"""What a job asks of the network, as a whole and for its sub-groups (docs/reference/topology.md)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pumice.engine.state.domains import Tree
from pumice.engine.state.jobs import Job, Task
from pumice.engine.state.selectors import match_all, parse_label_selector
from pumice.engine.state.statuses import ALLOCATED_STATUSES, READY_STATUSES, Status
from pumice.wire.topology import NetworkTopology, SubGroupPolicy, annotated

HELD: Final = frozenset({*ALLOCATED_STATUSES, Status.PIPELINED})
PROMISED: Final = frozenset({*READY_STATUSES, Status.PIPELINED})
VALID: Final = frozenset({*PROMISED, Status.PENDING})


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which sub-group: the policy's place among the PodGroup's, and what the labels say."""

    policy: int
    values: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int, tuple[str, ...]]:
        first = self.values[0] if self.values else ""
        return (int(first) if first.isdecimal() else 0, self.policy, self.values)


def topology_of(job: Job) -> NetworkTopology | None:
    """By the PodGroup, by its annotations, or by those of the pod that comes first."""
    if job.group is not None:
        asked = job.group.spec.network_topology or annotated(job.group.metadata.annotations)
        if asked is not None:
            return asked
    first = next(iter(job.pending.values()), None)
    return annotated(first.pod.metadata.annotations) if first is not None and first.pod is not None else None


def bound_together(job: Job) -> bool:
    """Whether where one of its pods goes decides where others may."""
    return topology_of(job) is not None or bool(policies_of(job))


def policies_of(job: Job) -> list[SubGroupPolicy]:
    return job.group.spec.sub_group_policy if job.group is not None else []


def group_of(policies: list[SubGroupPolicy], task: Task) -> GroupKey | None:
    """The sub-group of a pod, by the first policy that takes it; None where none does."""
    labels = dict(task.features.labels) if task.features is not None else {}
    for place, policy in enumerate(policies):
        chosen = policy.label_selector
        values = tuple(labels.get(key, "") for key in policy.match_label_keys)
        if all(values) and (chosen is None or match_all(parse_label_selector(chosen.written), labels)):
            return GroupKey(place, values)
    return None


def enough_groups(job: Job, statuses: frozenset[Status], without: Collection[Task] = ()) -> bool:
    """Whether as many sub-groups as each policy wants have all of their pods in one of these statuses, ``without`` some."""
    policies = policies_of(job)
    if not any(policy.min_sub_groups for policy in policies):
        return True
    members: dict[GroupKey, int] = {}
    for task in job.tasks.values():
        if task.status in statuses and task not in without and (key := group_of(policies, task)) is not None:
            members[key] = members.get(key, 0) + 1
    whole = [0] * len(policies)
    for key, number in members.items():
        whole[key.policy] += number >= policies[key.policy].sub_group_size
    return all(found >= policy.min_sub_groups for found, policy in zip(whole, policies, strict=True))


def highest_tier(asked: NetworkTopology, tree: Tree) -> int | str:
    """The highest tier that is allowed, or why there is none. A wish, and a demand that names no tier, end at the whole
    cluster."""
    if asked.problem:
        return asked.problem
    if not asked.hard:
        return tree.root.tier
    if asked.highest_tier_name:
        found = tree.tier_names.get(asked.highest_tier_name)
        return f"no HyperNode has the tierName {asked.highest_tier_name!r}" if found is None else found
    return tree.root.tier if asked.highest_tier_allowed is None else asked.highest_tier_allowed
