"""Always on where schedulers share a cluster by shards: which nodes are this scheduler's (Volcano
pkg/scheduler/util/predicate_helper.go, Volcano pkg/scheduler/actions/allocate).

Upstream's soft mode lets two schedulers place on one node and has the kubelet refuse what is too much. Nobody refuses a share of
a card that is given away twice: pods that ask for devices keep to their scheduler's nodes in soft mode, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import NodeOrder, Part, Predicate, Scorer, Verdict
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.state import State
from pumice.wire.scheduler_conf import Arguments

NOT_OURS = "node isn't in scheduler node shard"
FIRST = 1e6
"""More than all other plugins together give a node."""


class Sharding(Predicate):
    name = "sharding"

    def __init__(self) -> None:
        super().__init__(Arguments())

    def constrains(self, state: State, cls: PodClass, part: Part) -> bool:
        shards = state.shards
        if not shards.mine or shards.lifted or Part.NODE not in part:
            return False
        return not shards.soft or bool(cls.device_requests or cls.device_claims)

    def verdicts(self, state: State, cls: PodClass, rows: Rows | None, part: Part) -> Iterator[Verdict]:
        closed = ~state.shards.open_rows
        yield Verdict(closed if rows is None else closed[rows], NOT_OURS, final=True, abort=True)


class OwnNodesFirst(NodeOrder):
    name = "sharding"

    def __init__(self) -> None:
        super().__init__(Arguments())

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None:
        if not state.shards.soft:
            return None
        open_rows = state.shards.open_rows
        return np.where(open_rows if rows is None else open_rows[rows], FIRST, 0.0)

    def scorer(self, state: State, cls: PodClass) -> Scorer | None:
        return super().scorer(state, cls) if state.shards.soft else None
