"""The parts of the cluster that queues deserve (Volcano pkg/scheduler/plugins/proportion), kept from cycle to cycle.

With a thousand queues a cycle that places one pod may read those queues only that changed, and divides by arrays.

Claims of queues on each other, and the pods of a queue that are safe from them (Volcano pkg/scheduler/plugins/proportion,
Volcano pkg/scheduler/plugins/capacity; ADR 54).

Between two queues every queue from each of them up to below their common parent has a say. Who claims, and those above, must stay
within what they deserve in everything that the new pod asks for; who loses, and those above, must hold more than they deserve of
something that it asks for. So no pod that was let in by a claim can be claimed away before its queue borrows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import Spared, Standing
from pumice.scheduler.state.jobs import QueueState, Task
from pumice.scheduler.state.resources import (
    CPU,
    MEMORY,
    PODS,
    Vector,
    add,
    amount_text,
    dimension_order,
    exceeded,
    of_claims,
    subtract,
)

Amounts = NDArray[np.int64]
"""One row per queue, one column per resource."""

MOST = 2**60


@dataclass(slots=True)
class Part:
    """One queue's part of the cluster."""

    cap: Vector
    request: Vector
    deserved: Vector = field(default_factory=dict)


@dataclass(slots=True)
class Shares:
    """The queues by row. A queue that takes no part (absent, or without jobs) asks for nothing and weighs nothing."""

    _rows: dict[QueueState, int] = field(default_factory=dict)
    _seen: list[int] = field(default_factory=list)
    """The version of each queue as it stands in the arrays."""
    _basis: Any = None
    """All else that they were made of."""
    _parts: list[Part | None] = field(default_factory=list)
    _fresh: set[QueueState] = field(default_factory=set)
    """Queues whose part has what it deserves written into it."""
    _unwritten: set[QueueState] = field(default_factory=set)
    """Queues that were read since the arrays were last needed."""
    _names: list[str] = field(default_factory=list)
    _weight: Amounts = field(default_factory=lambda: np.zeros(0, np.int64))
    _cap: Amounts = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    _request: Amounts = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    _guarantee: Amounts = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    _outside: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Queues that ask for something that no node has."""
    _deserved: Amounts = field(default_factory=lambda: np.zeros((0, 0), np.int64))

    def divide(
        self, queues: Iterable[QueueState], total: Vector, expected: Callable[[QueueState], Vector], kinds: int
    ) -> None:
        """Divide the cluster anew where anything changed. ``expected`` says what a queue's pods may come to beyond what they
        say, for these ``kinds`` of cards."""
        listed = list(queues)
        guaranteed: Vector = {}
        for queue in listed:
            if queue.guarantee:
                add(guaranteed, queue.guarantee.items())
        basis = (total, guaranteed, kinds)
        rows = self._rows
        if basis != self._basis or len(rows) != len(listed) or any(queue not in rows for queue in listed):
            self._make_room(listed, total)
            self._basis, rows = basis, self._rows
        changed = [queue for queue in listed if self._seen[rows[queue]] != queue.version]
        if not changed:
            return
        for queue in changed:
            self._read(queue, total, guaranteed, expected(queue))
        self._fresh.clear()
        taking_part = self.queues()
        if len(taking_part) == 1:  # as in most clusters: what water_fill comes to then
            self._all_to(taking_part[0], total)
            return
        for queue in self._unwritten:
            self._write(queue, total)
        self._unwritten.clear()
        self._deserved = water_fill(
            self._limits(total), self._weight, self._cap, self._request, self._guarantee, self._outside
        )

    def _all_to(self, queue: QueueState, total: Vector) -> None:
        """Give a queue that is alone what it asks for, within its limit, and its guarantee in any case."""
        part = self._parts[self._rows[queue]]
        assert part is not None
        cap, request, guarantee = part.cap, part.request, queue.guarantee
        part.deserved = {
            n: max(min(have, MOST, cap.get(n, 0), request.get(n, 0)), min(guarantee.get(n, 0), self._most(have)))
            for n, have in total.items()
        }
        part.deserved |= {n: v for n, v in guarantee.items() if n not in part.deserved and not of_claims(n)}
        self._fresh.add(queue)

    def part(self, queue: QueueState) -> Part | None:
        """Return a queue's deserved share; None when it takes no part."""
        row = self._rows.get(queue)
        part = None if row is None else self._parts[row]
        if part is not None and queue not in self._fresh:
            self._fresh.add(queue)
            part.deserved = dict(zip(self._names, self._deserved[row].tolist(), strict=True))
            part.deserved |= {n: v for n, v in queue.guarantee.items() if n not in part.deserved and not of_claims(n)}
        return part

    def queues(self) -> list[QueueState]:
        """Those that take part."""
        return [queue for queue, row in self._rows.items() if self._parts[row] is not None]

    def _make_room(self, queues: list[QueueState], total: Vector) -> None:
        count, self._names = len(queues), list(total)
        self._rows, self._unwritten = {queue: row for row, queue in enumerate(queues)}, set()
        self._seen, self._parts = [-1] * count, [None] * count
        self._weight, self._outside = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        self._cap, self._request, self._guarantee = (np.zeros((count, len(total)), np.int64) for _ in range(3))

    def _limits(self, total: Vector) -> Amounts:
        return np.array([min(total[name], MOST) for name in self._names], np.int64)

    def _read(self, queue: QueueState, total: Vector, guaranteed: Vector, expected: Vector) -> None:
        row = self._rows[queue]
        self._seen[row] = queue.version
        self._parts[row] = read_part(queue, total, guaranteed, expected) if queue.present and queue.jobs else None
        self._unwritten.add(queue)

    def _write(self, queue: QueueState, total: Vector) -> None:
        """Bring the arrays up to what was read of a queue last."""
        row = self._rows[queue]
        part = self._parts[row]
        self._weight[row] = queue.weight if part is not None else 0
        if part is None:
            self._cap[row] = self._request[row] = self._guarantee[row] = 0
            return
        # More than everything is as good as everything and one; a guarantee that all together exceed the cluster is cut.
        self._cap[row] = [min(part.cap.get(n, 0), MOST) for n in self._names]
        self._request[row] = [min(part.request.get(n, 0), total[n] + 1, MOST) for n in self._names]
        self._guarantee[row] = [min(queue.guarantee.get(n, 0), self._most(total[n])) for n in self._names]
        self._outside[row] = any(v > queue.guarantee.get(n, 0) for n, v in part.request.items() if n not in total)

    def _most(self, have: int) -> int:
        """The most that a queue may be guaranteed of what there is."""
        return min(have, MOST // len(self._rows)) + 1


def read_part(queue: QueueState, total: Vector, guaranteed: Vector, expected: Vector) -> Part:
    """Return a queue's limit and its demand."""
    cap = exceeded(total, guaranteed)
    for name in total:
        cap.setdefault(name, 0)
    add(cap, ((name, value) for name, value in queue.guarantee.items() if not of_claims(name)))
    for name, limit in queue.capability.items():
        if name in cap and (limit > 0 or name not in (CPU, MEMORY)):  # what no node has, no limit gives
            cap[name] = min(cap[name], limit)
    request = dict(queue.allocated)
    if queue.open:
        add(request, queue.pending.items())
        add(request, expected.items())
        subtract(request, queue.aside.items())
    request.pop(PODS, None)
    return Part(cap, {name: value for name, value in request.items() if not of_claims(name)})


def water_fill(
    total: Amounts, weight: Amounts, cap: Amounts, request: Amounts, guarantee: Amounts, outside: NDArray[np.bool_]
) -> Amounts:
    """Water-filling by weight until everything is given or everybody has what it asked for. Whole numbers throughout:
    ``remaining * weight // all`` in two steps, so that nothing runs over."""
    deserved = np.zeros_like(request)
    met = weight == 0
    remaining = total.copy()
    while True:
        rows = np.flatnonzero(~met)
        weights = weight[rows][:, None]
        everybody = int(weights.sum())
        if not everybody:
            return deserved
        whole, rest = np.divmod(remaining, everybody)
        offer = whole * weights + rest * weights // everybody
        old = deserved[rows]
        new = np.maximum(np.minimum(np.minimum(old + offer, cap[rows]), request[rows]), guarantee[rows])
        deserved[rows] = new
        # Who was offered nothing is not met: its part of so little was less than a thousandth, and may grow when others are.
        done = ((request[rows] <= new).all(axis=1) & ~outside[rows]) | ((new == old).all(axis=1) & offer.any(axis=1))
        met[rows] = done
        before = remaining
        remaining = np.maximum(remaining - (new - old).sum(axis=0), 0)
        if not remaining.any() or (not done.any() and bool((remaining == before).all())):
            return deserved


StandingOf = Callable[[QueueState], Standing]
Path = Sequence[QueueState]
"""A queue and those above it that have a say, the lowest first."""


def may_reclaim(path: Path, amounts: Vector, standing: StandingOf) -> bool:
    """Return whether the lowest queue may reclaim so much from any other queue (Volcano's Preemptive): with siblings it is
    alone, so it is asked alone."""
    amounts = _counted_amounts(path, amounts, standing)
    return not _over(path[0], standing(path[0]), amounts) and any(standing(each).deserved for each in path)


def not_reclaimable_victims(
    preemptor: Task, victims: Sequence[Task], path: Callable[[QueueState], Path], standing: StandingOf
) -> Spared:
    """Return the victims that stay, and why. The sums are counted down along the victims that go."""
    assert preemptor.job is not None
    mine = path(preemptor.job.queue)
    wanted = _counted_amounts(mine, preemptor.amounts, standing)
    gone: dict[QueueState, Vector] = {}
    stay: dict[str, str] = {}
    for task in victims:
        if task.job is None:
            continue
        theirs = path(task.job.queue)
        claims, loses = [each for each in mine if each not in theirs], [each for each in theirs if each not in mine]
        text = _cannot_reclaim(claims, wanted, standing)
        for each in () if text else loses:
            found = standing(each)
            left = dict(found.taken)
            subtract(left, gone.get(each, {}).items())
            text = _not_reclaimable(each, found._replace(taken=left), wanted, task.amounts)
            if text:
                break
        if text:
            stay[task.uid] = text
            continue
        for each in theirs:
            subtract(gone.setdefault(each, {}), [(name, -value) for name, value in task.amounts.items()])
    return stay


def _counted_amounts(path: Path, amounts: Vector, standing: StandingOf) -> Vector:
    """Return what counts of a pod's request: of devices by claim those classes alone of which some queue here deserves any. Else
    who names none, as before there were such quotas, could claim back nothing else either."""
    deserved = {name for each in path for name in standing(each).deserved if of_claims(name)}
    return {name: value for name, value in amounts.items() if name in deserved or not of_claims(name)}


def _cannot_reclaim(path: Path, amounts: Vector, standing: StandingOf) -> str:
    if not path:
        return "it is of the same queue"
    if not any(standing(each).deserved for each in path):
        return f"queue {path[0].name} deserves nothing, so it may only borrow"
    return next((text for each in path if (text := _over(each, standing(each), amounts))), "")


def _over(queue: QueueState, found: Standing, amounts: Vector) -> str:
    """By what so much more would bring the queue over what it deserves or may have. One that names nothing that it deserves
    claims by what those above it deserve."""
    share = deserved_part(found.deserved, amounts) if found.deserved else {}
    for limits, what in ((share, "deserves"), (found.most, "may have")):
        for name in sorted(limits.keys() & amounts.keys(), key=dimension_order):
            used, more = found.taken.get(name, 0), amounts[name]
            if more and used + more > limits[name]:
                wanted, has, most = (amount_text(name, value) for value in (more, used, limits[name]))
                return f"queue {queue.name} would claim more than it {what}: {name} {wanted} with {has} of {most} in use"
    return ""


def _not_reclaimable(queue: QueueState, found: Standing, wanted: Vector, amounts: Vector) -> str:
    """Return why the queue need not give so much up for the sake of what is wanted."""
    share = deserved_part(found.deserved, amounts)
    requested = [name for name, value in amounts.items() if value and wanted.get(name) and name != PODS]
    if not requested:
        return "it holds nothing of what is asked for"
    for name in requested:
        least = found.guarantee.get(name, 0)
        if least and found.taken.get(name, 0) - amounts[name] < least:
            return f"queue {queue.name} would fall under what it is guaranteed: {name} {amount_text(name, least)}"
    if any(found.taken.get(name, 0) > share[name] for name in requested if name in share):
        return ""
    bounded = [name for name in requested if name in share]
    if not bounded:
        return f"queue {queue.name} deserves what the pod holds, and names no share of {', '.join(requested)}"
    return f"queue {queue.name} has no more than it deserves: {_numbers(found, bounded)}"


def deserved_part(deserved: Vector, amounts: Vector) -> Vector:
    """Return the part of a pod's request that its queue deserves. What is missing in it is no matter: who deserves four cards
    is not held to none of their memory, or of the processors beside them, because it does not name them; but who names none of
    all that the pod takes deserves none of it, and who names no device deserves no device."""
    taken = [name for name, value in amounts.items() if value and name != PODS]
    named = [name for name in taken if name in deserved]
    devices = any("/" in name for name in named)
    return {
        name: deserved.get(name, 0) for name in taken
        if name in deserved or not named or ("/" in name and not devices)
    }  # fmt: skip


def _numbers(found: Standing, names: Iterable[str]) -> str:
    return ", ".join(
        f"{name} {amount_text(name, found.taken.get(name, 0))} of {amount_text(name, found.deserved.get(name, 0))}"
        for name in sorted(names, key=dimension_order)
    )
