"""deviceshare: what switches the device types on (Volcano pkg/scheduler/plugins/deviceshare).

The device types filter, score and choose cards inside the placer; being in the file is what switches them on. How much their
score counts between nodes is ``Settings.node_weight``; ``enableNodeOrder: false`` makes it 0. The filter has no
switch: a card is only booked where it fits.

Where a policy without a weight decides between nodes, pods that ask for no cards leave nodes with idle ones to those that do.
Policies that count what a pod would strand of the cards (``stranding``) count it here, for such pods as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.claims.filling import packs
from pumice.devices.card_policies import POLICIES, TIE, Stranding
from pumice.devices.fragmentation import STEP, Shape
from pumice.devices.settings import LEXICOGRAPHIC_WEIGHT
from pumice.scheduler.plugins.claimed_partitions import PartitionScores
from pumice.scheduler.plugins.contract import NodeOrder, Scorer, Session, Several
from pumice.scheduler.plugins.stranding import StrandedCards
from pumice.scheduler.state.cards import DeviceTable
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.groups import QueueTree
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.resources import CPU, MEMORY
from pumice.scheduler.state.state import State
from pumice.wire.names import INIT_PARAMS, PARAMS_READ
from pumice.wire.scheduler_conf import Arguments, SchedulerConf

FREE_CARD = 100.0
"""The penalty on a node's score for each idle card, for pods without cards: as much as one of Kubernetes' node scores gives."""


A_STEP = 1000.0
"""The worth of a step of stranded cards beside Kubernetes' scores, for pods without cards: more than those together differ by."""
FIRST = 1e6 * LEXICOGRAPHIC_WEIGHT
"""The worth of a step where the policy comes first. Names order thousands of nodes by more than the cards' own score can."""
BEFORE_WISHES = 1e3 * LEXICOGRAPHIC_WEIGHT
"""The same for pods that would rather have some nodes than others: among those that strand alike the cards' score comes next."""
NOWHERE = -1e18
"""The score of a node on which no shared card takes the pod, though a slot may: behind all others (``LAST_RESORT``)."""


FITTING = 0.5
"""The part of a cycle's time within which it goes on with weights that are fitted to the pods seen."""


