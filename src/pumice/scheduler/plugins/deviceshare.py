"""deviceshare: what switches the device families on (Volcano pkg/scheduler/plugins/deviceshare).

The families filter, score and choose cards inside the placer; being in the file is what switches them on. How much their
score counts between nodes is ``Settings.node_weight``; ``enableNodeOrder: false`` makes it 0. The filter has no
switch: a card is only booked where it fits.

Where a policy without a weight decides between nodes, pods that ask for no cards leave nodes with idle ones to those that do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import NodeOrder, Scorer
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.state import State
from pumice.wire.names import INIT_PARAMS, PARAMS_READ
from pumice.wire.scheduler_conf import SchedulerConf

FREE_CARD = 100.0
"""The penalty on a node's score for each idle card, for pods without cards: as much as one of Kubernetes' node scores gives."""


class DeviceShare(NodeOrder):
    name = "deviceshare"

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None:
        if not _leaves_cards_to_others(state, cls):
            return None
        free = sum(book.free(rows, state.ledger.table.capacity) for book in state.ledger.device_tables.values())
        return -FREE_CARD * np.asarray(free)

    def scorer(self, state: State, cls: PodClass) -> Scorer | None:
        return super().scorer(state, cls) if _leaves_cards_to_others(state, cls) else None


def _leaves_cards_to_others(state: State, cls: PodClass) -> bool:
    return not cls.device_requests and state.settings.policy_first and bool(state.ledger.device_tables)


def device_arguments(conf: SchedulerConf) -> Mapping[str, Any] | None:
    """The arguments that the families are made from; None when nothing switches devices on.

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
