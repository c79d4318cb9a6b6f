"""Full nodes of any size: one to two hundred pods on each, gangs of up to a thousand, one to sixteen cards.

Sizes are drawn log-wide, so that few and many are as likely. Who may go at most is found here by walking through all pods, one by
one; nothing of the search that is judged takes part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from kit.engine_world import World
from kit.objects import budget, group, node, pod, priority_class, queue
from kit.room_worlds import CONFORMANCE, PDB, capacity, minding, room_conf, running_cycle

from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.preemption.victims import Scope, between_jobs, between_queues, importance, stands_without
from pumice.engine.state.jobs import Task
from pumice.engine.state.tasks import ALLOCATED_STATUSES

Json = dict[str, Any]
CARD = 8000
QUEUES = ("bit", "most", "claims")


def log_wide(dice: Random, least: int, most: int) -> int:
    return int(least * (most / least) ** dice.random())


@dataclass(slots=True)
class Crowd:
    """A running cycle in a full cluster, and a pod that wants in."""

    cycle: Cycle
    scope: Scope
    claimant: Task


def crowd(dice: Random) -> Crowd:
    reclaims = dice.random() < 0.35
    spares = dice.choice(("true", "false"))
    text = room_conf("enqueue, allocate, preempt", spares_gangs=spares)
    if votes := dice.choice(("", "true", "false")):
        text = text.replace(CONFORMANCE, CONFORMANCE + PDB % votes)
    if reclaims:
        text = capacity("gang", tree=dice.random() < 0.5, actions="enqueue, allocate, reclaim")
        text = text.replace("gang\n", "gang\n    enableReclaimable: false\n") if spares == "false" else text
    world = World(text, seed=dice.randrange(10**6))
    world.add(*(priority_class(f"p{value}", value) for value in range(4)))
    if votes:
        world.add(budget("guards", {"app": "a"}, log_wide(dice, 1, 20) - 1))
    sizes = [log_wide(dice, 1, 201) for _ in range(dice.randint(1, 3))]
    cards = [dice.choice((0, log_wide(dice, 1, 17))) for _ in sizes]
    for at, (size, number) in enumerate(zip(sizes, cards, strict=True)):
        world.add(node(f"n{at}", cpu=str(size), memory="900Gi", pods=400, cards=number, mib=CARD))
    total = sum(sizes)
    root = {"parent": "root"} if reclaims else {}
    shares = {"bit": max(1, total // 4), "most": 0, "claims": total - max(1, total // 4)}
    world.add(queue("root"), *(queue(name, deserved={"cpu": str(share)}, **root) for name, share in shares.items()))
    _fill(world, dice, sizes, cards, shares["bit"] + 1 if reclaims else 0)
    wanted = min(log_wide(dice, 1, 65), max(sizes))
    takes: Json = {"cards": log_wide(dice, 1, max(cards) + 1), "mib": CARD} if max(cards) and dice.random() < 0.4 else {}
    world.add(minding(dice)(pod("claimant", cpu=str(wanted), queue="claims" if reclaims else "most", priority=9, **takes)))
    cycle = running_cycle(world)
    scope = between_queues(cycle.framework) if reclaims else between_jobs(cycle.framework)
    return Crowd(cycle, scope, next(task for task in cycle.state.tasks.values() if task.name == "claimant"))


def _fill(world: World, dice: Random, sizes: Sequence[int], cards: Sequence[int], bit: int) -> None:
    """Pods of one CPU on every node, some with a card; the first ``bit`` of them are of that queue."""
    nodes = enumerate(zip(sizes, cards, strict=True))
    places = [(f"n{at}", slot, number) for at, (size, number) in nodes for slot in range(size)]
    dice.shuffle(places)
    while places:
        members = min(len(places), dice.choice((1, log_wide(dice, 1, 1001))))
        priority, name, minds = dice.randrange(4), f"g{len(places)}", minding(dice)
        where = QUEUES[0] if bit > 0 else QUEUES[1]
        bit -= members if bit > 0 else 0
        if members > 1:
            world.add(group(name, minimum=dice.randint(1, members), queue=where, priority_class=f"p{priority}"))
        for number in range(members):
            at, slot, held = places.pop()
            more = {"mib": CARD} if slot < held else {}
            of = name if members > 1 else None
            made = pod(f"{name}-w-{number}", cpu="1", queue=where, priority=priority, nodeName=at, group=of, **more)
            if more:
                ids = f"GPU-{at}-{slot},NVIDIA,{CARD},0:"
                made["metadata"]["annotations"] |= {
                    "volcano.sh/vgpu-node": at, "volcano.sh/vgpu-ids-new": ids, "volcano.sh/devices-to-allocate": ids,
                }  # fmt: skip
            made["status"]["phase"] = "Running"
            world.add(minds(made))


# -- who may go at most ---------------------------------------------------------------------------------------------------


def may_go(crowd: Crowd, where: str, *, unguarded: bool) -> list[Task]:
    """Single pods of a node, one after the other, the least important first, each if it may go with those before it;
    ``unguarded``: and if no budget is broken by it."""
    state, gone = crowd.cycle.state, list[Task]()
    held = (task for uid in state.ledger.by_node.get(where, {}) if (task := state.tasks.get(uid)) is not None)
    for task in sorted(held, key=importance):
        if not crowd.scope.candidate(crowd.claimant, task) or task.job is None:
            continue
        more = [*gone, task]
        of_job = [one for one in more if one.job is task.job]
        if not stands_without(task.job, of_job) or crowd.scope.spared(crowd.claimant, more):
            continue
        if not unguarded or not state.budgets.spared(more):
            gone = more
    return gone


def fits_without(crowd: Crowd, where: str, pods: Sequence[Task]) -> bool:
    statement = crowd.cycle.statement()
    gone = all(statement.evict(task, "trial") for task in pods)
    job = crowd.claimant.job
    fits = gone and job is not None and crowd.cycle.framework.allocatable(job.queue, crowd.claimant.amounts)
    fits = fits and crowd.cycle.placer.choose_future(crowd.claimant.cls, where) is not None
    statement.rollback()
    return fits


def falls(task: Task, gone: Sequence[Task]) -> bool:
    """Return whether its gang goes as a whole."""
    job = task.job
    return job is not None and len(job.tasks) > 1 and all(
        one in gone for one in job.tasks.values() if one.status in ALLOCATED_STATUSES
    )  # fmt: skip
