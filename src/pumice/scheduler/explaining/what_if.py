"""What-if questions, answered by the scheduler's own filter and queues: would this pod, changed or with others gone, be placed?

Meant for an engine of one's own: pods are taken off the books and put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pumice.devices.offers import Holder
from pumice.model.refusal import FitError
from pumice.scheduler.cycle.statement import Statement
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.payer import Payer
from pumice.scheduler.placing.among import Among
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.plugins.taints import tolerates
from pumice.wire.objects import Pod, Taint

HARD = ("NoSchedule", "NoExecute")


class EngineWhatIf:
    """Resources, node constraints and cards; with a ``payer`` also what the pod's queue may still take."""

    def __init__(
        self, engine: Engine, fit_errors: Sequence[FitError] | None = None, payer: Payer | None = None, among: Among | None = None
    ) -> None:
        """``fit_errors`` are the refusals of the pod in question, when they have been worked out before; ``among``: the nodes
        that
        it may have."""
        self.engine = engine
        self.state = engine.state
        self.payer = payer
        self.among = among
        self._fit_errors = fit_errors

    def fits(self, pod: Pod) -> str:
        choice = self._choose(pod)
        return "" if choice is None else choice.node

    def fits_without(self, pod: Pod, gone: Sequence[str]) -> str:
        statement = Statement(self.state, self.engine.framework)
        for uid in gone:
            statement.lift(uid)
        try:
            choice = self._choose(pod)
            return "" if choice is None else choice.node
        finally:
            statement.rollback()

    def _choose(self, pod: Pod) -> Choice | None:
        cls, placer = self.state.classes.of(pod), self.engine.placer
        if self.payer is None:
            return placer.choose(cls, among=self.among)
        with self.payer.standing_for(cls) as pays:
            return placer.choose(cls, accept=pays, among=self.among)

    def crowded(self, pod: Pod) -> Sequence[str]:
        """Nodes none of whose refusals is final, those with the smallest shortage first, as a part of what is wanted."""
        found = self._fit_errors
        if found is None:
            found = self.engine.placer.why(self.state.classes.of(pod), per_node=True, among=self.among).fit_errors
        final = {m.node for m in found if m.final}
        short: dict[str, float] = {}
        for m in found:
            if m.node not in final:
                short[m.node] = max(short.get(m.node, 0.0), (m.wanted - m.best) / max(1, m.wanted))
        return sorted(short, key=lambda node: (short[node], node))

    def taints(self, pod: Pod) -> Iterable[tuple[Taint, ...]]:
        facts = [each for each in self.state.ledger.table.facts if each is not None]
        found = (tuple(t for t in each.taints if t.effect in HARD and not tolerates(pod.spec.tolerations, t)) for each in facts)
        return dict.fromkeys(taints for taints in found if taints)

    def holders(self, node: str) -> Sequence[Holder]:
        ledger, tasks, found = self.state.ledger, self.state.tasks, []
        for uid, holding in (ledger.by_node.get(node, {}) if node else ledger.holdings).items():
            task = tasks.get(uid)
            size = sum(
                container_device.memory
                for allocation in holding.allocations
                for container_device in allocation.container_devices
            )
            found.append(Holder(uid, self.state.pods.name_of(uid), task.priority if task else 0, size, holding.node))
        return found

    def largest(self) -> int:
        return max((book.largest() for book in self.state.ledger.device_tables.values()), default=0)
