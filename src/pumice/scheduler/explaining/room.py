"""The victims for a pending pod, and why others stay: preempt and reclaim, tried and discarded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pumice.model.cards import Allocation
from pumice.model.errors import BadInput
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.preemption.preemptor import Preemptor, Trial
from pumice.scheduler.cycle.preemption.victims import (
    Scope,
    between_jobs,
    between_queues,
    importance,
    inside_a_job,
    stays,
)
from pumice.scheduler.cycle.queueing import claimants
from pumice.scheduler.cycle.statement import Evict, Nomination, Place
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.jobs import Status, Task

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
class RoomView:
    """``places``: where the pods of its job would be promised a place, by name."""

    pod: str
    summary: str
    action: str
    places: tuple[tuple[str, str], ...] = ()
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def leaving(self) -> tuple[Neighbour, ...]:
        return tuple(found for found in self.neighbours if not found.stays)


def explain_room(engine: Engine, namespace: str, name: str, now: float) -> RoomView:
    """Play what the configured actions would do for the pod and its job. The engine should not be used further. Raises BadInput
    where no such pod waits."""
    key = f"{namespace}/{name}"
    task = next((task for task in engine.state.tasks.values() if task.key == key), None)
    if task is None or task.job is None:
        raise BadInput(f"no pod {key} that this scheduler places")
    waits = engine.state.nominations.kept.get(task.uid)
    if waits is not None:
        return RoomView(key, f"waits on {waits.node} for pods that leave", "", ((task.name, waits.node),))
    if task.status is not Status.PENDING:
        return RoomView(key, f"is {task.status.label}: no room is made for it", "")
    engine.actions = [(name, action) for name, action in engine.actions if name in PLACING]
    engine.cycle(now)  # what is idle is given away first, and jobs are started
    cycle = Cycle(engine.state, engine.framework, engine.placer, now, "")
    engine.framework.open_queues(cycle)
    for plugin in engine.framework.plugins:
        plugin.open(cycle)
    scopes = _scopes(cycle, engine)
    if task.status is not Status.PENDING:
        return RoomView(key, f"{task.node} takes it: no room is to be made", "", ((task.name, task.node),))
    if not task.yielding.preempts:
        return RoomView(key, "its preemptionPolicy is Never: nobody goes for it", "")
    if not cycle.framework.job_starving(task.job):
        return RoomView(key, "its job has what it needs, as plugins gang and priority see it: nobody goes for it", "")
    for scope in scopes:
        preemptor = Preemptor(cycle, scope)
        trial = preemptor.for_job(task.job, claimants(cycle, task.job))
        view = _view(cycle, task, scope, trial)
        trial.statement.rollback()
        if view is not None:
            return view
    words = " and ".join(dict.fromkeys(scope.action for scope in scopes))
    return RoomView(key, f"{words} can make no room for it", "", (), tuple(_staying(cycle, task, scopes[0], (), all_nodes=True)))


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


def _view(cycle: Cycle, task: Task, scope: Scope, trial: Trial) -> RoomView | None:
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
    return RoomView(task.key, summary, scope.action, places, (*leaving, *_staying(cycle, task, scope, nodes)))


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
