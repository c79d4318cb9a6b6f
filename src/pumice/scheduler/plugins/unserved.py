"""Always on: what is demanded and cannot be given is refused instead of ignored (``wire/without_effect.py``)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pumice.devices.disabled_types import shared_by_register
from pumice.scheduler.plugins.contract import Part, Predicate, Session, Verdict
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.state import State
from pumice.wire.device_config import DeviceConfig
from pumice.wire.scheduler_conf import Arguments


class Unserved(Predicate):
    """The plugin that refuses requests for disabled device types. ``device_types`` are the names of those that own devices
    under the configuration, ``plugins`` those in it."""

    name = "unserved"

    def __init__(self, plugins: frozenset[str], device_types: frozenset[str], devices: DeviceConfig) -> None:
        super().__init__(Arguments())
        self.plugins = plugins
        self.registers = shared_by_register(devices, device_types)
        self._doubtful_names = frozenset(name for shared in self.registers.values() for name in shared)

    def open(self, session: Session) -> None:
        if "nodegroup" not in self.plugins:
            text = "spec.affinity is ignored: the plugin nodegroup is not configured"
            queues = session.state.queues
            session.state.groups.remark(self.name, {name: text for name, queue in queues.items() if queue.node_groups.chosen})

    def constrains(self, state: State, cls: PodClass, part: Part) -> bool:
        return Part.NODE in part and bool(self._doubtful(cls))

    def verdicts(self, state: State, cls: PodClass, rows: Rows | None, part: Part) -> Iterator[Verdict]:
        for name in self._doubtful(cls):
            off = _mask(state, [row for row in state.ledger.table.live_rows().tolist() if self._shares(state, row, name)])
            text = f"node(s) share {name}, and the scheduler's configuration does not"
            yield Verdict(off if rows is None else off[rows], text, final=True, abort=True)

    def _doubtful(self, cls: PodClass) -> list[str]:
        """Return the resources of the class that some node may share."""
        if self._doubtful_names.isdisjoint(cls.amounts):  # nearly always, and it is asked for each pod
            return []
        return [name for name, _ in cls.request.items if name in self._doubtful_names]

    def _shares(self, state: State, row: int, name: str) -> bool:
        facts = state.ledger.table.facts[row]
        annotations = facts.node.metadata.annotations if facts is not None else {}
        return any(name in shared and register in annotations for register, shared in self.registers.items())


def _mask(state: State, rows: list[int]) -> NDArray[np.bool_]:
    mask = np.zeros(state.ledger.table.capacity, bool)
    mask[rows] = True
    return mask
