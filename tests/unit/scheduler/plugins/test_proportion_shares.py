"""How proportion divides the cluster among queues (Volcano pkg/scheduler/plugins/proportion): tables, and what holds for
every division."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.scheduler.plugins.shares import Shares
from pumice.scheduler.state.jobs import Job, QueueState
from pumice.scheduler.state.resources import Vector

Asked = tuple[int, int]
"""Weight and request."""


def divide(total: int, *queues: QueueState, **requests: int) -> dict[str, int]:
    """Deserved cpu by queue name."""
    whole: Vector = {"cpu": total}
    for queue in queues:
        queue.pending, queue.version = {"cpu": requests[queue.name]}, queue.version + 1
        queue.jobs = {Job("default/a", "default", "a", queue): None}
    shares = Shares()
    shares.divide(queues, whole, lambda queue: {}, 0)
    parts = {queue.name: shares.part(queue) for queue in queues}
    return {name: part.deserved.get("cpu", 0) for name, part in parts.items() if part is not None}


def queue(name: str, weight: int = 1, guarantee: int = 0, capability: int = 0) -> QueueState:
    made = QueueState(name, present=True, weight=weight)
    made.guarantee = {"cpu": guarantee} if guarantee else {}
    made.capability = {"cpu": capability} if capability else {}
    return made


TABLE = [
    ("by weight", divide(8000, queue("a"), queue("b", 3), a=99000, b=99000), {"a": 2000, "b": 6000}),
    ("what one does not ask for goes to the other", divide(8000, queue("a"), queue("b", 3), a=99000, b=1000),
     {"a": 7000, "b": 1000}),
    ("nobody gets more than it asks for", divide(8000, queue("a"), queue("b"), a=1000, b=2000), {"a": 1000, "b": 2000}),
    ("a capability is a lid", divide(8000, queue("a", capability=1000), queue("b"), a=99000, b=99000), {"a": 1000, "b": 7000}),
    ("a capability of nothing is none", divide(8000, queue("a"), a=99000), {"a": 8000}),
    ("a guarantee is a floor", divide(8000, queue("a", guarantee=5000), queue("b", 9), a=99000, b=99000), {"a": 5000, "b": 3000}),
    ("a guarantee holds without demand", divide(8000, queue("a", guarantee=5000), queue("b"), a=0, b=99000),
     {"a": 5000, "b": 3000}),
    ("nothing to divide", divide(0, queue("a"), a=1000), {"a": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("title", "found", "expected"), TABLE, ids=[title for title, _, _ in TABLE])
def test_division(title: str, found: dict[str, int], expected: dict[str, int]) -> None:
    assert found == expected


@given(st.integers(0, 100_000), st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100_000)), min_size=1, max_size=6))
def test_nothing_is_given_twice_and_nothing_that_is_asked_for_is_left(total: int, asked: list[Asked]) -> None:
    queues = [queue(f"q{i}", weight) for i, (weight, _) in enumerate(asked)]
    found = divide(total, *queues, **{f"q{i}": wanted for i, (_, wanted) in enumerate(asked)})
    assert sum(found.values()) <= total
    assert all(found[f"q{i}"] <= wanted for i, (_, wanted) in enumerate(asked))
    left = total - sum(found.values())
    hungry = sum(weight for i, (weight, wanted) in enumerate(asked) if found[f"q{i}"] < wanted)
    assert not hungry or left < hungry  # what whole thousandths cannot divide


@given(st.integers(1, 10**6), st.integers(1, 1000), st.integers(1, 1000))
def test_two_queues_that_ask_for_everything_stand_as_their_weights(total: int, first: int, second: int) -> None:
    found = divide(total, queue("a", first), queue("b", second), a=10**9, b=10**9)
    assert abs(found["a"] * second - found["b"] * first) <= 2 * (first + second) ** 2


def test_beside_a_queue_of_great_weight_and_little_demand_a_small_one_gets_what_is_left() -> None:
    assert divide(8000, queue("great", 10_000), queue("small"), great=1000, small=99000) == {"great": 1000, "small": 7000}


Change = tuple[int, str, int]


@given(st.integers(1, 100_000), st.integers(1, 5), st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(("pending", "allocated", "guarantee", "capability", "weight", "jobs")),
              st.integers(0, 60_000)), max_size=12))  # fmt: skip
def test_a_division_that_is_kept_from_cycle_to_cycle_equals_one_made_anew(total: int, count: int, changes: list[Change]) -> None:
    queues, kept = [queue(f"q{i}") for i in range(count)], Shares()
    whole: Vector = {"cpu": total, "memory": total * 7}
    for at, what, amount in [(i, "jobs", 1) for i in range(count)] + changes:
        changed = queues[at % count]
        changed.version += 1
        if what == "jobs":
            changed.jobs = {Job("default/a", "default", "a", changed)} if amount % 3 else set()
        elif what == "weight":
            changed.weight = 1 + amount % 9
        else:
            setattr(changed, what, {"cpu": amount, "memory": amount * 5 % 60_001})
        fresh = Shares()
        for shares in (kept, fresh):
            shares.divide(queues, whole, lambda queue: {}, 0)
        assert [kept.part(each) for each in queues] == [fresh.part(each) for each in queues]
