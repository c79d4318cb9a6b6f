"""Filter and score every node at once for asks that look at counters only (design, decision 6).

Mirrors ``fit.py`` step by step on columns; a property test holds both to the same answers. Loops run over cards of a
node (8 or so) with all nodes in one array each: contiguous columns are several times faster than reductions over rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.families.nvidia_vgpu.ask import UNSET, VgpuAsk
from pumice.families.nvidia_vgpu.fit import TIE
from pumice.families.nvidia_vgpu.rows import type_allowed
from pumice.families.seam import Columns
from pumice.model.cards import Mode

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def counters_suffice(ask: VgpuAsk, columns: Columns) -> bool:
    """Whether the columns hold all that the ask looks at: no UUIDs, no neighbours, no MIG card that could serve it."""
    if ask.group or ask.rules or ask.use_uuids or ask.nouse_uuids:
        return False
    return ask.mode == Mode.HAMI_CORE or not columns.mig.any()


def rank_nodes(ask: VgpuAsk, columns: Columns) -> tuple[Bools, NDArray[np.float64]]:
    """(may fit, score) per node for HAMi-core cards."""
    nodes, width = columns.total.shape
    nowhere = np.zeros(nodes, bool), np.zeros(nodes)
    if ask.mode not in (None, Mode.HAMI_CORE) or any(c.cores > 100 or c.count > width for c in ask.containers):
        return nowhere
    allowed = np.array([type_allowed(ask, t, t.lower()) for t in columns.types] + [False])  # -1 picks the last: absent
    usable = columns.flags & ~columns.mig & allowed.take(columns.type_id)
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
