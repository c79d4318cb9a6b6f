"""Filter and score every node at once for requests that look at counters only.

Mirrors ``fit.py`` step by step on columns; a property test holds both to the same answers. Loops run over cards of a
node (8 or so) with all nodes in one array each: contiguous columns are several times faster than reductions over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.devices.card_policies import FOR_SLOTS, POLICIES, TIE
from pumice.devices.nvidia_vgpu.device_request import UNSET, ContainerRequest, VgpuRequest
from pumice.devices.nvidia_vgpu.mig import STATES, Chooser, Geometry
from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue
from pumice.devices.nvidia_vgpu.rows import needed, type_allowed
from pumice.devices.protocol import Columns
from pumice.devices.settings import LAST_RESORT
from pumice.model.cards import Mode


class Answers:
    """Per state of a geometry: whether a slot of ``need`` MiB is free, what it charges, and what it costs. Worked out for
    the states that occur: a card whose slices may lie anywhere has more than a thousand."""

    def __init__(self, geometry: Geometry, need: int, choose: Chooser | None) -> None:
        self.geometry, self.need, self.choose = geometry, need, choose
        self.fits, self.known = np.zeros(geometry.states, bool), np.zeros(geometry.states, bool)
        self.charge, self.cost = np.zeros(geometry.states, np.int64), np.zeros(geometry.states)
        self.after = np.full(geometry.states, -2, np.int32)
        self.room = np.zeros(geometry.states, np.int64)

    def prepare(self, states: NDArray[Any]) -> None:
        """Answer for all of these."""
        seen = np.zeros(len(self.known), bool)
        seen[states] = True
        for number in np.flatnonzero(seen & ~self.known).tolist():
            self.known[number] = True
            active, used = self.geometry.state_of(number)
            self.room[number] = self.geometry.room(active, used, self.need)
            if self.choose is None:
                choice = self.geometry.first_fit(active, used, self.need)
                offer = None if choice is None else (0.0, *choice)
            else:
                offer = self.choose(self.geometry, active, used, self.need)
            if offer is not None:
                self.fits[number], self.cost[number] = True, offer[0]
                self.charge[number] = self.geometry.slot(offer[1], offer[2]).memory
                after = self.geometry.number_of(*self.geometry.taken(active, used, offer[1], offer[2]))
                self.after[number] = self.geometry.number * STATES + after


@lru_cache(maxsize=1024)
def answers_of(geometry: Geometry, need: int, choose: Chooser | None) -> Answers:
    return Answers(geometry, need, choose)


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


Ranked = tuple[Bools, NDArray[np.float64]]


def rank_nodes(device_request: VgpuRequest, columns: Columns, catalogue: Catalogue, choose: Chooser | None) -> Ranked | None:
    """(may fit, score) per node; None when the columns do not hold all that the ask looks at: UUIDs, neighbours, or
    MIG cards whose state nobody keeps. A node with cards of both modes tries HAMi-core first, as the walk does."""
    if device_request.group or device_request.rules or device_request.use_uuids or device_request.nouse_uuids:
        return None
    slots = None
    if device_request.mode in (None, Mode.MIG) and columns.mig.any():
        slots = _rank_slots(device_request, columns, catalogue, choose)
        if slots is None or device_request.mode == Mode.MIG or columns.mig[columns.flags].all():
            return slots
    shares = _rank_shares(device_request, columns)
    if slots is None:
        return shares
    return shares[0] | slots[0], np.where(shares[0], shares[1], slots[1])


def _larger(device_request: VgpuRequest, container: ContainerRequest) -> tuple[int, int]:
    """(containers that ask for at least as much of a card as this one, how many parts they ask for)."""
    found = [other.count for other in device_request.containers if other.at_least(container)]
    return len(found), sum(found)


def _room_for_shares(device_request: VgpuRequest, columns: Columns, usable: Bools) -> Bools:
    """Nodes whose cards have room for as many parts of each size as are wanted of it and of larger ones. Where the walk fails
    all the same, fit may yet find a way (search.py)."""
    enough = np.ones(len(usable), bool)
    for container in device_request.containers:
        containers, parts = _larger(device_request, container)
        need = container.memory if container.percent == UNSET else columns.total * container.percent // 100
        room = np.minimum(columns.share_limit - columns.shares, containers)
        room = np.minimum(room, (columns.total - columns.memory) // np.maximum(need, 1))
        if container.cores:
            room = np.minimum(room, (100 - columns.cores) // container.cores)
        room = np.where(usable & _cores_allow(container.cores, columns.cores, columns.shares), room, 0)
        open_cards = (room > 0).sum(axis=1)
        enough &= (np.maximum(room, 0).sum(axis=1) >= parts) & (open_cards >= container.count)
    return enough


def _usable(device_request: VgpuRequest, columns: Columns) -> Bools:
    allowed = np.array([type_allowed(device_request, t, t.lower()) for t in columns.types] + [False])  # -1 picks the last: absent
    return np.asarray(columns.flags & allowed.take(columns.type_id))


def _rank_shares(device_request: VgpuRequest, columns: Columns) -> Ranked:
    """HAMi-core cards, any number of containers and cards."""
    nodes, width = columns.total.shape
    nowhere = np.zeros(nodes, bool), np.zeros(nodes)
    if device_request.mode not in (None, Mode.HAMI_CORE) or any(
        c.cores > 100 or c.count > width for c in device_request.containers
    ):
        return nowhere
    usable = _usable(device_request, columns) & ~columns.mig
    total, memory, shares, cores = columns.total, columns.memory, columns.shares, columns.cores
    node_policy, before = POLICIES.get(device_request.node_policy), shares
    reverse = np.arange(width - 1, -1, -1)  # of equal cards the lowest index has the highest key
    row = np.arange(nodes)
    may, summed = np.ones(nodes, bool), np.zeros(nodes)
    picks, done = sum(c.count for c in device_request.containers), 0
    for container in device_request.containers:
        need = container.memory if container.percent == UNSET else total * container.percent // 100
        open_cards = usable & (shares < columns.share_limit) & (memory <= total - need)
        open_cards &= _cores_allow(container.cores, cores, shares)
        key = _order(device_request.card_policy, memory, shares, cores, total, reverse)
        np.putmask(key, ~open_cards, -1)
        for _ in range(container.count):
            best = np.ascontiguousarray(key.T).max(axis=0)  # a reduction over the short axis itself is much slower
            may &= best >= 0
            card = width - 1 - best % width if device_request.card_policy else np.maximum(best, 0)
            done += 1
            charged = memory[row, card] + (need if isinstance(need, int) else need[row, card])
            if done < picks:
                if done == 1:
                    memory, shares, cores = memory.copy(), shares.copy(), cores.copy()
                key[row, card] = -1
                memory[row, card] = charged
                shares[row, card] += 1
                cores[row, card] += container.cores
            if node_policy is not None:
                summed += node_policy.score(charged, np.maximum(total[row, card], 1), before[row, card])
        if not may.any():
            break
    score = summed / max(1, picks) + _tie(device_request.node_policy, columns)
    if len(device_request.containers) > 1 and not may.all():
        unsure = ~may & _room_for_shares(device_request, columns, usable)
        score[unsure] = np.nan
        may |= unsure
    return may, score


def _rank_slots(device_request: VgpuRequest, columns: Columns, catalogue: Catalogue, choose: Chooser | None) -> Ranked | None:
    """MIG cards: per geometry every card state that occurs is answered once, then looked up, slot by slot."""
    nodes, width = columns.total.shape
    if columns.state is None:
        return None
    if any(c.cores > 100 for c in device_request.containers):
        return np.zeros(nodes, bool), np.zeros(nodes)
    usable = _usable(device_request, columns) & columns.mig & (columns.state >= 0)
    geometries = [(g, here) for g in catalogue.known() if (here := usable & (columns.state // STATES == g.number)).any()]
    policy = device_request.node_policy or (FOR_SLOTS if choose is not None else "")
    node_policy = POLICIES.get(policy)
    row, reverse = np.arange(nodes), np.arange(width - 1, -1, -1)
    now = _Cards(columns.memory, columns.cores, columns.shares, columns.state)
    may, enough, summed = np.ones(nodes, bool), np.ones(nodes, bool), np.zeros(nodes)
    picks, done = sum(c.count for c in device_request.containers), 0
    for container in device_request.containers:
        tables = []
        for geometry, here in geometries:
            need = _slot_need(container, columns.total[here], geometry)
            if need is None:
                return None
            tables.append((here, need, answers_of(geometry, need * geometry.factor, choose)))
        if picks > 1:  # where the walk fails all the same, fit may yet find a way (search.py)
            enough &= _room_for_slots(tables, columns.state) >= _larger(device_request, container)[1]
        order = _order(device_request.card_policy, now.memory, now.shares, now.cores, columns.total, reverse)
        taken = np.zeros((nodes, width), bool)
        for _ in range(container.count):
            offer = _offers(tables, columns, now, container.cores)
            open_cards = offer.open & ~taken
            again = ~open_cards.any(axis=1)  # every card has given one: a further round over the same cards
            if again.any() and container.count > 1:
                open_cards[again] = offer.open[again]
                taken[again] = False
            if choose is not None:
                masked = np.where(open_cards, offer.cost, np.inf)
                open_cards &= masked == masked.min(axis=1)[:, None]
            best = np.ascontiguousarray(np.where(open_cards, order, -1).T).max(axis=0)
            card = width - 1 - best % width if device_request.card_policy else np.maximum(best, 0)
            may &= best >= 0
            done += 1
            charged = now.memory[row, card] + offer.charge[row, card]
            if choose is not None:
                summed += offer.score[row, card]
            elif node_policy is not None:
                summed += node_policy.score(charged, np.maximum(columns.total[row, card], 1), columns.shares[row, card])
            if done < picks:
                found = np.flatnonzero(best >= 0)
                at = row[found], card[found]
                taken[at] = True
                now = now.with_pick(at, charged[found], container.cores, offer.after[at])
        if not (may.any() or (picks > 1 and enough.any())):
            return np.zeros(nodes, bool), np.zeros(nodes)
    score = summed / max(1, picks) + _tie(policy, columns)
    if device_request.mode is None:
        score -= LAST_RESORT
    if picks > 1 and not may.all():
        unsure = ~may & enough
        score[unsure] = np.nan
        may |= unsure
    return may, score


@dataclass(slots=True)
class _Cards:
    """The state that changes while a pod's slots are taken one by one."""

    memory: Ints
    cores: Ints
    shares: Ints
    state: NDArray[np.int32]
    own: bool = False

    def with_pick(self, at: tuple[Ints, Ints], charged: Ints, cores: int, after: NDArray[np.int32]) -> _Cards:
        mine = self if self.own else _Cards(self.memory.copy(), self.cores.copy(), self.shares.copy(), self.state.copy(), True)
        mine.memory[at] = charged
        mine.cores[at] += cores
        mine.shares[at] += 1
        mine.state[at] = after
        return mine


