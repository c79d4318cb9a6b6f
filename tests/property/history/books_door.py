"""Histories on the engine that also look inside it: its books equal those of an engine that has seen the objects only, nothing is
remembered that a fresh look would not find, and when all is gone nothing is left.
"""

from __future__ import annotations

from random import Random
from typing import Any

from kit.device_world import fingerprint
from kit.fake_cluster import Json, merged
from tests.property.history.engine_door import EngineDoor
from tests.property.history.registry import Op
from tests.property.history.slot_device_type import NODE_CARDS, RESOURCE, SlotSharing

from pumice.model.cards import Allocation
from pumice.scheduler.engine import Engine
from pumice.scheduler.placing.placer import Placer
from pumice.scheduler.state.jobs import Status, Task
from pumice.scheduler.state.ledger import PlacementState
from pumice.scheduler.state.state import State

HOLDING = (Status.BINDING, Status.BOUND, Status.RUNNING, Status.UNKNOWN)


class BooksDoor(EngineDoor):
    """Promises that only the engine's own books can show; ``books`` is the word for them."""

    async def look(self) -> None:
        await super().look()
        state = self.engine.state
        self._only_what_was_sent_is_held(state)
        self._an_eviction_taken_back_leaves_nothing(state)
        self._a_fresh_look_finds_the_same(self.engine)
        if not (self.deaf or self.assumed or self.checker.unclear):  # annotations of a running pod do not move its cards
            self._the_books_equal_rebuilt_ones(state)

    async def end(self) -> None:
        """Draining the cluster gives everything back."""
        self.deaf = False
        self._list()
        for key in list(self.store.tables["Pod"]):
            self.store.delete("Pod", key)
        ledger = self.engine.state.ledger
        if self.engine.state.nominations.kept or ledger.pipelined:
            self._complain("a place is promised although no pod is left")
        used = [u for device_table in ledger.device_tables.values() for node in device_table.nodes.values() for u in node.usages]
        if ledger.placements or ledger.table.used.any() or ledger.table.releasing.any():
            self._complain("something is held although no pod is left")
        if any(u.holders or u.memory or u.shares or u.cores or u.slots or u.group for u in used):
            self._complain("a card is used although no pod is left")

    def _complain(self, text: str) -> None:
        self.checker.complain("books", text)

    def _only_what_was_sent_is_held(self, state: State) -> None:
        """Between cycles no trial is left on the books, no promise but those that await somebody who goes, and every status has
        its holding."""
        ledger = state.ledger
        kept = state.nominations.kept
        if any(h.state is PlacementState.RESERVED and uid not in kept for uid, h in ledger.placements.items()):
            self._complain("a trial is left on the books")
        if ledger.pipelined.keys() != kept.keys() or {u for there in ledger.nominated.values() for u in there} != kept.keys():
            self._complain("a promise is left on the books")
        for uid, found in kept.items():
            hope = [other for other in kept.values() if other.task.job is found.task.job and other.awaits]
            if not (hope or found.task.job in state.nominations.ripe or found.task.job in state.terminating.gang_searches):
                self._complain(f"{found.task.key} was promised a place and awaits nobody")
            if any(not ledger.is_terminating(awaited) for awaited in found.awaits):
                self._complain(f"{found.task.key} awaits {sorted(found.awaits)}, not all of whom go ({uid})")
        for task in state.tasks.values():
            holds = task.status in HOLDING or task.uid in kept or (task.status is Status.RELEASING and bool(task.node))
            if holds != (task.uid in ledger.placements):
                self._complain(f"{task.key} is {task.status.name} and {'has no' if holds else 'has a'} holding")

    def _an_eviction_taken_back_leaves_nothing(self, state: State) -> None:
        ledger = state.ledger
        held = sorted(uid for uid, h in ledger.placements.items() if h.state is PlacementState.CONFIRMED)[:2]
        before = fingerprint(ledger)
        receipts = [ledger.terminate(uid) for uid in held]
        for receipt in reversed(receipts):
            if receipt is not None:
                ledger.undo(receipt)
        if fingerprint(ledger) != before:
            self._complain("an eviction that was taken back left something")

    def _a_fresh_look_finds_the_same(self, engine: Engine) -> None:
        fresh = Placer(engine.state, engine.framework)
        for cls in {task.cls for task in engine.state.tasks.values() if task.status is Status.PENDING}:
            mine, theirs = engine.placer.choose(cls), fresh.choose(cls)
            if (mine and (mine.node, mine.allocations)) != (theirs and (theirs.node, theirs.allocations)):
                who = next(task.key for task in engine.state.tasks.values() if task.cls is cls)
                self._complain(f"{who} would go to {mine and mine.node}, by a fresh look to {theirs and theirs.node}")

    def _the_books_equal_rebuilt_ones(self, mine: State) -> None:
        if any(_lost(mine, held.node, allocation) for held in mine.ledger.placements.values() for allocation in held.allocations):
            return  # what is held of cards that are gone is remembered
        if mine.nominations.kept:
            return  # a scheduler that has seen the objects only knows of nominations, and holds nothing for them
        if any(_outlives(mine, task) for task in mine.tasks.values()):
            return  # and so is what its queue pays for them
        theirs = self._rebuilt().state
        again = fingerprint(theirs.ledger)
        for part, value in fingerprint(mine.ledger).items():
            if again[part] != value:
                self._complain(f"{part}: {value}, from the objects {again[part]}")
        away = {h.node for h in mine.ledger.placements.values()} - mine.ledger.table.row_of.keys()
        if not away and _sums(mine) != _sums(theirs):
            self._complain(f"queues: {_sums(mine)}, from the objects {_sums(theirs)}")

    def _rebuilt(self) -> Engine:
        mine = self.engine, self.enter, self.handlers, self.reported
        try:
            self._start()
            return self.engine
        finally:
            self.engine, self.enter, self.handlers, self.reported = mine


