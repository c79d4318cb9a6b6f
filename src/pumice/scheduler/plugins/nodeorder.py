"""nodeorder: Kubernetes' own node scores, weighted (Volcano pkg/scheduler/plugins/nodeorder). Sub-scores are truncated
integers, 0..100."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import NodeOrder, Scorer
from pumice.scheduler.plugins.taints import untolerated_soft
from pumice.scheduler.plugins.topology import preferred_pod_scores, soft_spread_scores
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.resources import CPU, MEMORY
from pumice.scheduler.state.state import State
from pumice.wire import names
from pumice.wire.scheduler_conf import Arguments

Floats = NDArray[np.float64]
GPU = names.WHOLE_GPU


class NodeOrderPlugin(NodeOrder):
    name = "nodeorder"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.least = arguments.integer("leastrequested.weight", 1)
        self.most = arguments.integer("mostrequested.weight", 0)
        self.balanced = arguments.integer("balancedresource.weight", 1)
        self.affinity = arguments.integer("nodeaffinity.weight", 2)
        self.pods = arguments.integer("podaffinity.weight", 2)
        self.required_pods = arguments.integer("pumice.hardPodAffinityWeight", 1)
        self.taints = arguments.integer("tainttoleration.weight", 3)
        self.images = arguments.integer("imagelocality.weight", 1)
        self.spread = arguments.integer("podtopologyspread.weight", 2)

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> Floats | None:
        if not (self.least or self.most or self.balanced or (self.images and cls.images)):
            return None
        table = state.ledger.table
        alloc, used = (table.alloc, table.used) if rows is None else (table.alloc[rows], table.used[rows])
        have = alloc[:, :2].astype(np.float64)  # cpu and memory
        want = used[:, 3:5] + np.array(cls.request.spread)  # with the defaults for containers that ask for nothing
        room = np.maximum(have, 1)
        fits = (want <= have) & (have > 0)
        total = np.zeros(len(have))
        if self.least:
            part = np.where(fits, np.floor((have - want) * 100 / room), 0)
            total += self.least * np.floor(part.sum(axis=1) / 2)
        if self.most:
            part = np.where(fits, np.floor(want * 100 / room), 0)
            total += self.most * np.floor(part.sum(axis=1) / 2)
        if self.balanced and _is_balanced(cls):
            total += self.balanced * _change_of_balance(table.dims.get(GPU), cls, alloc, used)
        if self.images and cls.images:
            found = state.classes.images.scores(cls.images, table.capacity)
            total += self.images * (found if rows is None else found[rows])
        return total

    def scorer(self, state: State, cls: PodClass) -> Scorer | None:
        requested = dict(cls.request.items)
        if GPU in requested or (self.images and cls.images):
            return super().scorer(state, cls)
        balanced = self.balanced if _is_balanced(cls) else 0
        if not (self.least or self.most or balanced):
            return None
        cpu, memory = requested.get(CPU, 0), requested.get(MEMORY, 0)
        spread = cls.request.spread

        def score(row: int, have: list[int], used: list[int]) -> float:
            least = most = 0
            for place in (0, 1):
                room, want = have[place], used[place + 3] + spread[place]
                if 0 < room >= want:
                    least += (room - want) * 100 // room
                    most += want * 100 // room
            total = self.least * (least // 2) + self.most * (most // 2)
            if balanced:
                after = _evenness(used[0] + cpu, used[1] + memory, have)
                total += balanced * (50 + (50 + after - _evenness(used[0], used[1], have)) // 2)
            return float(total)

        return score

    def relative(self, state: State, cls: PodClass, fits: NDArray[np.bool_]) -> Floats | None:
        parts = [
            (weight, part)
            for weight, score in (
                (self.affinity, _node_affinity), (self.taints, _soft_taints), (self.pods, self._pod_affinity),
                (self.spread, soft_spread_scores),
            )
            if weight and (part := score(state, cls, fits)) is not None
        ]  # fmt: skip
        return sum((weight * part for weight, part in parts[1:]), parts[0][0] * parts[0][1]) if parts else None

    def _pod_affinity(self, state: State, cls: PodClass, fits: NDArray[np.bool_]) -> Floats | None:
        """Return the node's score by the preferred pod affinities of the pod and of placed pods, normalized from least to
        most."""
        raw = preferred_pod_scores(state, cls, self.required_pods)
        if raw is None:
            return None
        among = raw[fits]
        low, high = among.min(initial=np.inf), among.max(initial=-np.inf)
        return np.floor(100 * ((raw - low) / (high - low))) if high > low else None  # in Kubernetes' order


def _node_affinity(state: State, cls: PodClass, fits: NDArray[np.bool_]) -> Floats | None:
    """Weights of the preferred terms that the node meets, as a share of the most that any has."""
    if not cls.constraints.preferred:
        return None
    raw = np.zeros(len(fits))
    for weight, term in cls.constraints.preferred:
        raw += weight * state.ledger.terms.labels.match_all(term)[: len(fits)]
    largest = raw[fits].max(initial=0)
    return np.floor(raw * 100 / largest) if largest > 0 else None


def _soft_taints(state: State, cls: PodClass, fits: NDArray[np.bool_]) -> Floats | None:
    """The fewer PreferNoSchedule taints are not tolerated, the better; judged per set of taints, of which there are few."""
    table = state.ledger.table
    if not table.soft_taints:
        return None
    counts, ids = untolerated_soft(state, cls), table.taint_ids
    seen = np.bincount(ids[fits], minlength=len(counts)) > 0
    largest = counts[seen].max(initial=0)
    return np.asarray((100 - counts * 100 // max(largest, 1)).astype(np.float64)[ids]) if largest else None


def _is_balanced(cls: PodClass) -> bool:
    """Pods that request none of the balanced resources are left out."""
    return any(name in (CPU, MEMORY, GPU) for name, _ in cls.request.items)


def _change_of_balance(gpu: int | None, cls: PodClass, alloc: NDArray[np.int64], used: NDArray[np.int64]) -> Floats:
    """Score how the pod changes the balance of a node: 75 where it does not, towards 100 where it evens it out, towards 50 where
    it does the contrary. By what is requested, without defaults; cards count for pods that ask for cards."""
    requested = dict(cls.request.items)
    columns, amounts = [0, 1], [requested.get(CPU, 0), requested.get(MEMORY, 0)]
    if gpu is not None and requested.get(GPU):
        columns, amounts = [*columns, gpu], [*amounts, requested[GPU]]
    have, before = alloc[:, columns], used[:, columns]
    return np.asarray(50 + (50 + _balance(before + np.array(amounts), have) - _balance(before, have)) // 2)


def _balance(used: NDArray[np.int64], have: NDArray[np.int64]) -> Floats:
    """(1 - standard deviation of the used fractions) × 100, truncated, over the resources that the node has."""
    present = have > 0
    count = present.sum(axis=1)
    fractions = np.where(present, np.minimum(used / np.maximum(have, 1), 1), 0)
    mean = fractions.sum(axis=1) / np.maximum(count, 1)
    deviation = np.sqrt(np.where(present, (fractions - mean[:, None]) ** 2, 0).sum(axis=1) / np.maximum(count, 1))
    if (count == 2).any():  # half the difference, which no rounding of a root blurs
        half = (fractions.max(axis=1, where=present, initial=0) - fractions.min(axis=1, where=present, initial=1)) / 2
        deviation = np.where(count == 2, half, deviation)
    return np.asarray(np.floor((1 - deviation) * 100))


def _evenness(cpu: int, memory: int, have: list[int]) -> int:
    """``_balance`` of one node, without cards."""
    if have[0] <= 0 or have[1] <= 0:
        return 100
    return int((1 - abs(min(cpu / have[0], 1.0) - min(memory / have[1], 1.0)) / 2) * 100)
