"""The state of queues, for people: what each deserves, is guaranteed and may have, and what it uses, borrows and waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields

from msgspec.structs import replace

from pumice.devices.protocol import DeviceRequest, NodeCards
from pumice.model.errors import BadInput
from pumice.scheduler.engine import Engine
from pumice.scheduler.plugins.shares import deserved_part
from pumice.scheduler.state.jobs import ALLOCATED_STATUSES, Job, QueueState, Status, Task
from pumice.scheduler.state.node_devices import NodeDevices
from pumice.scheduler.state.resources import PODS, Vector, add, dimension_order, exceeded, subtract
from pumice.scheduler.state.state import State
from pumice.scheduler.state.waiting import Waiting
from pumice.wire.names import CARD_POLICY, NODE_POLICY, ROOT_QUEUE
from pumice.wire.volcano import OPEN


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue, with all that is below it in ``used``, ``waiting`` and the numbers of pods. ``most`` is what is left to it by
    its own capability, those above it and what others are guaranteed. ``depth`` is how many stand above it."""

    name: str
    parent: str
    depth: int
    state: str
    weight: int
    running: int
    pending: int
    guarantee: Vector
    deserved: Vector
    capability: Vector
    most: Vector
    used: Vector
    borrowed: Vector
    waiting: Vector
    remarks: tuple[str, ...] = ()
    cards: tuple[CardUse, ...] = ()
    """By type of card, what it holds and how many of its pods wait for one."""
    jobs: tuple[tuple[str, int, str], ...] = ()
    """Jobs that wait, the first one first: key, pods, and why."""
    held_up_by: tuple[tuple[str, str, int], ...] = ()
    """Resources that it waits for and has less of than it deserves, with the queues that borrow them: (resource, queue, amount),
    of each resource the largest first."""

    def resources(self) -> list[str]:
        """Those of which it has something to say, in the order of naming."""
        said = (self.guarantee, self.deserved, self.capability, self.used, self.waiting)
        return sorted({name for each in said for name in each}, key=dimension_order)


def queue_views(engine: Engine, now: float) -> list[QueueView]:
    """All queues that have an object, parents before their children, as they stand after a cycle: only then is it known why their
    jobs wait, and which of their pods no node can ever hold, for which a queue deserves nothing."""
    engine.cycle_for_answers(now)
    engine.open_cycle(now)
    return views_as_they_are(engine)


def views_as_they_are(engine: Engine) -> list[QueueView]:
    """The same, as the plugins have shared the cluster out last."""
    tree = engine.state.groups.tree
    present = [queue for queue in engine.state.queues.values() if queue.present]
    order = {queue: (*(each.name for each in reversed(tree.above(queue))), queue.name) for queue in present}
    below: dict[QueueState, list[QueueState]] = {queue: [] for queue in present}
    for queue in present:
        for each in (queue, *tree.above(queue)):
            below.setdefault(each, []).append(queue)
    types = CardTypes(engine.state)
    views = [_view(engine, queue, below[queue], types) for queue in sorted(present, key=lambda queue: order[queue])]
    borrowers = _borrowers(views)
    paths = {queue.name: order[queue] for queue in present}
    return [with_fields(view, held_up_by=tuple(_held_up(view, borrowers, paths))) for view in views]


def _borrowers(views: Sequence[QueueView]) -> dict[str, list[tuple[int, QueueView]]]:
    """By resource who borrows how much, the largest first: the lowest queues that do, what is above them borrows the same."""
    above = {(view.parent or ROOT_QUEUE, name) for view in views for name in view.borrowed}
    found: dict[str, list[tuple[int, QueueView]]] = {}
    for view in views:
        for name, amount in view.borrowed.items():
            if (view.name, name) not in above:
                found.setdefault(name, []).append((amount, view))
    return {name: sorted(each, key=lambda one: (-one[0], one[1].name)) for name, each in found.items()}


def _held_up(view: QueueView, borrowers: Mapping[str, Sequence[tuple[int, QueueView]]], paths: Mapping[str, Sequence[str]]
             ) -> Iterator[tuple[str, str, int]]:  # fmt: skip
    """``paths``: the queues above each, and itself."""
    for name in sorted(view.waiting, key=dimension_order):
        if view.used.get(name, 0) < view.deserved.get(name, 0):
            for amount, other in borrowers.get(name, ()):
                if view.name not in paths[other.name]:
                    yield name, other.name, amount


