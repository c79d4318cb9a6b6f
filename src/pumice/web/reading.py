"""The values of the page, read off an engine that the watches feed: its ledger is the one by which the scheduler decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pumice.devices.protocol import DeviceSharing
from pumice.model.cards import Card, Usage
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.jobs import Status, Task
from pumice.scheduler.state.ledger import GOING, Placement
from pumice.scheduler.state.node_devices import NodeDevices
from pumice.scheduler.state.resources import amount_text, dimension_order
from pumice.web.values import (
    Amount,
    CardView,
    Held,
    NodeLine,
    NodeSums,
    NodeView,
    PodLine,
    Slot,
    Summary,
    TypeLine,
    Use,
)

# -- cards -------------------------------------------------------------------------------------------------------------


def unit_of(device_type: DeviceSharing) -> tuple[str, bool]:
    """Return the unit of the family's memory, and whether it counts cores in percent."""
    tunables = device_type.tunables
    return (tunables.memory_unit if tunables.memory else "", bool(tunables.cores))


def _card(engine: Engine, device_type: DeviceSharing, book: NodeDevices, place: int, doubts: dict[int, str]) -> CardView:
    card, usage = book.inventory.cards[place], book.usages[place]
    unit, counts_cores = unit_of(device_type)
    slots = tuple(
        Slot(found.profile, found.memory, found.start, found.width,
             "" if found.holder is None else engine.state.pods.name_of(found.holder))
        for found in device_type.slots(place, book.inventory, usage)
    )  # fmt: skip
    return CardView(
        book.name, device_type.name, card.index, card.uuid, card.type, card.mode.value, card.total, unit, usage.memory,
        usage.cores, card.shares, _closed(card, doubts.get(place, "")), tuple(_held(engine, usage)), slots, counts_cores,
    )  # fmt: skip


def _closed(card: Card, doubt: str) -> str:
    return card.blocked or doubt or ("" if card.healthy else "registered as unhealthy")


def _held(engine: Engine, usage: Usage) -> Iterator[Held]:
    placements = engine.state.ledger.placements
    for uid, pieces in usage.holders.items():
        placement = placements.get(uid)
        leaving = placement is not None and placement.state in GOING
        for number, piece in enumerate(pieces):
            profile = piece.slot.profile if piece.slot is not None else ""
            yield Held(engine.state.pods.name_of(uid), number, piece.asked, piece.memory, piece.cores, profile, leaving)


def cards_of(engine: Engine, node: str) -> tuple[CardView, ...]:
    """The cards of one node, type of devices by type of devices."""
    found = []
    for table in engine.state.ledger.device_tables.values():
        book = table.nodes.get(node)
        if book is not None:
            doubts = book.quarantined() if book.doubts else {}
            found += [_card(engine, table.device_type, book, place, doubts) for place in range(len(book.usages))]
    return tuple(found)


def card_view(engine: Engine, node: str, uuid: str) -> CardView | None:
    """One card; None where the node registers no such."""
    return next((card for card in cards_of(engine, node) if card.uuid == uuid), None)


# -- nodes -------------------------------------------------------------------------------------------------------------


def node_view(engine: Engine, name: str) -> NodeView | None:
    """One node; None where there is no such."""
    ledger = engine.state.ledger
    row = ledger.table.row_of.get(name)
    facts = None if row is None else ledger.table.facts[row]
    if row is None or facts is None:
        return None
    placements = ledger.by_node.get(name, {})
    pods = sorted(engine.state.pods.name_of(uid) for uid in placements)
    table = ledger.table
    amounts = tuple(
        Amount(word, amount_text(word, int(table.used[row, column])), amount_text(word, int(table.alloc[row, column])))
        for word, column in sorted(table.dims.items(), key=lambda item: dimension_order(item[0])) if table.alloc[row, column]
    )  # fmt: skip
    return NodeView(name, cards_of(engine, name), tuple(_remarks(engine, name)), tuple(pods), amounts,
                    tuple(sorted(facts.labels.items())))  # fmt: skip


def _remarks(engine: Engine, name: str) -> Iterator[str]:
    """Return what keeps pods away from the node, and why its cards are not known."""
    ledger = engine.state.ledger
    facts = ledger.table.facts[ledger.table.row_of[name]]
    if facts is not None:
        if facts.unschedulable:
            yield "cordoned: it takes no new pods"
        for taint in facts.taints:
            yield f"taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
    books = [book for table in ledger.device_tables.values() if (book := table.nodes.get(name)) is not None]
    for book in books:
        yield from book.inventory.problems
    if not books:
        marks = [table.device_type.register for table in ledger.device_tables.values() if table.device_type.register]
        yield f"it registers no cards (no annotation {' or '.join(marks)})" if marks else "it registers no cards"


# -- the whole cluster -------------------------------------------------------------------------------------------------


class _Sums:
    """Sums over all cards of one type."""

    def __init__(self, unit: str, counts_cores: bool) -> None:
        self.unit, self.counts_cores = unit, counts_cores
        self.cards = self.free = self.closed = self.total = self.memory = self.asked = self.cores = self.held = self.over = 0