@dataclass(slots=True)
class _Offer:
    """Per card, whether it has a slot, at what cost and charge, what that adds to the score of the node, and its state after."""

    open: Bools
    charge: Ints
    cost: NDArray[np.float64]
    score: NDArray[np.float64]
    after: NDArray[np.int32]


Tables = Sequence[tuple[Bools, int, Answers]]
"""The cards of a geometry, what a slot of them must have, and what each state of theirs answers."""


def _room_for_slots(tables: Tables, state: NDArray[np.int32]) -> Ints:
    """Return how many slots each node's cards have room for."""
    room = np.zeros(state.shape, np.int64)
    for here, _, answers in tables:
        local = np.where(here, state % STATES, 0)
        answers.prepare(local)
        np.copyto(room, answers.room.take(local), where=here)
    return np.asarray(room.sum(axis=1))


def _offers(tables: Tables, columns: Columns, now: _Cards, cores: int) -> _Offer:
    shape = columns.total.shape
    offer = _Offer(np.zeros(shape, bool), np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape),
                   np.zeros(shape, np.int32))  # fmt: skip
    for here, need, answers in tables:
        local = np.where(here, now.state % STATES, 0)
        answers.prepare(local)
        offer.open |= here & answers.fits.take(local) & (now.memory <= columns.total - need)
        np.copyto(offer.charge, answers.charge.take(local), where=here)
        np.copyto(offer.cost, answers.cost.take(local), where=here)
        np.copyto(offer.after, answers.after.take(local), where=here)
        if answers.choose is not None:
            score = 100.0 * (1.0 - answers.cost / (4.0 * answers.geometry.largest))
            np.copyto(offer.score, score.take(local), where=here)
    offer.open &= (now.shares < columns.share_limit) & _cores_allow(cores, now.cores, now.shares)
    return offer


