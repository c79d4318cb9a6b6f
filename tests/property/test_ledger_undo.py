"""Undo by receipt restores the books bit for bit, whatever was done in between and in whatever order (Volcano
installer/helm/chart); so does going
back to a mark of a statement, of its pods, jobs and queues too."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.device_world import fingerprint
from kit.engine_world import ALL_PLUGINS, World
from kit.objects import group, node, pod, queue
from tests.property.history.slot_device_type import NODE_CARDS, RESOURCE, SlotSharing

from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.statement import Mark, Statement
from pumice.scheduler.plugins.contract import Allocatable
from pumice.scheduler.state.jobs import Job, QueueState
from pumice.scheduler.state.ledger import Placement, Receipt
from pumice.scheduler.state.tasks import Status
from pumice.wire.objects import Pod, convert

VGPU_SHAPES: list[dict[str, Any]] = [
    {"mib": 3000}, {"mib": 5000, "cores": 60}, {"cards": 2, "mib": 2000}, {"cards": 1}, {"cpu": "3"},
]  # fmt: skip
SLOT_SHAPES: list[dict[str, Any]] = [{"limits": {RESOURCE: size}} for size in ("1", "2", "4")]


def world_of(slots: bool) -> World:
    world = World(ALL_PLUGINS, device_types=[SlotSharing()] if slots else None)
    for name in ("n1", "n2"):
        made = node(name, cpu="8", extra={RESOURCE: "14"}) if slots else node(name, cards=2, mib=8000, shares=3, cpu="8")
        if slots:
            made["metadata"]["annotations"][NODE_CARDS] = "2"
        world.add(made)
    return world


def picture(world: World) -> Any:
    """Everything that decisions look at, arrays included; numbers of states may differ, what they stand for may not."""
    ledger = world.engine.state.ledger
    cards = {}
    for name, device_table in ledger.device_tables.items():
        for where, row in ledger.table.row_of.items():
            state = device_table.state_of(row)
            cards[name, where] = [getattr(device_table.states.columns, column)[state].tolist()
                                  for column in ("memory", "cores", "shares", "flags", "state")]  # fmt: skip
    return fingerprint(ledger), cards


@settings(deadline=None)
@given(
    slots=st.booleans(),
    before=st.lists(st.integers(0, 4), max_size=4),
    trial=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_a_trial_that_is_taken_back_leaves_no_trace(slots: bool, before: list[int], trial: list[int], order: Any) -> None:
    world = world_of(slots)
    shapes = SLOT_SHAPES if slots else VGPU_SHAPES
    world.add(*(pod(f"b{i}", **shapes[pick % len(shapes)]) for i, pick in enumerate(before)))
    world.settle(1)
    was = picture(world)
    engine = world.engine
    receipts: list[Receipt] = []
    for number, pick in enumerate(trial):
        incoming = convert(Pod, pod(f"t{number}", **shapes[pick % len(shapes)]))
        cls = engine.state.classes.of(incoming)
        choice = engine.placer.choose(cls)
        if choice is not None:
            features = engine.state.classes.kind(incoming).features
            receipts.append(engine.state.ledger.reserve(
                Placement(incoming.metadata.uid, choice.node, cls.request, choice.allocations, features=features)))  # fmt: skip
    order.shuffle(receipts)
    for receipt in receipts:
        engine.state.ledger.undo(receipt)
    assert picture(world) == was
    assert not engine.state.ledger.table.pipelined.any()


@settings(deadline=None)
@given(picks=st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_what_the_filter_passes_on_an_unchanged_node_is_what_is_booked(picks: list[int]) -> None:
    """Filter and allocate agree (Volcano installer/helm/chart), and no counter is ever negative."""
    world = world_of(slots=False)
    for number, pick in enumerate(picks):
        incoming = pod(f"p{number}", **VGPU_SHAPES[pick])
        world.add(incoming)
        task = world.engine.state.tasks[incoming["metadata"]["uid"]]
        expected = world.engine.placer.choose(task.cls)
        world.cycle()
        placement = world.engine.state.ledger.placements.get(task.uid)
        if expected is None:
            assert placement is None
        elif placement is not None:
            assert (placement.node, placement.allocations) == (expected.node, expected.allocations)
        for device_table in world.engine.state.ledger.device_tables.values():
            for name in ("memory", "cores", "shares"):
                assert np.all(getattr(device_table.states.columns, name) >= 0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["place", "promise", "evict", "lift", "mark", "rollback"]), st.integers(0, 30)), max_size=25
)


def gangs_in_two_queues(slots: bool, bound: list[int], going: int) -> World:
    """Some pods run and the first of them are going; a gang waits in each queue, and one lacks members. One pod fits nowhere."""
    world = world_of(slots)
    shapes = SLOT_SHAPES if slots else VGPU_SHAPES
    world.add(queue("parent", capability={"cpu": "12"}), queue("q1", parent="parent", capability={"cpu": "9"}), queue("q2"))
    world.add(group("r", minimum=1, queue="q1"))
    world.add(*(pod(f"r{i}", group="r", **shapes[pick % len(shapes)]) for i, pick in enumerate(bound)))
    world.settle(1)
    for i in range(min(going, len(bound))):
        if world.node_of(f"r{i}"):
            world.terminate(f"r{i}")
    world.add(group("a", minimum=2, queue="q1"), group("b", minimum=2, queue="q2"), group("lacks", minimum=3, queue="q2"))
    for gang, size in (("a", 4), ("b", 3), ("lacks", 2)):
        world.add(*(pod(f"{gang}{i}", group=gang, **shapes[i % len(shapes)]) for i in range(size)))
    world.add(pod("unresolvable", group="b", cpu="1"))
    for task in world.engine.state.tasks.values():
        if task.name == "unresolvable" and task.job is not None:
            task.job.set_unresolvable(task, True)
    engine = world.engine
    for plugin in engine.framework.plugins:
        plugin.open(Cycle(engine.state, engine.framework, engine.placer, world.now, ""))
    return world


def whole_picture(world: World) -> Any:
    """The books, and of pods, jobs and queues what is counted or summed; what the queues' limits say to it."""
    state = world.engine.state
    pods = {
        task.key: (task.status, task.node, task.charged, task.unresolvable, task.uid in task.job.pending)
        for task in state.tasks.values()
        if task.job is not None
    }

    def counted(job: Job) -> Any:
        return (job.counts, job.ready_count, job.runnable, job.stalled, job.pending_best_effort, dict(job.allocated),
                job.is_ready(), framework.job_valid(job))  # fmt: skip

    def summed(amounts: dict[str, int]) -> dict[str, int]:
        return {name: value for name, value in amounts.items() if value}

    def limits(found: QueueState) -> Any:
        """Check the plugins' counts by how much more they allow."""
        steps = range(0, 17_000, 1000)
        return [(plugin.may_borrow(found, {"cpu": n}), plugin.allocatable(found, {"cpu": n})) for n in steps for plugin in payers]

    framework = world.engine.framework
    payers = [plugin for plugin in framework.plugins if isinstance(plugin, Allocatable)]
    queues = {
        found.name: ([summed(sums) for sums in (found.allocated, found.pending, found.aside, found.inqueue, found.elastic)],
                     dict(found.quota_known_late), set(found.waiters), state.charges.expected(found),
                     framework.overused(found), *limits(found))
        for found in state.queues.values()
    }  # fmt: skip
    return picture(world), pods, {job.key: counted(job) for job in state.jobs.values()}, queues


