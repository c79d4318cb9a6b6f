"""One node's cards and what is booked on each, exactly: who holds what. The arithmetic of the ledger, without arrays.

``pumice run`` decides with these alone; the scheduler's ledger (``cards``) repeats their sums as arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pumice.devices.protocol import NO_MARKS, Inventory, Marks, NodeCards
from pumice.model.cards import Allocation, ContainerDevice, Slot, Usage
from pumice.model.refusal import Refusal

CardFacts = tuple[int, int, bool, bool, int]
CardUse = tuple[int, int, int, int]
_NOBODY: dict[str, tuple[ContainerDevice, ...]] = {}
"""The holders of every empty card: replaced, never changed."""


@dataclass(slots=True)
class NodeDevices:
    """One node's cards. ``marks`` maps pod uid to its marks, ``doubts`` to what its annotations claim and cannot be true:
    such a card takes no new pods while the pod is there (D-25)."""

    name: str
    inventory: Inventory
    usages: list[Usage]
    marks: dict[str, Marks] = field(default_factory=dict)
    doubts: dict[str, tuple[Refusal, ...]] = field(default_factory=dict)
    by_uuid: dict[str, int] = field(default_factory=dict)
    facts: tuple[CardFacts, ...] = ()
    version: int = 0
    """Raised by every change of usage (rendered metrics are kept by it)."""

    def quarantined(self) -> dict[int, str]:
        """Card index to the first doubt about it; a doubt that names no card of ours closes them all."""
        found: dict[int, str] = {}
        for doubts in self.doubts.values():
            for quarantine in doubts:
                place = self.by_uuid.get(quarantine.field)
                for index in range(len(self.usages)) if place is None else (place,):
                    found.setdefault(index, quarantine.text)
            if len(found) == len(self.usages):
                break
        return found

    @classmethod
    def empty(cls, name: str, inventory: Inventory) -> NodeDevices:
        """The book of a node on which nothing is booked yet."""
        by_uuid = {card.uuid: place for place, card in enumerate(inventory.cards)}
        return cls(name, inventory, [Usage(holders=_NOBODY) for _ in inventory.cards], by_uuid=by_uuid)

    def view(self, *, without: Iterable[str] = (), plus: Mapping[str, Allocation] | None = None) -> NodeCards:
        """The node as ``DeviceSharing.fit`` sees it. ``without`` and ``plus`` make the future view of pipelining: as if those
        pods were gone and those grants there."""
        if without or plus:
            return _future(self, without, plus or {}).view()
        return NodeCards(self.name, self.inventory, self.usages, self.marks, self.quarantined() if self.doubts else {})

    def memory_left(self, without: Iterable[str], plus: Iterable[Allocation]) -> int:
        """Return what would be left of the cards' memory without those pods and with those grants."""
        left = [card.total - usage.memory for card, usage in zip(self.inventory.cards, self.usages, strict=True)]
        for uid in without:
            for place, usage in enumerate(self.usages):
                left[place] += sum(container_device.memory for container_device in usage.holders.get(uid, ()))
        for allocation in plus:
            for container_device in allocation.container_devices:
                if (card := self.by_uuid.get(container_device.uuid)) is not None:
                    left[card] -= container_device.memory
        return sum(max(0, amount) for amount in left)

    def charge(self, uid: str, allocation: Allocation, marks: Marks = NO_MARKS) -> tuple[int, ...]:
        """Book a grant; the places of the cards that changed. Pieces on cards that are not registered (any more) are not
        charged anywhere."""
        by_card = _by_card(self, allocation)
        for place, container_devices in by_card.items():
            _book(self.usages[place], uid, container_devices)
        if by_card and marks != NO_MARKS:
            self.marks[uid] = marks
        if allocation.doubts:
            self.doubts[uid] = allocation.doubts
        return tuple(by_card)

    def quarantine(self, holder: str, doubts: tuple[Refusal, ...]) -> bool:
        """Close cards to new pods, by their UUIDs, for as long as that holder, which is no pod, has something of them. Return
        whether that is new."""
        before = self.doubts.get(holder, ())
        if doubts:
            self.doubts[holder] = doubts
        else:
            self.doubts.pop(holder, None)
        return before != doubts

    def remark(self, uid: str, allocation: Allocation, marks: Marks) -> None:
        """Take over other marks of a pod that holds something here."""
        self.marks.pop(uid, None)
        if marks != NO_MARKS and _by_card(self, allocation):
            self.marks[uid] = marks

    def discharge(self, uid: str) -> tuple[tuple[int, ...], bool]:
        """The exact reverse of ``charge``: (places of the cards that changed, whether a doubt went too)."""
        places = tuple(place for place, usage in enumerate(self.usages) if uid in usage.holders)
        for place in places:
            _unbook(self.usages[place], uid)
        self.marks.pop(uid, None)
        return places, self.doubts.pop(uid, None) is not None


def _by_card(node_devices: NodeDevices, allocation: Allocation) -> dict[int, tuple[ContainerDevice, ...]]:
    found: dict[int, tuple[ContainerDevice, ...]] = {}
    container_devices = allocation.container_devices
    if len(container_devices) == 1:
        place = node_devices.by_uuid.get(container_devices[0].uuid)
        return {} if place is None else {place: container_devices}
    for container_device in container_devices:
        place = node_devices.by_uuid.get(container_device.uuid)
        if place is not None:
            found[place] = (*found.get(place, ()), container_device)
    return found


def _book(usage: Usage, uid: str, container_devices: tuple[ContainerDevice, ...]) -> None:
    if not usage.holders:
        usage.holders = {}
    allocated = usage.holders.get(uid)
    usage.holders[uid] = container_devices if allocated is None else (*allocated, *container_devices)
    for container_device in container_devices:
        usage.shares += 1
        usage.memory += container_device.memory
        usage.cores += container_device.cores
        # a slice outside the groups stands in ``holders`` alone
        if container_device.slot is not None and container_device.slot.group:
            usage.slots |= {container_device.slot.number}
            # a place that is promised beside one of another cut changes no cut yet
            usage.group = usage.group or container_device.slot.group


def _unbook(usage: Usage, uid: str) -> None:
    for container_device in usage.holders.pop(uid):
        usage.shares -= 1
        usage.memory -= container_device.memory
        usage.cores -= container_device.cores
    slots: list[Slot] = [p.slot for allocated in usage.holders.values() for p in allocated if p.slot is not None and p.slot.group]
    usage.slots = frozenset([slot.number for slot in slots])
    if not usage.holders:
        usage.holders = _NOBODY
    usage.group = slots[-1].group if slots else ""  # an emptied card is free for any geometry again (D-22)


def _future(node_devices: NodeDevices, without: Iterable[str], plus: Mapping[str, Allocation]) -> NodeDevices:
    usages = [
        Usage(u.shares, u.memory, u.cores, u.group, u.slots, dict(u.holders)) for u in node_devices.usages
    ]
    without = frozenset(without)
    doubts = {uid: doubts for uid, doubts in node_devices.doubts.items() if uid not in without}
    copy = NodeDevices(node_devices.name, node_devices.inventory, usages, dict(node_devices.marks), doubts, node_devices.by_uuid)
    for uid in without:
        for usage in usages:
            if uid in usage.holders:
                _unbook(usage, uid)
    for uid, allocation in plus.items():
        if allocation.doubts:
            doubts[uid] = allocation.doubts
        for place, container_devices in _by_card(copy, allocation).items():
            _book(usages[place], uid, container_devices)
    return copy
