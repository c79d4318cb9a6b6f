"""capacity: queues deserve what they say, borrow what is idle, and keep what they are guaranteed (Volcano
pkg/scheduler/plugins/capacity).

With ``enableHierarchy`` the queues are a tree: whoever takes something takes it from every queue above it, too, and pods run in
the leaves.

Capability, deserved share and guarantee of each queue of a tree (Volcano pkg/scheduler/plugins/capacity), from what the
queues say.

A queue that contradicts those above it harms nobody else: what is above it holds for all below it together, and what does not
add up is said (``Allotments.remarks``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice.scheduler.plugins.capability import ClaimQuotas, short_text
from pumice.scheduler.plugins.contract import (
    PERMIT,
    REJECT,
    Allocatable,
    HierarchicalQueueOrder,
    JobEnqueueable,
    Preemptive,
    QueueShares,
    Reclaimable,
    Session,
    Spared,
    Standing,
)
from pumice.scheduler.plugins.shares import may_reclaim, not_reclaimable_victims
from pumice.scheduler.state.groups import QueueTree, together
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.resources import (
    HUGE,
    PODS,
    Vector,
    add,
    amount_text,
    dimension_order,
    exceeded,
    of_claims,
    raise_to,
)
from pumice.scheduler.state.tasks import by_queue
from pumice.wire.names import ROOT_QUEUE
from pumice.wire.scheduler_conf import Arguments


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


MOST_LEVELS = 1000
"""All queues above one have a say in reclaim, unless the configuration bounds them."""


class Capacity(HierarchicalQueueOrder, JobEnqueueable, Allocatable, Preemptive, Reclaimable, QueueShares):
    name = "capacity"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._tree = QueueTree()
        self._made = Allotments()
        self._levels = max(0, arguments.integer("ancestorReclaimLevel", MOST_LEVELS))
        self._quotas = ClaimQuotas.of(arguments)
        self._kept = Kept(self._made, self.usage)
        self._total: Vector = {}
        self._basis: tuple[QueueTree, int, Vector] | None = None

    def open(self, session: Session) -> None:
        """Divide the cluster anew where the queues or the nodes changed."""
        state = session.state
        tree = state.groups.tree
        total = {n: v for n, v in state.ledger.table.total.items() if n != PODS}
        basis = (tree, tree.version, total)
        if basis != self._basis:
            self._tree, self._basis = tree, basis
            queues = state.queues.values()
            counts = self._quotas.within
            self._made = nested(queues, tree, total, counts) if self.hierarchical else flat(queues, total, counts)
            self._kept, self._total = Kept(self._made, self.usage), total
            self._kept.recount(queues)
            state.groups.remark("capacity", self._made.remarks)

    def usage(self, queue: QueueState) -> Vector:
        """Return the amount that counts against its allotment."""
        return self._tree.taken(queue) if self.hierarchical else together(queue.allocated, queue.awaited)

    # -- orders -------------------------------------------------------------------------------------------------

    def queue_order_key(self, queue: QueueState) -> tuple[Any, ...]:
        found = self._made.of.get(queue)
        if found is None:
            return ()
        return tuple([(-each.priority, self.share(each), not self._made.of[each].deserved) for each in reversed(found.path)])

    def branches(self, queue: QueueState) -> Sequence[QueueState]:
        found = self._made.of.get(queue)
        return () if found is None else found.path[::-1]

    def share(self, queue: QueueState) -> float:
        """The largest part that it uses of anything that it deserves."""
        found = self._made.of.get(queue)
        if found is None or not found.deserved:
            return 1.0
        usage = self.usage(queue)
        return max(
            usage.get(name, 0) / value if value else float(usage.get(name, 0) > 0) for name, value in found.deserved.items()
        )

    # -- limits -------------------------------------------------------------------------------------------------

    def allocatable(self, queue: QueueState, amounts: Vector) -> bool:
        found = self._made.of.get(queue)
        if not queue.open or found is None or not found.leaf:
            return False
        for each in found.path:
            usage, most = self.usage(each), self._made.of[each].most
            for name, value in amounts.items():
                if value and name != PODS and usage.get(name, 0) + value > bound(most, name):
                    return False
        return not self._kept_for_others(queue, amounts)[1]

    def short_of(self, queue: QueueState, amounts: Vector) -> str:
        found = self._made.of.get(queue)
        if found is None:
            return ""
        if text := self._shut(queue, found):
            return text
        for each in found.path:
            most = self._made.of[each].most
            text = short_text(self.usage(each), {name: bound(most, name) for name in amounts}, amounts)
            if text:
                return text if each is queue else f"queue {each.name} above it, {text}"
        above, name = self._kept_for_others(queue, amounts)
        if not name:
            return ""
        wanted, kept = (amount_text(name, value) for value in (amounts[name], self._kept.below[above][name]))
        where = f" below queue {above.name}" if above is not None else ""
        return f"{name}: {wanted} wanted, what is left is guaranteed to other queues{where} ({kept} of it unused)"

    def job_enqueueable(self, job: Job) -> int:
        found = self._made.of.get(job.queue)
        text = self._shut(job.queue, found)
        if text:
            job.refusal = by_queue(text)
            return REJECT
        if job.min_resources is None or found is None:
            return PERMIT
        for each in found.path:
            most, own = self._made.of[each].most, "" if each is job.queue else f" (in queue {each.name} above it)"
            short = [n for n, v in job.min_resources.items()
                     if v > 0 and n != PODS and v + self._spoken_for(each, n) > bound(most, n)]  # fmt: skip
            if short:
                words = ", ".join(f"insufficient {name}" for name in sorted(short, key=dimension_order))
                job.refusal = by_queue(f"queue resource quota insufficient: {words}{own}")
                return REJECT
        return PERMIT

    def _kept_for_others(self, queue: QueueState, amounts: Vector) -> tuple[QueueState | None, str]:
        if not self._kept.any:
            return None, ""
        self._kept.recount(self._tree.take_moved())
        return self._kept.refuses(queue, amounts, self._tree.all_taken(), self._total)

    def _spoken_for(self, queue: QueueState, name: str) -> int:
        if self.hierarchical:
            return self._tree.spoken_for(queue, name)
        return queue.allocated.get(name, 0) + queue.inqueue.get(name, 0) - queue.elastic.get(name, 0)

    # -- reclaim ------------------------------------------------------------------------------------------------

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        found = self._made.of.get(queue)
        if found is None or self._shut(queue, found):
            return False
        return may_reclaim(self._path(queue), task.amounts, self.standing)

    def not_reclaimable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        return not_reclaimable_victims(preemptor, victims, self._path, self.standing)

    def _path(self, queue: QueueState) -> Sequence[QueueState]:
        """The queue and those above it whose shares count between two queues: all but the root, which is everybody's."""
        found = self._made.of.get(queue)
        path = (queue,) if found is None else found.path[: 1 + self._levels]
        return [each for each in path if each.name != ROOT_QUEUE]

    def standing(self, queue: QueueState) -> Standing:
        found = self._made.of.get(queue)
        if found is None:
            return Standing(self.usage(queue), {}, {}, {})
        return Standing(self.usage(queue), found.most, found.deserved, found.guarantee)

    # -- both ---------------------------------------------------------------------------------------------------

    def _shut(self, queue: QueueState, found: Allotment | None) -> str:
        """Return why nothing of it starts at all."""
        if not queue.open:
            return queue.closed_text
        if found is not None and not found.leaf:
            return f"queue {queue.name} has queues below it; with plugin capacity and enableHierarchy pods run in the lowest only"
        return ""


