"""The beginning of a cycle: who takes part again, and who waits for a place in vain."""

from __future__ import annotations

from pumice.effects.vocabulary import Event
from pumice.engine.cycle import reserving
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.queueing import admit, queues
from pumice.engine.cycle.room.redeeming import redeem
from pumice.engine.state.tasks import Status
from pumice.wire.volcano import SCHEDULING_API


def wake(cycle: Cycle) -> None:
    """Let all take part that have a reason to."""
    state = cycle.state
    cycle.placer.fallen.clear()
    _give_up(cycle)
    reserving.give_back(cycle)
    redeem(cycle)
    state.departures.ask_again(cycle.now)
    state.scheduling_queue.open(cycle.now)
    if state.classes.workloads.stale:
        state.pods.sort_by_workloads()
    if state.classes.images.fresh:
        state.pods.sort_by_images()
    state.scheduling_queue.take_reserved()
    _offer_gains(cycle)
    _hope(cycle)
    admit(cycle)
    state.scheduling_queue.explain_again(state.ledger.table.version, cycle.now)


def _give_up(cycle: Cycle) -> None:
    """Gangs stand on what is being released. A pod that does not go would starve all behind them: after a while its place
    is promised to nobody until it is gone, which it and who stood on it are told."""
    state = cycle.state
    for uid in state.departures.take_overdue(cycle.now):
        if not state.ledger.give_up(uid):
            continue
        namespace, _, name = state.pods.name_of(uid).partition("/")
        node = state.ledger.holdings[uid].node
        text = f"pod {namespace}/{name} on {node} is Terminating for too long; nobody waits for its place any more"
        cycle.effects.append(Event("Pod", "v1", namespace, name, uid, "Warning", "StuckTerminating", text))
        state.promises.stays(uid)
        for job in state.scheduling_queue.reserved:
            if any(task.trial == (Status.PIPELINED, node) for task in job.pending.values()):
                about = ("PodGroup", SCHEDULING_API, job.namespace, job.name, job.uid)
                cycle.effects.append(Event(*about, "Warning", "StuckTerminating", text))


def _offer_gains(cycle: Cycle) -> None:
    """Offer what was released to the unschedulable classes, as far as the time allows; the others come next cycle."""
    scheduling_queue, placer, begin = cycle.state.scheduling_queue, cycle.placer, cycle.tick()
    if placer.changed_elsewhere():
        scheduling_queue.changed_elsewhere()
    scheduling_queue.offer(placer.news, placer.is_asleep, lambda: cycle.tick() - begin > cycle.budget / 4)


def _hope(cycle: Cycle) -> None:
    """Who may take part again because the nodes changed asks for a share again."""
    changed = cycle.state.scheduling_queue.nodes_changed(cycle.state.ledger.table.version)
    for queue in queues(cycle):
        for job in queue.active if changed else queue.active.fresh:
            if job.runnable < len(job.pending):
                for task in job.pending.values():
                    if task.hopeless and not cycle.placer.hopeless(task.cls):
                        job.mark(task, gated=task.gated, hopeless=False)