@settings(deadline=None)
@given(slots=st.booleans(), bound=st.lists(st.integers(0, 4), max_size=6), going=st.integers(0, 2), steps=STEPS)
def test_going_back_to_a_mark_leaves_ledger_jobs_and_queues_as_they_were(
    slots: bool, bound: list[int], going: int, steps: list[tuple[str, int]]
) -> None:
    world = gangs_in_two_queues(slots, bound, going)
    engine = world.engine
    statement = Statement(engine.state, engine.framework)
    marks: list[tuple[Mark, Any]] = [(statement.mark(), whole_picture(world))]
    for step, pick in steps:
        tasks = sorted(engine.state.tasks.values(), key=lambda task: task.key)
        waiting = [task for task in tasks if task.status is Status.PENDING]
        placed = [task for task in tasks if task.uid in engine.state.ledger.placements]
        match step:
            case "place" if waiting:
                task = waiting[pick % len(waiting)]
                choice = engine.placer.choose(task.cls)
                if choice is not None:
                    statement.place(task, choice)
                    assert task.status is Status.ALLOCATED
            case "promise" if waiting:
                task = waiting[pick % len(waiting)]
                choice = engine.placer.choose_future(task.cls)
                if choice is not None:
                    statement.nominate(task, choice)
                    assert task.status is Status.PIPELINED
            case "evict" if placed:
                task = placed[pick % len(placed)]
                if statement.evict(task, "to make room"):
                    assert task.status is Status.RELEASING
                    assert engine.state.ledger.is_terminating(task.uid)
            case "lift" if placed:
                statement.lift(placed[pick % len(placed)].uid)
            case "mark":
                marks.append((statement.mark(), whole_picture(world)))
            case "rollback":
                place = pick % len(marks)
                del marks[place + 1 :]
                mark, was = marks[place]
                statement.rollback(mark)
                assert whole_picture(world) == was
    statement.rollback()
    assert whole_picture(world) == marks[0][1]
    assert not engine.state.ledger.table.pipelined.any()
