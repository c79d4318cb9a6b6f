"""What-if questions, answered by the scheduler's own filter and queues: would this pod, changed or with others gone, be placed?

Meant for an engine of one's own: pods are taken off the ledger and put back.

The victims for a pending pod, and why others stay: preempt and reclaim, tried and discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pumice.devices.offers import Occupant
from pumice.model.cards import Allocation
from pumice.model.errors import BadInput
from pumice.model.refusal import FitError
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.preemption.evaluator import Evaluator, Trial
from pumice.scheduler.cycle.preemption.victims import (
    Scope,
    between_jobs,
    between_queues,
    importance,
    inside_a_job,
    stays,
)
from pumice.scheduler.cycle.queueing import cost_for, tasks_to_try
from pumice.scheduler.cycle.statement import Evict, Nomination, Place, Statement
from pumice.scheduler.engine import Engine
from pumice.scheduler.placing.evaluation import Among, Choice
from pumice.scheduler.plugins.taints import tolerates
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import QueueState, Status, Task
from pumice.scheduler.state.resources import HUGE, add, amount_text, lacking, subtract
from pumice.wire.objects import Pod, Taint

QUEUE_FULL = "has no room left"
Accept = Callable[[Choice], bool]


@dataclass(slots=True)
class Payer:
    """The queue of a pending pod, as it would be with another request of that pod or without some others."""

    engine: Engine
    task: Task
    queue: QueueState
    now: float

    @classmethod
    def of(cls, engine: Engine, pod: Pod, now: float) -> Payer | None:
        """None for a pod that does not wait in a queue of this engine."""
        task = engine.state.tasks.get(pod.metadata.uid)
        if task is None or task.job is None or task.status is not Status.PENDING or not task.job.queue.present:
            return None
        return cls(engine, task, task.job.queue, now)

    @contextmanager
    def standing_for(self, cls: PodClass) -> Iterator[Accept]:
        """Inside, the queue's usage counts the pod as one of that class. Yields whether the queue may be charged for a choice of
        cards."""
        aside = self.task.aside or (self.task.job is not None and self.task.job.stalled)
        self._ask(self.task.cls, -1, aside)
        self._ask(cls, 1)
        opened = False

        def pays(choice: Choice) -> bool:
            nonlocal opened
            if not opened:  # only where a node takes the pod at all: with many queues this is the dear part
                self.engine.open_cycle(self.now)
                opened = True
            return self._pays(cls, choice)

        try:
            yield pays
        finally:
            self._ask(cls, -1)
            self._ask(self.task.cls, 1, aside)

    def short(self) -> str:
        """By which of its own limits the queue cannot take the pod as it is, whatever its cards; empty where it can."""
        queue, amounts = self.queue, self.task.amounts
        self.engine.open_cycle(self.now)
        if self.engine.framework.allocatable(queue, self.task.cls.amounts):
            return ""
        wanted = {name: value + queue.allocated.get(name, 0) for name, value in amounts.items()}
        numbers = ", ".join(
            f"{name}: {amount_text(name, amounts[name])} wanted, {amount_text(name, queue.allocated.get(name, 0))} of"
            f" {amount_text(name, queue.capability[name])} in use"
            for name in lacking(wanted, queue.capability, missing=HUGE)
        )
        return f"queue {queue.name} {QUEUE_FULL} for it ({numbers})" if numbers else ""

    @property
    def gang(self) -> int:
        """Return how many pods start together with it or not at all; 0 where it starts by itself, or joins others that run."""
        job = self.task.job
        return job.min_available if job is not None and job.min_available > max(1, job.ready_count) else 0

    def _ask(self, cls: PodClass, sign: int, aside: bool = False) -> None:
        (add if sign > 0 else subtract)(self.queue.pending, cls.demand)
        self.queue.device_request(cls, sign, aside)

    def _pays(self, cls: PodClass, choice: Choice) -> bool:
        framework = self.engine.framework
        if cls.request.best_effort and not cls.device_requests:
            return self.queue.open  # backfill places it, whatever its queue has
        amounts = cost_for(self.engine.state, self.task, cls, choice) or cls.amounts
        return not framework.overused(self.queue) and framework.allocatable(self.queue, amounts)


# -- the questions -----------------------------------------------------------------------------------------------------


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

    def occupants(self, node: str) -> Sequence[Occupant]:
        ledger, tasks, found = self.state.ledger, self.state.tasks, []
        for uid, placement in (ledger.by_node.get(node, {}) if node else ledger.placements).items():
            task = tasks.get(uid)
            size = sum(
                container_device.memory
                for allocation in placement.allocations
                for container_device in allocation.container_devices
            )
            found.append(Occupant(uid, self.state.pods.name_of(uid), task.priority if task else 0, size, placement.node))
        return found

    def largest(self) -> int:
        return max((device_table.largest() for device_table in self.state.ledger.device_tables.values()), default=0)


PLACING = ("enqueue", "allocate", "backfill")
STAYING = 40
"""Pods that are named with the reason why they stay."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A pod that holds a place where room is looked for. ``stays``: why it does; empty: it goes."""

    node: str
    pod: str
    priority: int
    holds: str
    """Its cards, for people."""
    stays: str = ""


