"""network-topology-aware: domains are filled one after the other, and pods come near those of their job.

That a demand is held is no matter of this plugin: it holds whatever is configured (``scheduler/cycle/domains.py``). Arguments and
figures: docs/reference/topology.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import HyperNodeOrder, TaskNodeOrder
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.domains import HELD, Domain, Level, Tree, topology_of
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.resources import Vector, add
from pumice.scheduler.state.state import State
from pumice.wire.scheduler_conf import Arguments

Floats = NDArray[np.float64]
BINPACK = "hypernode.binpack"
MOST_FADING, MOST_TIERS = 100.0, 50
"""Beyond these a power of one by the other is no number any more."""


class NetworkTopologyAware(TaskNodeOrder, HyperNodeOrder):
    name = "network-topology-aware"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        weight = arguments.integer("weight", 1)
        self.weight = weight if weight >= 0 else 1
        self.weights = arguments.weights(BINPACK)
        self.packs_all = arguments.boolean(f"{BINPACK}.normal-pod.enable", True)
        fading = arguments.real(f"{BINPACK}.normal-pod.fading", 0.8)
        self.fading = min(fading, MOST_FADING) if fading >= 0 else 0.8

    # -- domains --------------------------------------------------------------------------------------------------

    def domain_scores(self, state: State, classes: Sequence[PodClass], domains: Sequence[Domain]) -> list[float]:
        wanted: Vector = {}
        for cls in classes:
            add(wanted, cls.request.items)
        tree = state.hyper_nodes.tree
        fullness = {
            domain.name: score
            for level in tree.levels if any(domain.tier == level.tier for domain in domains)
            for domain, score in zip(level.domains, self._fullness(state, wanted, level).tolist(), strict=True)
        }  # fmt: skip
        return [100 * self.weight * fullness.get(domain.name, 0.0) for domain in domains]

    def _fullness(self, state: State, wanted: Mapping[str, int], level: Level) -> Floats:
        """Return how full each domain would be, by the resources that count; 0 where that is more than it has."""
        table, number = state.ledger.table, len(level.domains)
        inside = np.flatnonzero(level.codes >= 0)
        codes = level.codes[inside]
        score, over, total = np.zeros(number), np.zeros(number, bool), 0
        for name, weight in self.weights.items():
            amount = wanted.get(name, 0)
            if not amount or not weight:
                continue
            column = table.dim(name)
            have = np.bincount(codes, table.alloc[inside, column], number)
            want = np.bincount(codes, table.used[inside, column], number) + amount
            over |= want > have
            score, total = score + weight * want / np.maximum(have, 1), total + weight
        return np.where(over, 0.0, score / max(1, total))

    # -- nodes ----------------------------------------------------------------------------------------------------

    def task_scores(self, state: State, task: Task) -> Floats | None:
        tree = state.hyper_nodes.tree
        if not tree.levels or not self.weight or task.job is None:
            return None
        near = topology_of(task.job) is not None
        found = self._near(state, tree, task.job) if near else self._packed(state, tree, task)
        return None if found is None else 100 * self.weight * found

    def _near(self, state: State, tree: Tree, job: Job) -> Floats | None:
        """By the tier of the smallest domain that holds the node and all that the job has: the lower, the better; then by how
        many of its pods are in the node's own domain."""
        row_of = state.ledger.table.row_of
        allocated = [row_of[task.node] for task in job.tasks.values() if task.status in HELD and task.node in row_of]
        if not allocated:
            return None
        score = np.zeros(state.ledger.table.capacity)
        lowest, highest = tree.levels[0], tree.root.tier
        for domain in reversed(list(tree.smallest(allocated).above)):
            score[domain.rows] = (highest - domain.tier) / (highest - lowest.tier)
        codes = lowest.codes[allocated]
        shares = np.bincount(codes[codes >= 0], minlength=len(lowest.domains)) / len(job.tasks)
        return score + np.where(lowest.codes >= 0, shares[lowest.codes], 0.0)

    def _packed(self, state: State, tree: Tree, task: Task) -> Floats | None:
        """Pods that ask nothing of the network fill the domains that are in use, and leave the others whole."""
        if not self.packs_all:
            return None
        wanted, score, total = dict(task.cls.request.items), np.zeros(state.ledger.table.capacity), 0.0
        for level in tree.levels:
            weight = self.fading ** min(level.tier - 1, MOST_TIERS) if level.tier > 0 else 1.0
            part = np.where(level.codes >= 0, self._fullness(state, wanted, level)[level.codes], 1.0)  # 1: in no domain
            score, total = score + weight * part, total + weight
        return score / total if total else None
