"""When a job is tried again is one table, and written in one place."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import pumice
from pumice.scheduler.state.scheduling_queue import TRANSITIONS, JobState, QueueEvent, SchedulingQueue, after

SOURCE = Path(pumice.__file__).parent
KEPT = {field.name for field in fields(SchedulingQueue)}
CHANGES = {"pop", "popitem", "clear", "update", "setdefault", "__setitem__", "__delitem__"}


def kept(node: ast.expr) -> bool:
    """Return whether it is a field of the scheduling queue, or something in one."""
    if isinstance(node, ast.Subscript):
        return kept(node.value)
    if not isinstance(node, ast.Attribute) or node.attr not in KEPT:
        return False
    of = node.value
    name = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
    return name == "scheduling_queue"


def writes(tree: ast.Module) -> Iterator[int]:
    """Lines that change what the scheduling queue keeps."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()) if kept(node):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in CHANGES and kept(value):
                yield node.lineno


def test_nobody_but_the_scheduling_queue_moves_a_job() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py") if path.name != "scheduling_queue.py"
        if "scheduling_queue" in (text := path.read_text())
        for line in writes(ast.parse(text))
    ]  # fmt: skip
    assert found == []


@pytest.mark.parametrize("line", [
    "state.scheduling_queue._released = True", "scheduling_queue._timed[job] = 3.0",
    "del self.state.scheduling_queue._by_class[cls]", "scheduling_queue._by_class[cls].pop(job)",
    "self.scheduling_queue.dirty.clear()", "scheduling_queue._next_due += 1",
])  # fmt: skip
def test_every_way_to_write_is_found(line: str) -> None:
    assert list(writes(ast.parse(line))) == [1]


@pytest.mark.parametrize("line", [
    "scheduling_queue._timed.get(job)", "x = scheduling_queue._by_class[cls]", "scheduling_queue.activate(job)",
    "queue._timed[0] = 1",
])  # fmt: skip
def test_reading_is_nobodys_harm(line: str) -> None:
    assert not list(writes(ast.parse(line)))


def test_every_event_has_its_row_and_no_state_is_a_dead_end() -> None:
    assert TRANSITIONS.keys() == set(QueueEvent)
    for state in set(JobState) - {JobState.ACTIVE}:
        assert after(state, QueueEvent.CHANGED) is JobState.ACTIVE
        assert any(source is not state and after(source, event) is state for source in JobState for event in QueueEvent), state


@pytest.mark.parametrize(("state", "event", "target"), [
    (JobState.BACKOFF, QueueEvent.RELEASED, JobState.BACKOFF),
    (JobState.BACKOFF, QueueEvent.DUE, JobState.ACTIVE),
    (JobState.GATED, QueueEvent.RELEASED, JobState.GATED),
    (JobState.GATED, QueueEvent.FITS, JobState.GATED),
    (JobState.UNSCHEDULABLE, QueueEvent.RELEASED, JobState.ACTIVE),
    (JobState.UNSCHEDULABLE, QueueEvent.FITS, JobState.ACTIVE),
    (JobState.RESERVED, QueueEvent.CYCLE_OPENS, JobState.ACTIVE),
    (JobState.UNSCHEDULABLE, QueueEvent.CYCLE_OPENS, JobState.UNSCHEDULABLE),
    (JobState.ACTIVE, QueueEvent.UNPLACED, JobState.UNSCHEDULABLE),
    (JobState.ACTIVE, QueueEvent.WRITE_REFUSED, JobState.BACKOFF),
])  # fmt: skip
def test_where_an_event_leads(state: JobState, event: QueueEvent, target: JobState) -> None:
    assert after(state, event) is target
