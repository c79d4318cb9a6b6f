"""A look at the rest of a plan of moves before its next step: the engine plays it once more from the world as it is now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pumice.scheduler.cycle.defragmenting.asking import Limits
from pumice.scheduler.cycle.defragmenting.movers import Mover, mover
from pumice.scheduler.engine import Engine
from pumice.simulation.moving import Answer, MoveView, held_at_the_end, held_during, place_of
from pumice.simulation.rehearsal import PAUSE, Objects, Rehearsal


@dataclass(frozen=True, slots=True)
class Outlook:
    """``reached``: no more need be moved. ``why`` the rest does not lead to the goal any more; empty: it does."""

    reached: bool = False
    why: str = ""


def outlook(make: Callable[[], Engine], objects: Objects, now: float, plan: Answer, done: int, moved: Sequence[str],
            limits: Limits) -> Outlook:  # fmt: skip
    """``make``: an engine that has seen the objects, in which the places that the plan holds are open. ``done``: moves that were
    carried out, ``moved``: uids of the pods that were made anew by them."""
    frees = [(free.node, free.uuid) for free in plan.frees]
    there = Rehearsal(make(), now, objects)
    if _placed(there, [*(start.uid for start in plan.starts), *moved]) and not there.busy(frees):
        return Outlook(reached=True)
    engine, rest = make(), plan.moves[done:]
    starting = [engine.state.tasks[start.uid] for start in plan.starts if start.uid in engine.state.tasks]
    below = max((max(task.priority, task.job.priority) for task in starting if task.job is not None), default=None)
    for move in rest:
        task = engine.state.tasks.get(move.uid)
        found = "it is gone" if task is None else mover(engine.state, task, now, limits.min_age, below)
        if not isinstance(found, Mover):
            return Outlook(why=f"{move.pod} is moved no more: {found}")
    stage = Rehearsal(engine, now, objects, held_during(plan, done))
    moved = list(moved)
    for step, move in enumerate(rest, done):
        stage.hold(held_during(plan, step))
        run = stage.world.restart(move.uid)
        stage.world.settle(PAUSE)
        moved.append(run.pod.metadata.uid)
        if why := _differs(stage, move, run.node, moved[-1]):
            return Outlook(why=why)
    if stage.busy(frees):
        return Outlook(why="somebody would hold the cards that shall come free")
    stage.hold(held_at_the_end(plan, len(plan.moves)))
    stage.world.settle(PAUSE)
    if not _placed(stage, [start.uid for start in plan.starts]):
        return Outlook(why=f"{plan.goal} would not start")
    return Outlook() if _placed(stage, moved) else Outlook(why="a pod that is moved would be left without a place")


def _placed(stage: Rehearsal, uids: Sequence[str]) -> bool:
    """Return whether they all have places; who is gone needs none."""
    there = {run.pod.metadata.uid: run.node for run in stage.world.runs_alive()}
    return all(there.get(uid, "gone") for uid in uids)


def _differs(stage: Rehearsal, move: MoveView, node: str, uid: str) -> str:
    """Return why a pod would not go where the plan says; empty where it does."""
    if move.waits:
        return ""
    if not node:
        return f"{move.pod} would find no place"
    same = place_of(node, stage.held(uid)) == move.target
    return "" if same else f"{move.pod} would go to {node}, elsewhere than planned"
