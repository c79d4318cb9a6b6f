"""Always on: no queue takes more than its ``spec.capability``, nor more than its parents' leave to their children together.

proportion holds a queue to its own, and capacity to all of them; without either, nobody would.
"""

from __future__ import annotations

from dataclasses import dataclass

from pumice.scheduler.plugins.contract import Allocatable, Session
from pumice.scheduler.state.groups import QueueTree
from pumice.scheduler.state.jobs import QueueState
from pumice.scheduler.state.resources import CLASS_COUNT, PODS, Vector, amount_text, of_claims
from pumice.wire.scheduler_conf import Arguments, SchedulerConf


@dataclass(frozen=True, slots=True)
class ClaimQuotas:
    """The quotas that count: of devices by claim, and of their capacities (Volcano pkg/scheduler/plugins/capacity)."""

    devices: bool = True
    capacities: bool = True

    @classmethod
    def of(cls, arguments: Arguments) -> ClaimQuotas:
        devices = arguments.boolean("capacity.DynamicResourceAllocationEnable", True)
        return cls(devices, devices and arguments.boolean("capacity.DRAConsumableCapacityEnable", True))

    @classmethod
    def configured(cls, conf: SchedulerConf) -> ClaimQuotas:
        capacity = conf.plugin("capacity")
        return cls() if capacity is None else cls.of(capacity.arguments)

    def within(self, limits: Vector) -> Vector:
        """Return the limits that count."""
        if self.capacities:
            return limits
        return {name: value for name, value in limits.items()
                if not of_claims(name) or (self.devices and name.startswith(CLASS_COUNT))}  # fmt: skip


class Capability(Allocatable):
    name = "capability"

    def __init__(self, quotas: ClaimQuotas = ClaimQuotas()) -> None:
        super().__init__(Arguments())
        self._tree: QueueTree | None = None
        self._quotas = quotas

    def open(self, session: Session) -> None:
        self._tree = session.state.groups.tree

    def allocatable(self, queue: QueueState, amounts: Vector) -> bool:
        return not self.short_of(queue, amounts)

    def short_of(self, queue: QueueState, amounts: Vector) -> str:
        tree = self._tree
        for each in (queue, *tree.above(queue)) if tree is not None else ():
            if each.capability and tree is not None:
                text = short_text(tree.taken(each), self._quotas.within(each.capability), amounts)
                if text:
                    return text if each is queue else f"capability of queue {each.name}, {text}"
        return ""


def short_text(usage: Vector, limit: Vector, amounts: Vector) -> str:
    """By what so much more would be over the limit, where it names a resource; empty where it is not."""
    short = []
    for name, amount in amounts.items():
        most, used = limit.get(name), usage.get(name, 0)
        if most is not None and amount and name != PODS and used + amount > most:
            wanted, has, all_ = (amount_text(name, value) for value in (amount, used, most))
            short.append(f"{name}: {wanted} wanted, {has} of {all_} in use")
    return ", ".join(short)
