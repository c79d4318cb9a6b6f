"""Capability, deserved share and guarantee of each queue of a tree (Volcano pkg/scheduler/plugins/capacity), from what the
queues say.

A queue that contradicts those above it harms nobody else: what is above it holds for all below it together, and what does not
add up is said (``Allotments.remarks``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pumice.scheduler.state.groups import QueueTree
from pumice.scheduler.state.jobs import QueueState
from pumice.scheduler.state.resources import HUGE, PODS, Vector, add, amount_text, exceeded, of_claims, raise_to


@dataclass(frozen=True, slots=True)
class Allotment:
    """One queue's. ``path`` is the queue and those above it whose allotments hold for it, too, the lowest first. Of what
    ``deserved`` does not name it deserves nothing."""

    path: tuple[QueueState, ...]
    most: Vector
    guarantee: Vector
    deserved: Vector
    leaf: bool = True


@dataclass(slots=True)
class Allotments:
    """By queue."""

    of: dict[QueueState, Allotment] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    """By the name of a queue, how it contradicts those below it."""


Counts = Callable[[Vector], Vector]
"""Returns of what a queue says the amounts that count."""


def flat(queues: Iterable[QueueState], total: Vector, counts: Counts = dict) -> Allotments:
    """Every queue for itself."""
    present = [queue for queue in queues if queue.present]
    left = _left(total, (counts(queue.guarantee) for queue in present))
    return Allotments({
        queue: _allotment((queue,), left, counts(queue.capability), counts(queue.guarantee), counts(queue.deserved))
        for queue in present
    })  # fmt: skip


def nested(queues: Iterable[QueueState], tree: QueueTree, total: Vector, counts: Counts = dict) -> Allotments:
    """From the root down: what children are guaranteed is kept from their siblings, and nobody has more than his parent."""
    found = Allotments()
    present = [queue for queue in queues if queue.present]
    children: dict[QueueState | None, list[QueueState]] = {}
    for queue in present:
        parent = next((above for above in tree.above(queue) if above.present), None)
        children.setdefault(parent, []).append(queue)
    guarantee: dict[QueueState, Vector] = {}
    deserved: dict[QueueState, Vector] = {}
    for queue in sorted(present, key=lambda queue: -len(tree.above(queue))):
        below = children.get(queue, ())
        guaranteed, wanted = _sum(guarantee[child] for child in below), _sum(deserved[child] for child in below)
        own, deserves = counts(queue.guarantee), counts(queue.deserved)
        text = _beyond("are guaranteed", guaranteed, own) or _beyond("deserve", wanted, deserves)
        if text:
            found.remarks[queue.name] = f"queue {queue.name}: {text}"
        guarantee[queue] = dict(own)
        raise_to(guarantee[queue], guaranteed)
        deserved[queue] = {**wanted, **deserves}
    row: list[tuple[QueueState | None, tuple[QueueState, ...], Vector]] = [(None, (), total)]
    for parent, path, most in row:  # grows as it goes
        below = children.get(parent, ())
        left = _left(most, (guarantee[child] for child in below))
        for child in below:
            of = (child, *path)
            made = found.of[child] = _allotment(
                of, left, counts(child.capability), guarantee[child], deserved[child], leaf=child not in children
            )
            row.append((child, of, made.most))
    return found


def _allotment(
    path: tuple[QueueState, ...], left: Vector, capability: Vector, guarantee: Vector, deserved: Vector, *, leaf: bool = True
) -> Allotment:
    most = dict(left)
    add(most, ((name, value) for name, value in guarantee.items() if name in left or not of_claims(name)))
    for name, limit in capability.items():
        if name in left or of_claims(name):
            most[name] = min(bound(most, name), limit)
    share = {name: min(value, bound(most, name)) for name, value in deserved.items() if name != PODS}
    raise_to(share, {name: value for name, value in guarantee.items() if name != PODS})
    return Allotment(path, most, guarantee, share, leaf)


def bound(most: Vector, name: str) -> int:
    """Return how much of something a queue may have. Devices of claims are without bound where no queue names one: no node says
    how many there are."""
    return most.get(name, HUGE if of_claims(name) else 0)


def _left(total: Vector, guarantees: Iterable[Vector]) -> Vector:
    left = exceeded(total, _sum(guarantees))
    return {name: left.get(name, 0) for name in total}


def _sum(vectors: Iterable[Vector]) -> Vector:
    total: Vector = {}
    for vector in vectors:
        add(total, vector.items())
    return total


def _beyond(verb: str, together: Vector, own: Vector) -> str:
    """In what the children come to more than their parent, where it says how much."""
    over = [
        f"{name} {amount_text(name, together[name])}, and it {amount_text(name, value)}"
        for name, value in own.items() if together.get(name, 0) > value
    ]  # fmt: skip
    if not over:
        return ""
    return f"its children together {verb} more than it is given: {'; '.join(over)}; its own holds for all of them together"