class DeviceShare(NodeOrder):
    name = "deviceshare"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._stranded: dict[tuple[str, Stranding], StrandedCards] = {}
        self._partitions = PartitionScores()
        self._rank, self._ranks = np.zeros(0, np.int64), 0
        """The order of names, and how many there have been."""
        self._queues: tuple[QueueTree | None, int] = (None, 0)
        """The tree of queues by which their policies were looked at."""

    def open(self, session: Session) -> None:
        session.state.classes.seen.go_on(lambda: session.past(session.started, FITTING))
        groups = session.state.groups
        if self._queues != (groups.tree, groups.tree.version):
            self._queues = groups.tree, groups.tree.version
            groups.remark(self.name, {name: queue.misnamed for name, queue in session.state.queues.items() if queue.misnamed})

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None:
        how, settings = _stranding(state, cls), state.settings
        if cls.device_requests:
            if how is None or cls.shape is None:
                return None
            device_table = state.ledger.device_tables[cls.shape.device_type]
            steps, takes = self._of(state, device_table, how).steps(rows, cls.shape.cpu, cls.shape.memory, cls.shape.part)
            if settings.weight is not None:
                return steps * (100 * STEP * settings.node_weight)
            found = steps * BEFORE_WISHES if cls.prefers else (steps - self._order(state, rows)) * FIRST
            return np.where(takes, found, NOWHERE)
        if _by_claims(state, cls):
            return self._of_claimed(state, cls, rows)
        if not _leaves_cards_to_others(state, cls):
            return None
        free = sum(device_table.free(rows, state.ledger.table.capacity) for device_table in state.ledger.device_tables.values())
        score = -FREE_CARD * np.asarray(free)
        if how is not None:
            requested = cls.request.amounts()
            for device_table in state.ledger.device_tables.values():
                if device_table.device_type.ranking is not None:
                    steps, _ = self._of(state, device_table, how).steps(
                        rows, requested.get(CPU, 0), requested.get(MEMORY, 0), None
                    )
                    score += A_STEP * steps
        return score

    def scorer(self, state: State, cls: PodClass) -> Scorer | None:
        alone = _by_claims(state, cls) or (_stranding(state, cls) is None and _leaves_cards_to_others(state, cls))
        return super().scorer(state, cls) if alone else None

    def _of_claimed(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64]:
        """By how much of a node's cards claims hold: the fuller node goes on, or the emptier one where pods are spread. Before
        that comes what a partition there would leave of its card, where nothing is spread and no weight is given."""
        table, settings = state.ledger.table, state.settings
        policy, full = POLICIES[settings.policy], state.device_claims.in_use.fullness
        wanted = self._partitions.of(state, cls) if settings.policy_first and packs(policy.rank) else None
        found = np.zeros(table.capacity if rows is None else len(rows))
        places = np.flatnonzero(table.live) if rows is None else rows
        for place, row in enumerate(places.tolist()):
            part, cards = full(table.name(row))
            score = 100.0 * policy.tie(part, 1.0, part, 1.0)
            if cards and wanted is not None and (own := wanted.score(cards)) is not None:
                score = own + TIE / 100.0 * score
            found[row if rows is None else place] = settings.contribution(score)
        return found

    def several(self, state: State, cls: PodClass) -> Several | None:
        how = _stranding(state, cls)
        if how is None:
            return None
        if cls.device_requests and cls.shape is not None:
            return self._several_with_cards(state, cls, how, cls.shape)

        def together(rows: list[int]) -> Sequence[float]:
            found = self.scores(state, cls, np.array(rows, np.intp))
            assert found is not None
            return [float(score) for score in found]

        return together

    def _several_with_cards(self, state: State, cls: PodClass, how: Stranding, shape: Shape) -> Several:
        """As ``scores``, one number at a time."""
        device_table, settings, table = state.ledger.device_tables[shape.device_type], state.settings, state.ledger.table
        stranded = self._of(state, device_table, how)

        def together(rows: list[int]) -> Sequence[float]:
            found = stranded.few(rows, shape.cpu, shape.memory, shape.part)
            if settings.weight is not None:
                worth = 100 * STEP * settings.node_weight
                return [0.0 if steps is None else steps * worth for steps in found]
            if cls.prefers:
                return [NOWHERE if steps is None else steps * BEFORE_WISHES for steps in found]
            rank, most = table.rank(), 2.0 * max(1, len(table))
            return [
                NOWHERE if steps is None else (steps - rank.item(row) / most) * FIRST
                for row, steps in zip(rows, found, strict=True)
            ]

        return together

    def version(self, state: State, cls: PodClass) -> int:
        how = _stranding(state, cls)
        if how is None:
            return 0
        rank = state.ledger.table.rank()
        if rank is not self._rank:
            self._rank, self._ranks = rank, self._ranks + 1
        state.classes.seen.current()
        if how.fitted:
            for device_table in state.ledger.device_tables.values():
                if device_table.device_type.ranking is not None:
                    self._of(state, device_table, how).shapes()
        return state.classes.seen.version + self._ranks

    def _order(self, state: State, rows: Rows | None) -> NDArray[np.float64]:
        """In 0..1/2, the order of names: of nodes that strand alike one is filled after the other, and others stay whole. The
        wishes of pods that have any come before it."""
        table = state.ledger.table
        rank = table.rank() if rows is None else table.rank()[rows]
        return np.where(table.live if rows is None else table.live[rows], rank, 0) / (2.0 * max(1, len(table)))

    def _of(self, state: State, device_table: DeviceTable, how: Stranding) -> StrandedCards:
        key = device_table.device_type.name, how
        found = self._stranded.get(key)
        if found is None or found.state is not state or found.device_table is not device_table:
            found = self._stranded[key] = StrandedCards(state, device_table, how)
        return found


def _stranding(state: State, cls: PodClass) -> Stranding | None:
    """Return the measure of stranded cards by which such a pod's policy chooses between nodes; None where it counts none."""
    if cls.device_requests:
        policy = POLICIES.get(cls.policy) if cls.shape is not None and state.settings.node_weight else None
    else:
        policy = POLICIES.get(state.settings.policy) if _leaves_cards_to_others(state, cls) else None
    return None if policy is None else policy.stranding


def _by_claims(state: State, cls: PodClass) -> bool:
    """Return whether nodes are told apart by what claims hold of their cards."""
    settings = state.settings
    return bool(cls.device_claims and not cls.device_requests and settings.policy in POLICIES and settings.node_weight)


def _leaves_cards_to_others(state: State, cls: PodClass) -> bool:
    return not (cls.device_requests or cls.device_claims) and state.settings.policy_first and bool(state.ledger.device_tables)


def device_arguments(conf: SchedulerConf) -> Mapping[str, Any] | None:
    """The arguments that the device types are made from; None when nothing switches devices on.

    Older files switch gpu sharing on in the predicates plugin; that still works, with or without deviceshare.
    """
    found: dict[str, Any] = {}
    predicates = conf.plugin("predicates")
    if predicates is not None:
        legacy = ("predicate.GPUSharingEnable", "predicate.GPUNumberEnable", "predicate.VGPUEnable")
        found.update({key: predicates.arguments[key] for key in legacy if key in predicates.arguments})
    deviceshare = conf.plugin("deviceshare")
    if deviceshare is not None:
        found.update({f"{INIT_PARAMS}.{key}": value for key, value in conf.action(INIT_PARAMS).items() if key in PARAMS_READ})
        found.update(deviceshare.arguments)
        if not deviceshare.enabled("NodeOrder"):
            found["deviceshare.ScheduleWeight"] = 0
    return found if found or deviceshare is not None else None
