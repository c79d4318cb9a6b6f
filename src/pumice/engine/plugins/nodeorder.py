"""nodeorder: Kubernetes' own node scores, weighted (spec volcano-core 11.9). Sub-scores are truncated integers, 0..100."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.engine.framework import Plugin
from pumice.engine.nodes import Rows
from pumice.engine.plugins.taints import untolerated_soft
from pumice.engine.plugins.topology import preferred_pod_scores, soft_spread_scores
from pumice.engine.resources import CPU, MEMORY
from pumice.wire.scheduler_conf import Arguments

if TYPE_CHECKING:
    from pumice.engine.classes import PodClass
    from pumice.engine.state import State

Floats = NDArray[np.float64]
GPU = "nvidia.com/gpu"


class NodeOrder(Plugin):
    name = "nodeorder"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.least = arguments.integer("leastrequested.weight", 1)
        self.most = arguments.integer("mostrequested.weight", 0)
        self.balanced = arguments.integer("balancedresource.weight", 1)
        self.affinity = arguments.integer("nodeaffinity.weight", 2)
        self.pods = arguments.integer("podaffinity.weight", 2)
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
            total += self.balanced * _balance(table.dims.get(GPU), cls, alloc, used, have, want)
        if self.images and cls.images:
            found = state.images.scores(cls.images, table.capacity)
            total += self.images * (found if rows is None else found[rows])
        return total

    def score(self, state: State, cls: PodClass, row: int, have: list[int], used: list[int]) -> float | None:
        gpu = state.ledger.table.dims.get(GPU)
        if gpu is not None and have[gpu]:
            return None
        least = most = 0
        fractions = []
        for place in (0, 1):
            room, want = have[place], used[place + 3] + cls.request.spread[place]
            if room <= 0:
                continue
            fractions.append(min(want / room, 1.0))
            if want <= room:
                least += (room - want) * 100 // room
                most += want * 100 // room
        total = self.least * (least // 2) + self.most * (most // 2)
        if self.balanced and _is_balanced(cls):
            spread = abs(fractions[0] - fractions[1]) / 2 if len(fractions) == 2 else 0.0
            total += self.balanced * floor((1 - spread) * 100)
        if self.images and cls.images:
            total += self.images * int(state.images.scores(cls.images, state.ledger.table.capacity)[row])
        return float(total)

    def relative(self, state: State, cls: PodClass, fits: NDArray[np.bool_]) -> Floats | None:
        total = np.zeros(len(fits))
        constraints = cls.constraints
        labels = state.ledger.terms.labels
        if self.affinity and constraints.preferred:
            raw = np.zeros(len(fits))
            for weight, term in constraints.preferred:
                raw += weight * labels.match_all(term)[: len(fits)]
            total += self.affinity * _share_of_largest(raw, fits)
        if self.taints and state.soft_taints():
            count = untolerated_soft(state, cls)
            largest = count[fits].max(initial=0)
            total += self.taints * (100 - (count * 100 // largest if largest else np.zeros(len(fits))))
        if self.pods:
            raw_pods = preferred_pod_scores(state, cls)
            if raw_pods is not None:
                total += self.pods * _min_max(raw_pods, fits)
        if self.spread and constraints.spread:
            raw_spread = soft_spread_scores(state, cls, fits)
            if raw_spread is not None:
                total += self.spread * raw_spread
        return total


def _is_balanced(cls: PodClass) -> bool:
    """Pods that request none of the balanced resources are left out, as in newer Kubernetes."""
    return any(name in (CPU, MEMORY, GPU) for name, _ in cls.request.items)


def _balance(
    gpu: int | None, cls: PodClass, alloc: NDArray[np.int64], used: NDArray[np.int64], have: Floats, want: Floats
) -> Floats:
    """(1 - standard deviation of the used fractions) × 100, over the resources that the node has."""
    fractions = np.minimum(want / np.maximum(have, 1), 1)
    present = have > 0
    if gpu is not None and alloc[:, gpu].any():
        amount = dict(cls.request.items).get(GPU, 0)
        third = np.minimum((used[:, gpu] + amount) / np.maximum(alloc[:, gpu], 1), 1)
        fractions = np.column_stack([fractions, third])
        present = np.column_stack([present, alloc[:, gpu] > 0])
    elif present.all():  # the common case: cpu and memory on every node
        return np.asarray(np.floor((1 - np.abs(fractions[:, 0] - fractions[:, 1]) / 2) * 100))
    count = np.maximum(present.sum(axis=1), 1)
    mean = np.where(present, fractions, 0).sum(axis=1) / count
    variance = np.where(present, (fractions - mean[:, None]) ** 2, 0).sum(axis=1) / count
    return np.asarray(np.floor((1 - np.sqrt(variance)) * 100))


def _share_of_largest(raw: Floats, fits: NDArray[np.bool_]) -> Floats:
    largest = raw[fits].max(initial=0)
    return np.floor(raw * 100 / largest) if largest > 0 else np.zeros(len(raw))


def _min_max(raw: Floats, fits: NDArray[np.bool_]) -> Floats:
    if not fits.any():
        return np.zeros(len(raw))
    low, high = raw[fits].min(), raw[fits].max()
    return np.floor((raw - low) * 100 / (high - low)) if high > low else np.zeros(len(raw))


