"""Why a pod waits and what would let it in, from an engine that holds a picture of the cluster.

Meant for an engine of one's own, built from a dump or from the API: what-if questions take pods off the books and put them
back. The running scheduler answers from a copy, so that no cycle waits for a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from pumice.engine.classes import PodClass
from pumice.engine.effects import Bind, PodCondition
from pumice.engine.engine import Engine
from pumice.families.explain import Change, Holder, changes
from pumice.model.cards import Grant
from pumice.model.refusal import CardMisfit, Misfit, Refusal, Short
from pumice.wire import names
from pumice.wire.device_config import nearest
from pumice.wire.objects import Pod


@dataclass(frozen=True, slots=True)
class Explanation:
    """``summary`` is one sentence. ``node`` is where it runs or would go next; ``misfits`` say why each other node
    refuses; ``hints`` what may have been meant by a resource that no node has; ``gates`` are the words of queue and group,
    which the pod must pass before any node is asked."""

    pod: str
    summary: str
    node: str = ""
    grants: tuple[Grant, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    gates: tuple[str, ...] = ()
    nodes: int = 0
    fitting: tuple[str, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


def explain(engine: Engine, pod: Pod, *, now: float = 0.0, gates: bool = True) -> Explanation:
    """The whole answer for one pod, present in the engine or not. The engine's own decisions are not disturbed, except
    that ``gates`` runs one cycle on it, after which it should not be used further."""
    state = engine.state
    holding = state.ledger.holdings.get(pod.metadata.uid)
    if holding is not None:
        return Explanation(pod.key, f"runs on {holding.node}", holding.node, holding.grants)
    if pod.status.phase in ("Succeeded", "Failed"):
        return Explanation(pod.key, f"has ended: {pod.status.phase}{_because(pod)}; an ended pod is never placed again")
    cls = state.classes.of(pod)
    why = engine.placer.why(cls, per_node=True)
    if cls.refusals:
        text = "; ".join(f"{refusal.field}: {refusal.text}" for refusal in cls.refusals)
        return Explanation(pod.key, f"can never run: {text}", refusals=cls.refusals, nodes=why.nodes,
                           changes=changes(pod, engine.families, EngineOracle(engine)))  # fmt: skip
    refused = {misfit.node for misfit in why.misfits}
    table = state.ledger.table
    fitting = tuple(sorted(name for row in table.live_rows() if (name := table.name(int(row))) not in refused))
    choice = engine.placer.choose(cls)
    offers = () if choice is not None else changes(pod, engine.families, EngineOracle(engine, why.misfits))
    engine.placer.still_holds(cls, why)
    words = (*own_gates(engine, pod), *queue_words(engine, pod, now)) if gates else ()
    if choice is None:
        words = tuple(text for text in words if text != OVERTAKEN)
    node, grants = (choice.node, choice.grants) if choice is not None else ("", ())
    if choice is None:
        summary = why.text
    elif words == (OVERTAKEN,):
        summary = f"{node} would take it now, but pods ahead of it get that place first"
    elif words:
        summary = f"{node} would take it, but it is kept back"
    else:
        summary = f"fits on {len(fitting)} of {why.nodes} nodes; {node} is next"
    return Explanation(pod.key, summary, node, grants, (), words, why.nodes, fitting, why.misfits,
                       dict(why.counts), _hints(engine, cls), offers)  # fmt: skip


def _hints(engine: Engine, cls: PodClass) -> tuple[str, ...]:
    """What may have been meant by each resource that no node has."""
    offered = [name for name, amount in engine.state.ledger.table.total.items() if amount]
    missing = [name for name, _ in cls.request.items if name not in offered]
    return tuple(f"no node offers {name}{_meant(name, offered)}" for name in missing if offered)


def _meant(name: str, offered: Sequence[str]) -> str:
    other = names.SAME_ELSEWHERE.get(name)
    return f"; did you mean {other!r}?" if other in offered else nearest(name, offered)


def _because(pod: Pod) -> str:
    """What the kubelet says of its end, if anything."""
    said = ": ".join(filter(None, (pod.status.reason, pod.status.message)))
    return f" ({said})" if said else ""


def explain_known(engine: Engine, namespace: str, name: str, *, now: float = 0.0) -> Explanation | None:
    """The same for a pod of which the engine knows by itself: one that waits, or one that holds a place. None for all others
    (ended ones, and those that wait for another scheduler)."""
    key = f"{namespace}/{name}"
    task = next((task for task in engine.state.tasks.values() if task.key == key), None)
    if task is None:
        return None
    holding = engine.state.ledger.holdings.get(task.uid)
    if holding is not None:
        return Explanation(key, f"runs on {holding.node}", holding.node, holding.grants)
    return explain(engine, task.pod, now=now) if task.pod is not None else None


def own_gates(engine: Engine, pod: Pod) -> tuple[str, ...]:
    """What in the pod itself keeps this scheduler from looking at it."""
    found = []
    ours = engine.state.scheduler_names
    if pod.spec.scheduler_name not in ours:
        theirs = pod.spec.scheduler_name or "default-scheduler"
        found.append(f"its schedulerName is {theirs!r}; this scheduler places pods of {', '.join(sorted(ours))}")
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        found.append(f"it is held by its scheduling gates: {gates}")
    return tuple(found)


def queue_words(engine: Engine, pod: Pod, now: float) -> tuple[str, ...]:
    """What a cycle says about the pod when no node is to blame: queue limits, the group's size, gates."""
    plan = engine.cycle(now)
    for effect in plan.effects:
        if isinstance(effect, Bind) and effect.uid == pod.metadata.uid:
            return ()
    found = [e.message for e in plan.effects if isinstance(e, PodCondition) and e.uid == pod.metadata.uid]
    return tuple(OVERTAKEN if "nodes are unavailable" in text else text for text in found)


