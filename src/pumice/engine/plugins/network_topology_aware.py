"""network-topology-aware: domains are filled one after the other, and pods come near those of their job.

That a demand is held is no matter of this plugin: it holds whatever is configured (``engine/cycle/domains.py``). Arguments and
figures: docs/reference/topology.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.engine.plugins.contract import LeansTasks, ScoresDomains
from pumice.engine.state.classes import PodClass
from pumice.engine.state.domains import Domain, Tree
from pumice.engine.state.jobs import Job, Task
from pumice.engine.state.resources import CPU, MEMORY, Vector, add
from pumice.engine.state.state import State
from pumice.engine.state.topologies import HELD, topology_of
from pumice.wire.scheduler_conf import Arguments

Floats = NDArray[np.float64]
BINPACK = "hypernode.binpack"


class NetworkTopologyAware(LeansTasks, ScoresDomains):
    name = "network-topology-aware"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.weight = self._weight("weight")
        self.weights = {CPU: self._weight(f"{BINPACK}.cpu"), MEMORY: self._weight(f"{BINPACK}.memory")}
        for name in filter(None, (name.strip() for name in arguments.text(f"{BINPACK}.resources").split(","))):
            self.weights[name] = self._weight(f"{BINPACK}.resources.{name}")
        self.packs_all = arguments.boolean(f"{BINPACK}.normal-pod.enable", True)
        fading = arguments.real(f"{BINPACK}.normal-pod.fading", 0.8)
        self.fading = fading if fading >= 0 else 0.8

    def _weight(self, key: str) -> int:
        value = self.arguments.integer(key, 1)
        return value if value >= 0 else 1

    # -- domains --------------------------------------------------------------------------------------------------

    def domain_score(self, state: State, classes: Sequence[PodClass], domain: Domain) -> float:
        wanted: Vector = {}
        for cls in classes:
            add(wanted, cls.request.items)
        return 100 * self.weight * self._fullness(state, wanted, domain)

    def _fullness(self, state: State, wanted: Mapping[str, int], domain: Domain) -> float:
        """How full the domain would be, by the resources that count; 0 where that is more than it has."""
        table = state.ledger.table
        score = total = 0.0
        for name, weight in self.weights.items():
            amount = wanted.get(name, 0)
            if not amount or not weight:
                continue
            column = table.dim(name)
            have = float(table.alloc[domain.rows, column].sum())
            want = float(table.used[domain.rows, column].sum()) + amount
            if want > have:
                return 0.0
            score, total = score + weight * want / have, total + weight
        return score / total if total else 0.0

    # -- nodes ----------------------------------------------------------------------------------------------------

    def leanings(self, state: State, task: Task) -> Floats | None:
        tree = state.hyper_nodes.tree
        if not tree.domains or not self.weight or task.job is None:
            return None
        near = topology_of(task.job) is not None
        found = self._near(state, tree, task.job) if near else self._packed(state, tree, task)
        return None if found is None else 100 * self.weight * found

    def _near(self, state: State, tree: Tree, job: Job) -> Floats | None:
        """By the tier of the smallest domain that holds the node and all that the job has: the lower, the better; then by how
        many of its pods are in the node's own domain."""
        row_of = state.ledger.table.row_of
        held = [row_of[task.node] for task in job.tasks.values() if task.status in HELD and task.node in row_of]
        if not held:
            return None
        score = np.zeros(state.ledger.table.capacity)
        lowest, highest = tree.tiers[0], tree.root.tier
        for domain in reversed(list(tree.smallest(frozenset(held)).above)):
            score[domain.rows] = (highest - domain.tier) / max(1, highest - lowest)
        for domain in tree.domains.values():
            if domain.tier == lowest and (here := sum(row in domain.members for row in held)):
                score[domain.rows] += here / len(job.tasks)
        return score

    def _packed(self, state: State, tree: Tree, task: Task) -> Floats | None:
        """Pods that ask nothing of the network fill the domains that are in use, and leave the others whole."""
        if not self.packs_all:
            return None
        wanted, score, total = dict(task.cls.request.items), np.zeros(state.ledger.table.capacity), 0.0
        for tier in tree.tiers:
            weight = self.fading ** (tier - 1) if tier > 0 else 1.0
            part = np.ones(len(score))  # a node that is in no domain is better still
            for domain in tree.domains.values():
                if domain.tier == tier and len(domain.rows):
                    part[domain.rows] = self._fullness(state, wanted, domain)
            score, total = score + weight * part, total + weight
        return score / total if total else None
