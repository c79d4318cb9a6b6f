"""The statuses of a task: where a path leads, and what is said where none does."""

from itertools import product

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod

from pumice.scheduler.state.jobs import Job, Status, Task
from pumice.scheduler.state.tasks import MOVES, IllegalMove, Retry, by_nodes


def task_in(status: Status) -> tuple[Job, Task]:
    world = World()
    world.add(node("n1"), group("g", minimum=1), pod("a", cpu="1", group="g"))
    job = world.engine.state.jobs["default/g"]
    (task,) = job.tasks.values()
    if status is Status.BINDING:
        job.move(task, Status.ALLOCATED)
    job.move(task, status)
    return job, task


@pytest.mark.parametrize(("before", "after"), [(b, a) for b, a in product(Status, Status) if b is not a and a not in MOVES[b]])
def test_where_no_path_leads_nothing_moves_and_the_story_is_told(before: Status, after: Status) -> None:
    job, task = task_in(before)
    task.node, task.error, task.backoff = "n1", by_nodes("0/1 nodes are available"), Retry(times=3)
    counts = job.counts
    with pytest.raises(IllegalMove) as caught:
        job.move(task, after)
    assert (task.status, job.counts) == (before, counts)
    for said in ("default/a", "job default/g", "node: n1", "refused Bindings: 3", "0/1 nodes are available", before.label):
        assert said in str(caught.value)
    assert str(caught.value).endswith(f"cannot become {after.label}")


@pytest.mark.parametrize(("before", "after"), [(b, a) for b in Status for a in sorted(MOVES[b])])
def test_where_a_path_leads_the_counts_follow(before: Status, after: Status) -> None:
    job, task = task_in(before)
    job.move(task, after)
    assert [s for s in Status if job.counts[s]] == [after]


def test_a_trial_ends_before_anything_else_happens_to_its_pod() -> None:
    assert MOVES[Status.ALLOCATED] == {Status.BINDING, Status.PENDING, Status.PIPELINED}, "bound, taken back, or put by"
    assert Status.BINDING not in MOVES[Status.PIPELINED], "what was put by is on trial again before it is bound"
    assert Status.PENDING not in MOVES[Status.BOUND]
    assert Status.BINDING not in MOVES[Status.PENDING]