def _slot_need(container: ContainerRequest, totals: Ints, geometry: Geometry) -> int | None:
    """Memory units that a slot must have; None where cards of one model registered unlike memory and it depends on that."""
    if container.percent == UNSET:
        return container.memory
    needs = {needed(container, int(total), geometry) for total in np.unique(totals)}
    return needs.pop() if len(needs) == 1 else None


def _order(policy: str, memory: Ints, shares: Ints, cores: Ints, total: Ints, reverse: Ints) -> Ints:
    """Return keys whose maximum is the first card in the policy's order."""
    width = len(reverse)
    known = POLICIES.get(policy)
    if known is not None:
        return np.asarray((known.rank(memory, shares, cores, np.maximum(total, 1)) + _MANY) * width + reverse)
    return np.tile(np.arange(width), (len(memory), 1))


_MANY = 2**40  # above any number of shares, so that no key is below 0


def _cores_allow(wanted: int, cores: Ints, shares: Ints) -> Bools:
    if wanted == 0:
        return np.asarray(cores < 100)
    if wanted == 100:
        return np.asarray((cores <= 0) & (shares == 0))
    return np.asarray(cores <= 100 - wanted)


def _tie(policy: str, columns: Columns) -> NDArray[np.float64]:
    known = POLICIES.get(policy)
    if known is None:
        return np.zeros(columns.total.shape[0])
    ones = np.ones(columns.total.shape[1], np.int64)  # a product with ones is the quickest sum over the short axis
    used = columns.memory @ ones, np.maximum(columns.total @ ones, 1), columns.shares @ ones
    return np.asarray(TIE * known.tie(*used, np.maximum(columns.share_limit @ ones, 1)))