class SlotDoor(BooksDoor):
    """The same over a device type of exclusive positions and templates, which stands for MIG slices and NPU templates."""

    device_types = [SlotSharing()]  # noqa: RUF012

    async def perform(self, op: Op) -> None:
        if op["do"] == "create" and op["object"]["kind"] in ("Node", "Pod"):
            op = {**op, "object": _with_positions(op["object"], Random(op["object"]["metadata"]["name"]))}
        await super().perform(op)

    async def look(self) -> None:
        self.checker.slow = dict.fromkeys((p["metadata"]["uid"] for p in self.store.tables["Pod"].values()), float("inf"))
        await super().look()  # whether positions in a row are left is not the checker's to say


def _with_positions(obj: Json, rng: Random) -> Json:
    if obj["kind"] == "Node":
        found: Json = merged(obj, {"metadata": {"annotations": {NODE_CARDS: "2"}}, "status": {"allocatable": {RESOURCE: "14"}}})
        return found
    wanted = {RESOURCE: str(rng.choice((1, 2, 4, 1, 2, 3)))}
    containers: list[Any] = [{**c, "resources": {"limits": wanted, "requests": wanted}} if number == 0 else {**c, "resources": {}}
                             for number, c in enumerate(obj["spec"]["containers"])]  # fmt: skip
    changed: Json = merged(obj, {"spec": {"containers": containers}})
    return changed


def _lost(state: State, node: str, allocation: Allocation) -> bool:
    """Return whether the grant names a card that its node has no more."""
    devices = state.ledger.device_tables[allocation.device_type].nodes.get(node)
    uuids = {card.uuid for card in devices.inventory.cards} if devices is not None else set()
    return any(
        container_device.uuid not in uuids
        for container_devices in allocation.containers
        for container_device in container_devices
    )


def _outlives(state: State, task: Task) -> bool:
    """Return whether its queue is charged for cards that nobody shows any more."""
    held = state.ledger.placements.get(task.uid)
    return task.charged is not None and not (held and any(allocation.container_devices for allocation in held.allocations))


def _sums(state: State) -> dict[str, Any]:
    return {queue.name: (queue.allocated, queue.pending) for queue in state.queues.values() if queue.jobs}
