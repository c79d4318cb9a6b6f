"""Queues: their parent and their state (spec volcano-core 15)."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.wire.names import ROOT_QUEUE
from pumice.wire.volcano import CLOSED, CLOSING, OPEN, UNKNOWN, Queue


@dataclass(frozen=True, slots=True)
class SetParent:
    name: str
    parent: str


@dataclass(frozen=True, slots=True)
class SetState:
    name: str
    state: str


Action = SetParent | SetState


def reconcile_queue(queue: Queue, groups: int) -> list[Action]:
    """Bring one queue in order; ``groups`` is how many PodGroups it has."""
    name = queue.metadata.name
    actions: list[Action] = []
    if not queue.spec.parent and name != ROOT_QUEUE:
        actions.append(SetParent(name, ROOT_QUEUE))
    state = next_state(queue.status.state, groups)
    if state != queue.status.state:
        actions.append(SetState(name, state))
    return actions


def next_state(state: str, groups: int) -> str:
    """The state machine's column "sync": closing ends when the last PodGroup is gone."""
    if state in ("", OPEN):
        return OPEN
    if state in (CLOSED, CLOSING):
        return CLOSING if groups else CLOSED
    return UNKNOWN


def closed(groups: int) -> str:
    """The state after a wish to close."""
    return CLOSING if groups else CLOSED