OVERTAKEN = "pods ahead of it take the room in the next cycle"


class EngineOracle:
    """The placer's whole filter: resources, node constraints and cards."""

    def __init__(self, engine: Engine, misfits: Sequence[Misfit] | None = None) -> None:
        """``misfits`` are the refusals of the pod in question, when they have been worked out before."""
        self.engine = engine
        self.state = engine.state
        self._misfits = misfits

    def fits(self, pod: Pod) -> str:
        choice = self.engine.placer.choose(self.state.classes.of(pod))
        return "" if choice is None else choice.node

    def fits_without(self, pod: Pod, node: str, gone: Sequence[str]) -> bool:
        ledger = self.state.ledger
        taken = [(ledger.holdings[uid], ledger.holdings[uid].state) for uid in gone if uid in ledger.holdings]
        for holding, _ in taken:
            ledger.release(holding.uid)
        try:
            return self.engine.placer.choose(self.state.classes.of(pod), only=node) is not None
        finally:
            for holding, hold in taken:
                ledger.confirm(holding)
                holding.state = hold

    def crowded(self, pod: Pod) -> Sequence[str]:
        """Nodes whose refusal is not final, those with the smallest shortage first."""
        found = self._misfits
        if found is None:
            found = self.engine.placer.why(self.state.classes.of(pod), per_node=True).misfits
        misfits = [m for m in found if not m.final]
        ours = [m for m in misfits if m.short is not Short.REQUEST or "Insufficient" in m.text]
        return [m.node for m in sorted(ours, key=lambda m: (m.wanted - m.best, m.node))]

    def holders(self, node: str) -> Sequence[Holder]:
        found = []
        for uid, holding in self.state.ledger.by_node.get(node, {}).items():
            task = self.state.tasks.get(uid)
            size = sum(piece.memory for grant in holding.grants for piece in grant.pieces)
            found.append(Holder(uid, task.key if task else uid, task.priority if task else 0, size))
        return found

    def largest(self) -> int:
        return max((book.largest() for book in self.state.ledger.books.values()), default=0)


def as_json(found: Explanation) -> bytes:
    """For programs, with stable keys. Nodes and cards are encoded as they are: there are tens of thousands of them."""
    return msgspec.json.encode({
        "pod": found.pod,
        "summary": found.summary,
        "node": found.node or None,
        "cards": [piece for grant in found.grants for piece in grant.pieces],
        "refused": [{"field": r.field, "text": r.text} for r in found.refusals],
        "queue": found.gates,
        "nodes": found.nodes,
        "fitting": found.fitting,
        "reasons": found.counts,
        "hints": found.hints,
        "misfits": [_worded(misfit) for misfit in found.misfits],
        "changes": [
            {"kind": c.kind, "text": c.text, "node": c.node, "wanted": c.wanted, "best": c.best, "evict": c.evict}
            for c in found.changes
        ],
    })  # fmt: skip


def _worded(misfit: Misfit) -> Misfit:
    """With the words of each card written out, not only the numbers that they say."""
    cards = tuple([CardMisfit(c.uuid, c.short, c.wanted, c.best, c.text) for c in misfit.cards])
    return Misfit(misfit.node, misfit.short, misfit.text, misfit.wanted, misfit.best, misfit.final, cards, misfit.detail)
