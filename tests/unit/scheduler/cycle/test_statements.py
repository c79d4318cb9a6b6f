"""The steps of a statement: who is evicted is charged until it is gone, and stays where the eviction is refused."""

from __future__ import annotations

from kit.device_world import fingerprint
from kit.engine_world import World
from kit.objects import node, pod

from pumice.effects.vocabulary import Bind, Evict
from pumice.scheduler.cycle.concluding import commit, discard
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.statement import Statement
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.tasks import Status


def full_world() -> tuple[World, Cycle, Task, Task]:
    """One card, taken by ``old``; ``new`` wants it."""
    world = World()
    world.add(node("n1", cards=1, mib=8000), pod("old", mib=8000))
    world.settle(1)
    world.set_phase("old", "Running")
    world.add(pod("new", mib=8000))
    engine = world.engine
    tasks = {task.name: task for task in engine.state.tasks.values()}
    return world, Cycle(engine.state, engine.framework, engine.placer, world.now, ""), tasks["old"], tasks["new"]


def evict_for(cycle: Cycle, old: Task, new: Task) -> Statement:
    statement = cycle.statement()
    assert cycle.placer.choose_future(new.cls) is None
    assert statement.evict(old, "to make room")
    future = cycle.placer.choose_future(new.cls)
    assert future is not None
    assert cycle.placer.choose(new.cls) is None, "what is released is promised, not given"
    statement.nominate(new, future)
    return statement


def test_an_eviction_that_is_committed_is_told_to_the_world_and_binds_nobody_before_the_room_is_free() -> None:
    _, cycle, old, new = full_world()
    statement = evict_for(cycle, old, new)
    assert new.job is not None
    commit(cycle, new.job, statement)
    assert [effect for effect in cycle.effects if isinstance(effect, Evict | Bind)] == [
        Evict(old.uid, old.namespace, old.name, "to make room")
    ]
    assert old.status is Status.RELEASING
    assert cycle.state.ledger.is_terminating(old.uid)
    for uncommitted in cycle.uncommitted:
        uncommitted.rollback()
    assert new.status is Status.PENDING
    assert not cycle.state.ledger.pipelined


def test_an_eviction_that_the_api_server_refuses_leaves_the_books_as_they_were() -> None:
    _, cycle, old, new = full_world()
    before = fingerprint(cycle.state.ledger)
    statement = evict_for(cycle, old, new)
    assert new.job is not None
    commit(cycle, new.job, statement)
    for uncommitted in cycle.uncommitted:
        uncommitted.rollback()
    assert cycle.state.terminating.refused(old.uid, 0.0) is old
    assert old.status is Status.RUNNING
    assert fingerprint(cycle.state.ledger) == before


def test_who_is_evicted_in_vain_stays_and_the_pod_remembers_where_it_would_have_gone() -> None:
    _, cycle, old, new = full_world()
    before = fingerprint(cycle.state.ledger)
    statement = evict_for(cycle, old, new)
    assert new.job is not None
    discard(cycle, new.job, statement)
    assert (old.status, new.status, new.trial) == (Status.RUNNING, Status.PENDING, (Status.PIPELINED, "n1"))
    assert fingerprint(cycle.state.ledger) == before
    assert not cycle.effects


def test_only_who_holds_a_place_for_good_can_be_evicted() -> None:
    world, cycle, old, new = full_world()
    world.add(node("n2", cards=1, mib=8000))
    statement = cycle.statement()
    assert not statement.evict(new, "it waits")
    choice = cycle.placer.choose(new.cls)
    assert choice is not None
    statement.place(new, choice)
    assert not statement.evict(new, "its place is a trial")
    assert statement.evict(old, "it runs")
    assert not statement.evict(old, "it goes already")
