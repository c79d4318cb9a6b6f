"""What-if questions, answered by the scheduler's own filter and queues: would this pod, changed or with others gone, be placed?

Meant for an engine of one's own: pods are taken off the books and put back.
"""

from __future__ import annotations

from collections.abc import Sequence

from pumice.engine.cycle.statement import Statement
from pumice.engine.engine import Engine
from pumice.engine.explaining.payer import Payer
from pumice.engine.placing.among import Among
from pumice.engine.placing.evaluation import Choice
from pumice.families.offers import Holder
from pumice.model.refusal import Misfit, Short
from pumice.wire.objects import Pod


class EngineWhatIf:
    """Resources, node constraints and cards; with a ``payer`` also what the pod's queue may still take."""

    def __init__(
        self, engine: Engine, misfits: Sequence[Misfit] | None = None, payer: Payer | None = None, among: Among | None = None
    ) -> None:
        """``misfits`` are the refusals of the pod in question, when they have been worked out before; ``among``: the nodes that
        it may have."""
        self.engine = engine
        self.state = engine.state
        self.payer = payer
        self.among = among
        self._misfits = misfits

    def fits(self, pod: Pod) -> str:
        choice = self._choose(pod)
        return "" if choice is None else choice.node

    def fits_without(self, pod: Pod, node: str, gone: Sequence[str]) -> bool:
        statement = Statement(self.state, self.engine.framework)
        for uid in gone:
            statement.lift(uid)
        try:
            return self._choose(pod, only=node) is not None
        finally:
            statement.rollback()

    def _choose(self, pod: Pod, only: str = "") -> Choice | None:
        cls, placer = self.state.classes.of(pod), self.engine.placer
        if self.payer is None:
            return placer.choose(cls, only=only, among=self.among)
        with self.payer.standing_for(cls) as pays:
            return placer.choose(cls, only=only, accept=pays, among=self.among)

    def crowded(self, pod: Pod) -> Sequence[str]:
        """Nodes whose refusal is not final, those with the smallest shortage first, as a part of what is wanted."""
        found = self._misfits
        if found is None:
            found = self.engine.placer.why(self.state.classes.of(pod), per_node=True, among=self.among).misfits
        misfits = [m for m in found if not m.final]
        ours = [m for m in misfits if m.short is not Short.REQUEST or "Insufficient" in m.text]
        return [m.node for m in sorted(ours, key=lambda m: ((m.wanted - m.best) / max(1, m.wanted), m.node))]

    def holders(self, node: str) -> Sequence[Holder]:
        found = []
        for uid, holding in self.state.ledger.by_node.get(node, {}).items():
            task = self.state.tasks.get(uid)
            size = sum(piece.memory for grant in holding.grants for piece in grant.pieces)
            found.append(Holder(uid, self.state.pods.name_of(uid), task.priority if task else 0, size))
        return found

    def largest(self) -> int:
        return max((book.largest() for book in self.state.ledger.books.values()), default=0)