def summary(engine: Engine) -> Summary:
    """Sums by node and by type of card."""
    ledger = engine.state.ledger
    types: dict[str, _Sums] = {}
    nodes: dict[str, list[int]] = {name: [0, 0, 0, 0, 0] for name in ledger.table.row_of}
    models: dict[str, set[str]] = {name: set() for name in nodes}
    marked = {name for name in nodes if (facts := ledger.table.facts[ledger.table.row_of[name]]) is not None
              and (facts.unschedulable or facts.taints)}  # fmt: skip
    for table in ledger.device_tables.values():
        unit, counts_cores = unit_of(table.device_type)
        for name, book in table.nodes.items():
            if name not in nodes:
                continue
            doubts = book.quarantined() if book.doubts else {}
            line = nodes[name]
            if book.inventory.problems:
                marked.add(name)
            for place, (card, usage) in enumerate(zip(book.inventory.cards, book.usages, strict=True)):
                found = types.get(card.type)
                if found is None:
                    found = types[card.type] = _Sums(unit, counts_cores)
                closed = bool(card.blocked or place in doubts or not card.healthy)
                free = not usage.holders and not closed
                found.cards += 1
                found.closed += closed
                found.free += free
                found.total += card.total
                found.memory += usage.memory
                found.cores += usage.cores
                found.held += usage.shares
                found.over += usage.memory > card.total or (counts_cores and usage.cores > 100)
                found.asked += sum(piece.asked for pieces in usage.holders.values() for piece in pieces)
                for at, amount in enumerate((1, card.total, usage.memory, usage.cores, free)):
                    line[at] += amount
                models[name].add(card.type.lower())
                if closed:
                    marked.add(name)
    lines = tuple(
        NodeLine(name, sums[0], sums[1], sums[2], sums[3], sums[4], " ".join(sorted(models[name])), name in marked)
        for name, sums in sorted(nodes.items())
    )  # fmt: skip
    placed = sum(1 for placement in ledger.placements.values() if placement.allocations)
    waiting = sum(1 for task in engine.state.tasks.values() if task.status is Status.PENDING)
    return Summary(
        lines,
        tuple(
            TypeLine(name, s.unit, s.cards, s.free, s.closed, s.total, s.memory, s.asked, s.cores, s.held, s.over, s.counts_cores)
            for name, s in sorted(types.items())
        ),
        placed, waiting, tuple(device_type.name for device_type in engine.device_types),
    )  # fmt: skip


# -- pods --------------------------------------------------------------------------------------------------------------


def pod_lines(engine: Engine) -> list[PodLine]:
    """The pods that take part in scheduling or hold a part of a card, by name."""
    state = engine.state
    found = [pod_line(engine, task.uid, task.key, task) for task in state.tasks.values()]
    known = state.tasks
    for uid, placement in state.ledger.placements.items():
        if uid not in known and placement.allocations:
            found.append(pod_line(engine, uid, state.pods.name_of(uid), None))
    return sorted(found, key=lambda line: line.key)


def pod_line(engine: Engine, uid: str, key: str, task: Task | None) -> PodLine:
    """One of them. ``task`` is None for a pod of another scheduler."""
    placement = engine.state.ledger.placements.get(uid)
    held, unit = tuple(_pieces(key, placement)), ""
    if placement is not None and placement.allocations:
        units = {device_type.name: unit_of(device_type)[0] for device_type in engine.device_types}
        unit = units.get(placement.allocations[0].device_type, "")
    node = placement.node if placement is not None else ""
    if task is None:
        return PodLine(key, "", "", "placed by another scheduler", node, 0, 0.0, held, unit)
    job = task.job
    return PodLine(key, job.queue.name if job is not None else "", job.key if job is not None else "", task.status.label,
                   node or task.node, task.priority, task.created, held, unit)  # fmt: skip


def _pieces(key: str, placement: Placement | None) -> Iterator[Held]:
    for allocation in placement.allocations if placement is not None else ():
        for number, pieces in enumerate(allocation.containers):
            for piece in pieces:
                profile = piece.slot.profile if piece.slot is not None else ""
                yield Held(key, number, piece.asked, piece.memory, piece.cores, profile)


def uid_of(engine: Engine, key: str) -> str:
    """The uid of a pod by namespace/name; empty where the ledger has no such pod."""
    state = engine.state
    task = next((task for task in state.tasks.values() if task.key == key), None)
    if task is not None:
        return task.uid
    return next((uid for uid in state.ledger.placements if state.pods.name_of(uid) == key), "")


def node_sums(node: NodeView, told: Mapping[str, Use], unknown: str) -> NodeSums:
    """Add up what the pods on a node's cards asked for, are limited to, and use. ``told``: by pod, what a monitor tells."""
    cards = [card for card in node.cards if card.held]
    units = {card.unit for card in cards}
    pods = {held.pod for card in cards for held in card.held}
    known = [use for pod in sorted(pods) if (use := told.get(pod)) is not None and use.memory is not None]
    alike = len(units) == 1
    return NodeSums(
        sum(card.asked for card in cards) if alike else None, sum(card.memory for card in cards) if alike else None,
        units.pop() if alike else "", sum(use.memory or 0.0 for use in known) if known else None, len(known), len(pods),
        unknown or ("" if len(known) == len(pods) else "its monitor tells nothing of the others" if known else
                    "its monitor tells nothing of them"),
    )  # fmt: skip