# -- What queues are guaranteed and do not use ------------------------------------------------------------------------

# It is kept from all others, at every level of the tree.

Held = Callable[[QueueState], Vector]


@dataclass(slots=True)
class Kept:
    """By queue what of its guarantee is not in use, below it or by itself. ``None`` stands for above all queues."""

    made: Allotments
    usage: Held
    unmet: dict[QueueState, Vector] = field(default_factory=dict)
    below: dict[QueueState | None, Vector] = field(default_factory=dict)
    """The sum of unused guarantees of a queue's children."""

    @property
    def any(self) -> bool:
        return bool(self.below)

    def recount(self, queues: Iterable[QueueState]) -> None:
        """Recompute what these queues and all above them hold."""
        known = [(found, queue) for queue in queues if (found := self.made.of.get(queue)) is not None and found.guarantee]
        for found, queue in sorted(known, key=lambda each: -len(each[0].path)):
            usage, below, before = self.usage(queue), self.below.get(queue, {}), self.unmet.get(queue, {})
            after = {name: max(below.get(name, 0), value - usage.get(name, 0), 0) for name, value in found.guarantee.items()}
            if after != before:
                self.unmet[queue] = after
                parent = self.below.setdefault(_parent(found), {})
                add(parent, ((name, value - before.get(name, 0)) for name, value in after.items()))

    def refuses(self, queue: QueueState, amounts: Vector, all_usage: Vector, total: Vector) -> tuple[QueueState | None, str]:
        """Above which queue so much more for this one would be taken from what others are guaranteed, and of which resource;
        no resource where it would not."""
        path = self.made.of[queue].path
        for name, value in amounts.items():
            if not value or name == PODS:
                continue
            drawn = min(value, self.unmet.get(queue, {}).get(name, 0))
            for each in (*path[1:], None):
                if drawn == value:
                    break  # it takes what was kept for it
                usage = all_usage if each is None else self.usage(each)
                most = total if each is None else self.made.of[each].most
                below = self.below.get(each, {}).get(name, 0)
                if below and usage.get(name, 0) + below + value - drawn > bound(most, name):
                    return each, name
                if each is not None:
                    before = self.unmet.get(each, {}).get(name, 0)
                    wanting = self.made.of[each].guarantee.get(name, 0) - usage.get(name, 0) - value
                    drawn = before - max(below - drawn, wanting, 0)
        return None, ""


def _parent(found: Allotment) -> QueueState | None:
    return found.path[1] if len(found.path) > 1 else None