def queue_view(engine: Engine, name: str, now: float) -> QueueView:
    """One of them. Raises BadInput when there is no such queue."""
    found = {view.name: view for view in queue_views(engine, now)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise BadInput(f"no queue {name}; there are: {known}")
    return found[name]


def _view(engine: Engine, queue: QueueState, subtree: Iterable[QueueState], types: CardTypes) -> QueueView:
    tree, shares = engine.state.groups.tree, engine.framework.knows_shares
    used, waiting = _shown(tree.taken(queue)), dict[str, int]()
    jobs: list[Job] = []
    running = 0
    for each in subtree:
        add(waiting, each.pending.items())
        subtract(waiting, each.aside.items())
        running += sum(job.allocated_count for job in each.jobs)
        jobs += each.waiters
    found = shares.standing(queue) if shares is not None else None
    deserved = _shown(found.deserved) if found is not None else {}
    remarks = (engine.state.problems.get(f"Queue {queue.name}", ""), "" if queue.open else queue.closed_text, _policies(queue))
    return QueueView(
        queue.name, queue.parent, len(tree.above(queue)), queue.state or OPEN, queue.weight, running,
        sum(len(job.pending) for job in jobs), _shown(queue.guarantee), deserved, dict(queue.capability),
        {} if found is None else _shown(found.most), used, {} if found is None else _borrowed(used, deserved), _shown(waiting),
        tuple(filter(None, remarks)), types.of(subtree),
        tuple((job.key, len(job.pending), Waiting(job).whole.text) for job in sorted(jobs, key=engine.framework.job_order_key)),
    )  # fmt: skip


def _policies(queue: QueueState) -> str:
    levels = ((NODE_POLICY, "between nodes"), (CARD_POLICY, "on a node"))
    said = [f"{word} {queue.policies[key]}" for key, word in levels if key in queue.policies]
    return f"card policy of pods that name none: {', '.join(said)}" if said else ""


def _borrowed(used: Vector, deserved: Vector) -> Vector:
    limits = deserved_part(deserved, used)
    return exceeded({name: used[name] for name in limits}, limits)


def _shown(vector: Vector) -> Vector:
    return {name: value for name, value in vector.items() if value and name != PODS}


# -- What queues hold of each type of cards, and which types their waiting pods could take ----------------------------


@dataclass(frozen=True, slots=True)
class CardUse:
    """One queue's part of the cards of one type, with all that is below it. ``used`` counts cards by their memory."""

    type: str
    total: int
    used: float
    shares: int
    waiting: int
    """Pods that wait and could have such a card if it were free; one that could have several types counts at each."""


@dataclass(slots=True)
class CardTypes:
    """The cards of the cluster by type."""

    state: State
    totals: dict[str, int] = field(default_factory=dict)
    _empty: dict[tuple[str, str], dict[Hashable, NodeCards]] = field(default_factory=dict)
    """By device type and model: the nodes with such cards, alike ones once, with nothing on them and all other models closed."""
    _takes: dict[DeviceRequest, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for device_type, device_table in self.state.ledger.device_tables.items():
            for node in device_table.nodes.values():
                for type_ in {card.type for card in node.inventory.cards}:
                    self._read(device_type, type_, node)

    def _read(self, device_type: str, type_: str, node: NodeDevices) -> None:
        mine = [card for card in node.inventory.cards if card.type == type_]
        self.totals[type_] = self.totals.get(type_, 0) + len(mine)
        others = {card.index: "another type" for card in node.inventory.cards if card.type != type_}
        view = NodeDevices.empty(node.name, node.inventory).view()
        alike = tuple(sorted((card.mode.name, card.total, card.shares) for card in mine))
        self._empty.setdefault((device_type, type_), {}).setdefault(alike, replace(view, quarantined=others))

    def of(self, queues: Iterable[QueueState]) -> tuple[CardUse, ...]:
        """Types of which they hold anything, or for which pods of theirs wait."""
        used, shares, waiting = Counter[str](), Counter[str](), Counter[str]()
        for task in (task for queue in queues for job in queue.jobs for task in job.tasks.values()):
            if task.status in ALLOCATED_STATUSES:
                for type_, millis in self._held(task):
                    used[type_] += millis
                    shares[type_] += 1
            elif task.status is Status.PENDING:
                waiting.update({type_ for device_request in task.cls.device_requests for type_ in self._may_take(device_request)})
        return tuple(
            CardUse(type_, self.totals[type_], used[type_] / 1000, shares[type_], waiting[type_])
            for type_ in sorted(shares.keys() | waiting.keys())
        )

    def _held(self, task: Task) -> Iterator[tuple[str, int]]:
        """Its pieces: of which type, and what part of a card, in thousandths."""
        ledger = self.state.ledger
        placement = ledger.placements.get(task.uid)
        for allocation in placement.allocations if placement is not None else ():
            node = ledger.device_tables[allocation.device_type].nodes.get(task.node)
            for container_device in allocation.container_devices if node is not None else ():
                if node is not None and (place := node.by_uuid.get(container_device.uuid)) is not None:
                    card = node.inventory.cards[place]
                    yield card.type, round(1000 * container_device.memory / card.total) if card.total else 0

    def _may_take(self, device_request: DeviceRequest) -> tuple[str, ...]:
        found = self._takes.get(device_request)
        if found is None:
            takes = self.state.ledger.device_tables[device_request.device_type].device_type.quick
            found = self._takes[device_request] = tuple(
                type_ for (device_type, type_), nodes in self._empty.items()
                if device_type == device_request.device_type
                and any(takes(device_request, cards) is not None for cards in nodes.values())
            )  # fmt: skip
        return found
