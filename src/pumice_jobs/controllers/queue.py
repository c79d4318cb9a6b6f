"""Queues: their parent, their state, and what Commands do to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pumice.effects.vocabulary import Event, Patch, Severity
from pumice.wire.names import ROOT_QUEUE
from pumice.wire.volcano import CLOSED, CLOSED_BY_PARENT, CLOSING, OPEN, QUEUES, SCHEDULING_API, UNKNOWN, Queue

OPEN_QUEUE, CLOSE_QUEUE = "OpenQueue", "CloseQueue"


Action = Patch | Event


def set_parent(name: str, parent: str) -> Patch:
    return Patch(QUEUES, "", name, {"spec": {"parent": parent}})


def set_state(name: str, state: str) -> Patch:
    return Patch(QUEUES, "", name, {"status": {"state": state}}, subresource="status")


def mark_closed_by_parent(name: str, *, closed: bool) -> Patch:
    """Remember on the queue that it was closed with its parent and opens with it, or forget that."""
    return Patch(QUEUES, "", name, {"metadata": {"annotations": {CLOSED_BY_PARENT: "true" if closed else None}}})


def event(queue: Queue, type_: Severity, reason: str, message: str) -> Event:
    return Event("Queue", SCHEDULING_API, "", queue.metadata.name, queue.metadata.uid, type_, reason, message)


def reconcile_queue(queue: Queue, groups: int) -> list[Action]:
    """Bring one queue in order; ``groups`` is how many PodGroups it has."""
    name = queue.metadata.name
    actions: list[Action] = []
    if not queue.spec.parent and name != ROOT_QUEUE:
        actions.append(set_parent(name, ROOT_QUEUE))
    state = next_state(queue.status.state, groups)
    if state != queue.status.state:
        actions.append(set_state(name, state))
    return actions


def next_state(state: str, groups: int) -> str:
    """Return the state that follows by itself: closing ends when the last PodGroup is gone, and what somebody closed stays
    closed whatever lives in it."""
    if state in ("", OPEN):
        return OPEN
    if state == CLOSING:
        return CLOSING if groups else CLOSED
    return CLOSED if state == CLOSED else UNKNOWN


def command(action: str, name: str, queues: Mapping[str, Queue], groups: Callable[[str], int]) -> list[Action]:
    """Carry a Command out on a queue that exists; ``groups`` counts the PodGroups of a queue."""
    if action == OPEN_QUEUE:
        parent = queues[name].spec.parent or ROOT_QUEUE
        if name != ROOT_QUEUE and parent in queues and queues[parent].status.state in (CLOSED, CLOSING):
            text = f"Open queue failed: its parent {parent} is {queues[parent].status.state}"
            return [event(queues[name], "Warning", OPEN_QUEUE, text)]
        return [act for each in _family(name, queues, _closed_with_parent) for act in _opened(queues[each])]
    if action == CLOSE_QUEUE:
        if name == ROOT_QUEUE:
            return [event(queues[name], "Warning", CLOSE_QUEUE, "Close queue failed: the root of all queues cannot be closed")]
        actions: list[Action] = []
        for each in _family(name, queues, is_open):
            if each != name:
                actions.append(mark_closed_by_parent(each, closed=True))
            actions.append(set_state(each, CLOSING if groups(each) else CLOSED))
        return [*actions, event(queues[name], "Normal", CLOSE_QUEUE, "Close queue succeed")]
    text = f"action {action!r} is none of a queue; {OPEN_QUEUE} and {CLOSE_QUEUE} are"
    return [event(queues[name], "Warning", "UnknownCommand", text)]


def _opened(queue: Queue) -> list[Action]:
    name = queue.metadata.name
    marked: list[Action] = [mark_closed_by_parent(name, closed=False)] if _closed_with_parent(queue) else []
    return [*marked, set_state(name, OPEN)]


def _closed_with_parent(queue: Queue) -> bool:
    return queue.metadata.annotations.get(CLOSED_BY_PARENT) == "true"


def is_open(queue: Queue) -> bool:
    """Return whether a queue takes PodGroups; a queue whose state nobody has written yet does."""
    return queue.status.state in ("", OPEN)


def _family(name: str, queues: Mapping[str, Queue], goes_along: Callable[[Queue], bool]) -> list[str]:
    """The queue and those of its descendants that go along with it, parents first."""
    found = [name]
    for at in found:  # grows as it goes
        found += [
            child for child, queue in queues.items()
            if queue.spec.parent == at and child not in found and goes_along(queue)
        ]  # fmt: skip
    return found
