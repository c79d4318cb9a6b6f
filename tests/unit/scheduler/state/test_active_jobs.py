"""A line of jobs, kept while jobs come, go and change, is the sorted list of those that stand in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pumice.scheduler.state.active_jobs import SPARE, ActiveJobs, JobHeap
from pumice.scheduler.state.jobs import Job, QueueState

QUEUE = QueueState("q")
STEPS = st.lists(st.tuples(st.sampled_from(["line up", "drop", "take", "line up", "take"]), st.integers(0, 9), st.integers(0, 3)),
                 max_size=60)  # fmt: skip


def jobs(count: int) -> list[Job]:
    return [Job(f"default/j{i}", "default", f"j{i}", QUEUE) for i in range(count)]


@given(STEPS)
def test_the_first_is_the_least_key_and_of_equal_ones_who_was_lined_up_first(steps: list[tuple[str, int, int]]) -> None:
    line, known, model = JobHeap(), jobs(10), list[tuple[int, int, Job]]()
    for number, (step, which, key) in enumerate(steps):
        job = known[which]
        if step == "take":
            if model:
                expected = min(model, key=lambda entry: entry[:2])
                assert line.first is expected[2]
                assert line.take() is expected[2]
                model.remove(expected)
            continue
        model = [entry for entry in model if entry[2] is not job]
        line.drop(job)
        if step == "line up":
            line.line_up(job, key)
            model.append((key, number, job))
        assert set(line) == {entry[2] for entry in model}
        assert len(line) == len(model)


def test_a_job_that_changes_its_place_for_ever_leaves_nothing_behind() -> None:
    line, (job, other) = JobHeap(), jobs(2)
    line.line_up(other, 0)
    for key in range(10_000):
        line.line_up(job, key)
    assert len(line._heap) <= 2 * len(line) + SPARE + 1


def test_who_was_tried_or_changed_is_fresh_until_given_a_place() -> None:
    active, (a, b) = ActiveJobs(), jobs(2)
    active.join(a)
    active.join(b)
    for job in (a, b):
        active.line_up(job, lambda job: job.name)
    assert not active.fresh
    assert active.take() is a
    assert list(active.fresh) == [a]
    active.renew(b)
    assert list(active.fresh) == [a, b]
    active.leave(a)
    active.renew(a)
    assert list(active) == list(active.fresh) == [b]
