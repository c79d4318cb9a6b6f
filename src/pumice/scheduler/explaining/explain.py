"""Reasons for which a pod waits and what would let it in, from an engine that holds a snapshot of the cluster.

Meant for an engine of one's own, built from a dump or from the API: what-if questions take pods off the ledger and put them
back. The running scheduler answers from a copy, so that no cycle waits for a question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from pumice.devices.explain import changes
from pumice.devices.offers import Change
from pumice.effects.vocabulary import Bind
from pumice.model.cards import Allocation
from pumice.model.errors import nearest_word
from pumice.model.refusal import FitError, Refusal
from pumice.scheduler.cycle.statement import Statement
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.what_if import EngineWhatIf, Payer
from pumice.scheduler.placing.evaluation import among
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.ledger import Placement, PlacementState
from pumice.scheduler.state.tasks import Status
from pumice.scheduler.state.waiting import Waiting
from pumice.wire import names
from pumice.wire.objects import Pod
from pumice.wire.pod_claims import named_claims, unmade


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a pod. ``summary`` is one sentence. ``node`` is where it runs or would go next; ``fit_errors`` say
    why each other node refuses; ``hints`` what may have been meant by a resource that no node has; ``gates`` are the words of
    queue and group, which the pod must pass before any node is asked; ``gang`` how many pods must find a place together with
    it."""

    pod: str
    summary: str
    node: str = ""
    allocations: tuple[Allocation, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    gates: tuple[str, ...] = ()
    nodes: int = 0
    fitting: tuple[str, ...] = ()
    fit_errors: tuple[FitError, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    gang: int = 0


def explain(
    engine: Engine, pod: Pod, *, now: float = 0.0, gates: bool = True, templates: Collection[str] | None = None
) -> Explanation:
    """The whole answer for one pod, present in the engine or not. The engine's own decisions are not disturbed, except
    that ``gates`` runs one cycle on it, after which it should not be used further. ``templates``: the ResourceClaimTemplates that
    are there, as namespace/name; None where nobody has looked."""
    state = engine.state
    placement = state.ledger.placements.get(pod.metadata.uid)
    if placement is not None:
        return _placed(engine, pod.key, placement)
    if pod.status.phase in ("Succeeded", "Failed"):
        return Explanation(pod.key, f"has ended: {pod.status.phase}{_because(pod)}; an ended pod is never placed again")
    cls = state.classes.of(pod)
    known = state.tasks.get(pod.metadata.uid)
    beside = None if known is None or known.status is not Status.PENDING else among(engine.framework, state, known)
    why = engine.placer.why(cls, per_node=True, among=beside)
    payer = Payer.of(engine, pod, now) if gates else None
    if cls.refusals:
        text = "; ".join(f"{refusal.field}: {refusal.text}" for refusal in cls.refusals)
        waits = all(refusal.waits for refusal in cls.refusals)
        return Explanation(pod.key, f"{'cannot be tried yet' if waits else 'can never run'}: {text}", refusals=cls.refusals,
                           nodes=why.nodes, hints=_to_come(engine, pod, templates) if waits else (),
                           changes=changes(pod, engine.device_types, EngineWhatIf(engine, None, payer, beside)))  # fmt: skip
    refused = {fit_error.node for fit_error in why.fit_errors}
    table = state.ledger.table
    fitting = tuple(sorted(name for row in table.live_rows() if (name := table.name(int(row))) not in refused))
    choice = engine.placer.choose(cls, among=beside)
    what_if = EngineWhatIf(engine, why.fit_errors, payer, beside)
    unoffered = _unoffered(engine, cls)
    meant = {wrong: right for wrong, right in unoffered.items() if right}
    hints = tuple(
        f"no node offers {wrong}" + (f"; did you mean {right!r}?" if right else "") for wrong, right in unoffered.items()
    )
    offers = changes(pod, engine.device_types, what_if, meant) if choice is None or gates else ()
    if beside is None:
        engine.placer.still_holds(cls, why)
    short, gang = (payer.short(), payer.gang) if payer else ("", 0)
    words = (*own_gates(engine, pod), *queue_words(engine, pod, now)) if gates else ()
    if choice is None:
        if state.scheduling_queue.reserved:
            with _parts_of_gangs(engine):
                why = engine.placer.why(cls, per_node=True, among=beside)
        words = tuple(text for text in words if text != OVERTAKEN)
        if short and short not in words:
            words = (*words, short)
    node, allocations = (choice.node, choice.allocations) if choice is not None else ("", ())
    if choice is None:
        summary = why.text
    elif words == (OVERTAKEN,):
        summary = f"{node} would take it now, but pods ahead of it get that place first"
    elif words:
        summary = f"{node} would take it, but it is kept back"
    else:
        summary = f"fits on {len(fitting)} of {why.nodes} nodes; {node} is next"
    return Explanation(pod.key, summary, node, allocations, (), words, why.nodes, fitting, why.fit_errors,
                       dict(why.counts), hints, offers, gang)  # fmt: skip


@contextmanager
def _parts_of_gangs(engine: Engine) -> Iterator[None]:
    """Inside, gangs of which a part has places hold these, as they did when the last cycle worked out reasons."""
    statement = Statement(engine.state, engine.framework)
    for job in engine.state.scheduling_queue.reserved:
        for task in list(job.pending.values()):
            status, node = task.trial or (None, "")
            choice = engine.placer.choose(task.cls, node) if status is Status.ALLOCATED else None
            if choice is not None:
                statement.place(task, choice)
    try:
        yield
    finally:
        statement.rollback()


def _to_come(engine: Engine, pod: Pod, templates: Collection[str] | None) -> tuple[str, ...]:
    """Return what claims and templates the pod names that are not there, and what would help."""
    space, known, found = pod.metadata.namespace, engine.state.device_claims.claims, []
    named: list[tuple[str, str, Collection[str]]] = [("ResourceClaim", entry, known) for entry in named_claims(pod)]
    if templates is not None:
        named += [("ResourceClaimTemplate", template, templates) for _, template in unmade(pod)]
    for kind, name, there in named:
        if f"{space}/{name}" not in there:
            near = nearest_word(name, [own for key in there for at, _, own in [key.partition("/")] if at == space])
            found.append(f"there is no {kind} {space}/{name}: " + (f"did you mean {near!r}?" if near else "make it"))
        elif kind == "ResourceClaimTemplate":
            found.append(f"{kind} {space}/{name} is there: the pod's events say why no claim is made of it, if none comes")
    return tuple(found)


def _unoffered(engine: Engine, cls: PodClass) -> dict[str, str]:
    """Each resource that no node has, and what may have been meant by it (empty where that cannot be told)."""
    offered = [name for name, amount in engine.state.ledger.table.total.items() if amount]
    return {name: _meant(name, offered) for name, _ in cls.request.items if name not in offered} if offered else {}


def _meant(name: str, offered: Sequence[str]) -> str:
    known = {**names.SAME_ELSEWHERE, **names.OTHER_SHARING}.get(name)
    if known is None:
        return nearest_word(name, offered)
    return known if known in offered else ""


def _because(pod: Pod) -> str:
    """Return the kubelet's reason for the pod's end, if any."""
    said = ": ".join(filter(None, (pod.status.reason, pod.status.message)))
    return f" ({said})" if said else ""


def explain_known(engine: Engine, namespace: str, name: str, *, now: float = 0.0) -> Explanation | None:
    """The same for a pod of which the engine knows by itself: one that waits, or one that holds a place. None for all others
    (ended ones, and those that wait for another scheduler)."""
    key = f"{namespace}/{name}"
    task = next((task for task in engine.state.tasks.values() if task.key == key), None)
    if task is None:
        return None
    placement = engine.state.ledger.placements.get(task.uid)
    if placement is not None:
        return _placed(engine, key, placement)
    return explain(engine, task.pod, now=now) if task.pod is not None else None


def _placed(engine: Engine, key: str, placement: Placement) -> Explanation:
    """A pod that holds a place. Until its Binding is sent it may still wait for its volumes."""
    summary = f"runs on {placement.node}"
    waits = engine.state.nominations.kept.get(placement.uid)
    if waits is not None:
        leaving = ", ".join(sorted(map(engine.state.pods.name_of, waits.awaits)))
        when = f"free once these are gone: {leaving}" if leaving else "and waits for the others of its gang"
        nominated = engine.state.ledger.pipelined[placement.uid]
        return Explanation(key, f"is promised a place on {placement.node}, {when}", placement.node, nominated.allocations)
    if placement.state is PlacementState.ASSUMED:
        summary = f"is being bound to {placement.node}"
        task, known = engine.state.tasks.get(placement.uid), engine.state.volumes.claims
        keys = task.cls.constraints.claim_keys if task is not None else []
        unbound = [name.partition("/")[2] for name in keys if name not in known or not known[name].bound]
        if unbound:
            summary = f"has its place on {placement.node} and waits for the volumes of its claims there: {', '.join(unbound)}"
    return Explanation(key, summary, placement.node, placement.allocations)


def own_gates(engine: Engine, pod: Pod) -> tuple[str, ...]:
    """Return the parts of the pod that keep this scheduler from looking at it."""
    found = []
    ours = engine.state.pods.scheduler_names
    if pod.spec.scheduler_name not in ours:
        theirs = pod.spec.scheduler_name or names.KUBE_SCHEDULER
        found.append(f"its schedulerName is {theirs!r}; this scheduler places pods of {', '.join(sorted(ours))}")
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        found.append(f"it is held by its scheduling gates: {gates}")
    return tuple(found)


def queue_words(engine: Engine, pod: Pod, now: float) -> tuple[str, ...]:
    """Return the cycle's reason for the pod beside nodes: queue limits, the group's size, gates."""
    task = engine.state.tasks.get(pod.metadata.uid)
    if task is None or task.job is None:
        return ()
    job = task.job
    if not job.queue.present:
        return (job.queue.missing_text,)
    if job.group is None and not job.implicit:
        return (Waiting(job).of(task).text,)
    plan = engine.cycle_for_answers(now)
    if task.gated or any(isinstance(effect, Bind) and effect.uid == task.uid for effect in plan.effects):
        return ()
    text = Waiting(job).of(task).text
    return (OVERTAKEN if "nodes are unavailable" in text else text,)


OVERTAKEN = "pods ahead of it take the room in the next cycle"


def as_json(found: Explanation) -> bytes:
    """For programs, with stable keys. Nodes and cards are encoded as they are: there are tens of thousands of them."""
    return msgspec.json.encode({
        "pod": found.pod,
        "summary": found.summary,
        "node": found.node or None,
        "cards": [container_device for allocation in found.allocations for container_device in allocation.container_devices],
        "refused": [{"field": r.field, "text": r.text} for r in found.refusals],
        "queue": found.gates,
        "nodes": found.nodes,
        "fitting": found.fitting,
        "reasons": found.counts,
        "hints": found.hints,
        "misfits": [_worded(fit_error) for fit_error in found.fit_errors],
        "changes": [
            {"kind": c.kind, "text": c.text, "node": c.node, "wanted": c.wanted, "best": c.best, "evict": c.evict}
            for c in found.changes
        ],
    })  # fmt: skip


def _worded(fit_error: FitError) -> FitError:
    """With the words of each card written out, not only the numbers that they say."""
    return replace(fit_error, cards=tuple([replace(card, detail=card.text) for card in fit_error.cards]))