@dataclass(frozen=True, slots=True)
class PreemptionView:
    """The preemption that would happen. ``places``: where the pods of its job would be promised a place, by name."""

    pod: str
    summary: str
    action: str
    places: tuple[tuple[str, str], ...] = ()
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def leaving(self) -> tuple[Neighbour, ...]:
        return tuple(found for found in self.neighbours if not found.stays)


def explain_preemption(engine: Engine, namespace: str, name: str, now: float) -> PreemptionView:
    """Play what the configured actions would do for the pod and its job. The engine should not be used further. Raises BadInput
    where no such pod waits."""
    key = f"{namespace}/{name}"
    task = next((task for task in engine.state.tasks.values() if task.key == key), None)
    if task is None or task.job is None:
        raise BadInput(f"no pod {key} that this scheduler places")
    waits = engine.state.nominations.kept.get(task.uid)
    if waits is not None:
        return PreemptionView(key, f"waits on {waits.node} for pods that leave", "", ((task.name, waits.node),))
    if task.status is not Status.PENDING:
        return PreemptionView(key, f"is {task.status.label}: no room is made for it", "")
    engine.actions = [(name, action) for name, action in engine.actions if name in PLACING]
    engine.cycle(now)  # what is idle is given away first, and jobs are started
    cycle = engine.open_cycle(now, plugins=True)
    scopes = _scopes(cycle, engine)
    if task.status is not Status.PENDING:
        return PreemptionView(key, f"{task.node} takes it: no room is to be made", "", ((task.name, task.node),))
    if not task.yielding.preempts:
        return PreemptionView(key, "its preemptionPolicy is Never: nobody goes for it", "")
    if not cycle.framework.job_starving(task.job):
        return PreemptionView(key, "its job has what it needs, as plugins gang and priority see it: nobody goes for it", "")
    for scope in scopes:
        evaluator = Evaluator(cycle, scope)
        trial = evaluator.for_job(task.job, tasks_to_try(cycle, task.job))
        view = _view(cycle, task, scope, trial)
        trial.statement.rollback()
        if view is not None:
            return view
    words = " and ".join(dict.fromkeys(scope.action for scope in scopes))
    staying = tuple(_staying(cycle, task, scopes[0], (), all_nodes=True))
    return PreemptionView(key, f"{words} can make no room for it", "", (), staying)


def _scopes(cycle: Cycle, engine: Engine) -> Sequence[Scope]:
    """Return the preempting actions of the configuration, in its order; preempt where there are none."""
    framework = engine.framework
    made = {
        "preempt": [between_jobs(framework), inside_a_job(framework)], "reclaim": [between_queues(framework)],
        "gangpreempt": [between_jobs(framework, "gangpreempt", gangs=True)],
        "gangreclaim": [between_queues(framework, "gangreclaim", gangs=True)],
    }  # fmt: skip
    found = [scope for name in engine.conf.actions for scope in made.get(name, ())]
    return found or made["preempt"]


def _view(cycle: Cycle, task: Task, scope: Scope, trial: Trial) -> PreemptionView | None:
    job, steps = task.job, trial.statement.steps
    assert job is not None
    places = tuple((step.task.name, step.choice.node) for step in steps if isinstance(step, Place | Nomination))
    victims = [step.task for step in steps if isinstance(step, Evict)]
    node = dict(places).get(task.name, "")
    if not victims or not cycle.framework.job_pipelined(job):
        return None
    gone = sorted(victims, key=importance)
    who = f"{len(gone)} pod" + ("s" if len(gone) != 1 else "")
    summary = f"{who} would go, and {node} would take it" if node else f"{who} would go for its job, and it waits on"
    leaving = [_neighbour(cycle, pod, "") for pod in gone]
    nodes = tuple(dict.fromkeys(where for _, where in places))
    return PreemptionView(task.key, summary, scope.action, places, (*leaving, *_staying(cycle, task, scope, nodes)))


def _staying(
    cycle: Cycle, task: Task, scope: Scope, nodes: Iterable[str], *, all_nodes: bool = False
) -> Iterable[Neighbour]:
    """The other pods of those nodes, or of all, and why they stay."""
    ledger, tasks, reported = cycle.state.ledger, cycle.state.tasks, 0
    for node in sorted(ledger.by_node) if all_nodes else nodes:
        for uid in ledger.by_node.get(node, ()):
            pod = tasks.get(uid)
            if pod is None or pod.status is Status.RELEASING or reported >= STAYING:
                continue
            reported += 1
            yield _neighbour(cycle, pod, stays(scope, task, pod) or ("it is not enough" if all_nodes else "it need not go"))


def _neighbour(cycle: Cycle, pod: Task, why: str) -> Neighbour:
    placement = cycle.state.ledger.placements.get(pod.uid)
    allocations = placement.allocations if placement is not None else ()
    priority = pod.priority if pod.job is None else pod.job.priority
    return Neighbour(pod.node, pod.key, priority, _cards(allocations), why)


def _cards(allocations: Sequence[Allocation]) -> str:
    held: dict[int, int] = {}
    for allocation in allocations:
        for container_device in allocation.container_devices:
            held[container_device.card] = held.get(container_device.card, 0) + container_device.memory
    return ", ".join(f"card {card}: {_amount(memory)}" for card, memory in sorted(held.items()))


def _amount(memory: int) -> str:
    return f"{memory // 1024} GiB" if memory and memory % 1024 == 0 else f"{memory} MiB"
