"""Filter and score every node at once for asks that look at counters only (design, decision 6).

Mirrors ``fit.py`` step by step on columns; a property test holds both to the same answers. Loops run over cards of a
node (8 or so) with all nodes in one array each: contiguous columns are several times faster than reductions over rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.families.nvidia_vgpu.ask import UNSET, VgpuAsk
from pumice.families.nvidia_vgpu.fit import TIE
from pumice.families.nvidia_vgpu.mig import STATES, Catalogue, Geometry
from pumice.families.nvidia_vgpu.mig_policy import Chooser
from pumice.families.nvidia_vgpu.rows import type_allowed
from pumice.families.seam import Columns
from pumice.model.cards import Mode

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


Ranked = tuple[Bools, NDArray[np.float64]]


def rank_nodes(ask: VgpuAsk, columns: Columns, catalogue: Catalogue, choose: Chooser | None) -> Ranked | None:
    """(may fit, score) per node; None when the columns do not hold all that the ask looks at: UUIDs, neighbours, or
    MIG cards whose state nobody keeps. A node with cards of both modes tries HAMi-core first, as the walk does."""
    if ask.group or ask.rules or ask.use_uuids or ask.nouse_uuids:
        return None
    slots = None
    if ask.mode in (None, Mode.MIG) and columns.mig.any():
        slots = _rank_slots(ask, columns, catalogue, choose)
        if slots is None or ask.mode == Mode.MIG or columns.mig[columns.flags].all():
            return slots
    shares = _rank_shares(ask, columns)
    if slots is None:
        return shares
    return shares[0] | slots[0], np.where(shares[0], shares[1], slots[1])


def _usable(ask: VgpuAsk, columns: Columns) -> Bools:
    allowed = np.array([type_allowed(ask, t, t.lower()) for t in columns.types] + [False])  # -1 picks the last: absent
    return np.asarray(columns.flags & allowed.take(columns.type_id))


def _rank_shares(ask: VgpuAsk, columns: Columns) -> Ranked:
    """HAMi-core cards, any number of containers and cards."""
    nodes, width = columns.total.shape
    nowhere = np.zeros(nodes, bool), np.zeros(nodes)
    if ask.mode not in (None, Mode.HAMI_CORE) or any(c.cores > 100 or c.count > width for c in ask.containers):
        return nowhere
    usable = _usable(ask, columns) & ~columns.mig
    total, memory, shares, cores = columns.total, columns.memory, columns.shares, columns.cores
    idle = shares == 0 if ask.node_policy == "spread" else None
    reverse = np.arange(width - 1, -1, -1)  # of equal cards the lowest index has the highest key
    row = np.arange(nodes)
    may, summed = np.ones(nodes, bool), np.zeros(nodes)
    picks, done = sum(c.count for c in ask.containers), 0
    for container in ask.containers:
        need = container.memory if container.percent == UNSET else total * container.percent // 100
        open_cards = usable & (shares < columns.share_limit) & (memory <= total - need)
        open_cards &= _cores_allow(container.cores, cores, shares)
        key = _order(ask.card_policy, memory, shares, reverse)
        np.putmask(key, ~open_cards, -1)
        for _ in range(container.count):
            best = np.ascontiguousarray(key.T).max(axis=0)  # a reduction over the short axis itself is much slower
            may &= best >= 0
            card = width - 1 - best % width if ask.card_policy else np.maximum(best, 0)
            done += 1
            charged = memory[row, card] + (need if isinstance(need, int) else need[row, card])
            if done < picks:
                if done == 1:
                    memory, shares, cores = memory.copy(), shares.copy(), cores.copy()
                key[row, card] = -1
                memory[row, card] = charged
                shares[row, card] += 1
                cores[row, card] += container.cores
            if ask.node_policy == "binpack":
                summed += 100.0 * charged / np.maximum(total[row, card], 1)
            elif idle is not None:
                summed += np.where(idle[row, card], 100.0, 0.0)
        if not may.any():
            return nowhere
    return may, summed / max(1, picks) + _tie(ask.node_policy, columns)


def _rank_slots(ask: VgpuAsk, columns: Columns, catalogue: Catalogue, choose: Chooser | None) -> Ranked | None:
    """MIG cards, for one slot: per geometry every card state is answered once, then looked up."""
    nodes, width = columns.total.shape
    container = ask.containers[0]
    if columns.state is None or len(ask.containers) > 1 or container.count > 1 or container.percent not in (UNSET, 100):
        return None
    if container.cores > 100:
        return np.zeros(nodes, bool), np.zeros(nodes)
    total, memory, shares = columns.total, columns.memory, columns.shares
    usable = _usable(ask, columns) & columns.mig & (columns.state >= 0)
    open_cards = np.zeros((nodes, width), bool)
    charge, cost, worth = np.zeros((nodes, width), np.int64), np.zeros((nodes, width)), np.zeros((nodes, width))
    for geometry in catalogue.known():
        here = usable & (columns.state // STATES == geometry.number)
        if not here.any():
            continue
        need = container.memory
        if container.percent == 100:
            totals = total[here]
            need = min(int(totals.max()), geometry.largest // geometry.factor)
            if need > totals.min():
                return None  # cards of one model that registered unlike memory: a whole one is not one amount
        local = np.where(here, columns.state % STATES, 0)
        answers = _answers(geometry, need * geometry.factor, choose)
        answers.prepare(local)
        open_cards |= here & answers.fits.take(local) & (memory <= total - need)
        charge += np.where(here, answers.charge.take(local), 0)
        if choose is not None:
            here_cost = answers.cost.take(local)
            cost = np.where(here, here_cost, cost)
            worth = np.where(here, 100.0 * (1.0 - here_cost / (4.0 * geometry.largest)), worth)
    open_cards &= (shares < columns.share_limit) & _cores_allow(container.cores, columns.cores, shares)
    if choose is not None:
        masked = np.where(open_cards, cost, np.inf)
        open_cards &= masked == masked.min(axis=1)[:, None]
    key = _order(ask.card_policy, memory, shares, np.arange(width - 1, -1, -1))
    np.putmask(key, ~open_cards, -1)
    best = np.ascontiguousarray(key.T).max(axis=0)
    row = np.arange(nodes)
    card = width - 1 - best % width if ask.card_policy else np.maximum(best, 0)
    if choose is not None:
        score = worth[row, card] + _tie(ask.node_policy or "binpack", columns)
    elif ask.node_policy == "binpack":
        used = memory[row, card] + charge[row, card]
        score = 100.0 * used / np.maximum(total[row, card], 1) + _tie("binpack", columns)
    else:
        idle = shares[row, card] == 0
        score = np.where(idle & (ask.node_policy == "spread"), 100.0, 0.0) + _tie(ask.node_policy, columns)
    return best >= 0, score


class Answers:
    """Per state of a geometry: whether a slot of ``need`` MiB is free, what it charges, and what it costs. Worked out for
    the states that occur: a card whose slices may lie anywhere has more than a thousand."""

    def __init__(self, geometry: Geometry, need: int, choose: Chooser | None) -> None:
        self.geometry, self.need, self.choose = geometry, need, choose
        self.fits, self.known = np.zeros(geometry.states, bool), np.zeros(geometry.states, bool)
        self.charge, self.cost = np.zeros(geometry.states, np.int64), np.zeros(geometry.states)

    def prepare(self, states: NDArray[Any]) -> None:
        """Answer for all of these."""
        seen = np.zeros(len(self.known), bool)
        seen[states] = True
        for number in np.flatnonzero(seen & ~self.known).tolist():
            self.known[number] = True
            active, used = self.geometry.state_of(number)
            if self.choose is None:
                choice = self.geometry.first_fit(active, used, self.need)
                offer = None if choice is None else (0.0, *choice)
            else:
                offer = self.choose(self.geometry, active, used, self.need)
            if offer is not None:
                self.fits[number], self.cost[number] = True, offer[0]
                self.charge[number] = self.geometry.slot(offer[1], offer[2]).memory


@lru_cache(maxsize=1024)
def _answers(geometry: Geometry, need: int, choose: Chooser | None) -> Answers:
    return Answers(geometry, need, choose)


def _order(policy: str, memory: Ints, shares: Ints, reverse: Ints) -> Ints:
    """Keys whose maximum is the first card in the policy's order (section 9)."""
    width = len(reverse)
    if policy == "binpack":
        return np.asarray(memory * width + reverse)
    if policy == "spread":
        return np.asarray((_MANY - shares) * width + reverse)
    return np.tile(np.arange(width), (len(memory), 1))


_MANY = 2**40  # above any number of shares


def _cores_allow(wanted: int, cores: Ints, shares: Ints) -> Bools:
    if wanted == 0:
        return np.asarray(cores < 100)
    if wanted == 100:
        return np.asarray((cores <= 0) & (shares == 0))
    return np.asarray(cores <= 100 - wanted)


def _tie(policy: str, columns: Columns) -> NDArray[np.float64]:
    ones = np.ones(columns.total.shape[1], np.int64)  # a product with ones is the quickest sum over the short axis
    if policy == "binpack":
        return np.asarray(TIE * ((columns.memory @ ones) / np.maximum(columns.total @ ones, 1)))
    if policy == "spread":
        return np.asarray(TIE * (1.0 - (columns.shares @ ones) / np.maximum(columns.share_limit @ ones, 1)))
    return np.zeros(columns.total.shape[0])
