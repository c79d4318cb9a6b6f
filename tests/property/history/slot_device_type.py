"""A device type for tests only: cards with seven exclusive positions, cut by templates of one, two or four.

It stands for what MIG slices and NPU templates need of the ledger: positions that one pod holds alone, and a card that is tied
to one template until its last position is free.
"""

from __future__ import annotations

from pumice.devices.protocol import Columns, DeviceRequest, DeviceSharing, Fit, Inventory, NodeCards, Ranking, Tunables
from pumice.model.cards import Allocation, Card, ContainerDevice, Slot, Usage
from pumice.model.refusal import FitError, Refusal, Short
from pumice.wire.objects import Node, Pod

RESOURCE = "example.com/positions"
NODE_CARDS = "slots.pumice.io/position-cards"
HELD = "slots.pumice.io/positions-held"
POSITIONS = 7
TEMPLATES = (1, 2, 4)


class Positions(Ranking):
    """Tells cards apart by what is held of them, and leaves the ranking to ``fit``."""

    def vector(self, device_request: DeviceRequest, columns: Columns) -> None:
        return None

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        return sum(1 << slot for slot in usage.slots)


class SlotSharing(DeviceSharing):
    """Decides by ``fit`` alone."""

    name = "test-slots"
    ranking = Positions()

    @property
    def tunables(self) -> Tunables:
        return Tunables(count=RESOURCE)

    def resources(self) -> frozenset[str]:
        return frozenset({RESOURCE})

    def device_request(self, pod: Pod) -> DeviceRequest | Refusal | None:
        wanted = [c.resources.limits[RESOURCE] for c in pod.spec.containers if RESOURCE in c.resources.limits]
        if not wanted:
            return None
        size = int(wanted[0])
        if size not in TEMPLATES:
            return Refusal(RESOURCE, f"{size} is no template; one of {TEMPLATES}")
        return DeviceRequest(self.name, size, size)

    def resources_only(self, pod: Pod) -> bool:
        return True

    def inventory(self, node: Node) -> Inventory | None:
        count = int(node.metadata.annotations.get(NODE_CARDS, "0"))
        name = node.metadata.name
        cards = tuple(Card(i, f"P-{name}-{i}", "positions", POSITIONS, POSITIONS) for i in range(count))
        return Inventory(cards) if cards else None

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Allocation | Refusal | None:
        text = pod.metadata.annotations.get(HELD)
        if not text:
            return None
        where, _, rest = text.partition("/")
        size, _, positions = rest.partition("/")
        card = next((c for c in inventory.cards if c.uuid == where), None)
        if card is None:
            return None
        return self._allocation(node, card, int(size), [int(p) for p in positions.split(",")])

    def fit(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | FitError:
        size: int = device_request.detail
        for card, usage in zip(cards.inventory.cards, cards.usages, strict=True):
            if usage.group not in ("", str(size)):
                continue
            for start in range(0, POSITIONS - size + 1, size):
                wanted = list(range(start, start + size))
                if not usage.slots.intersection(wanted):
                    return Fit(self._allocation(cards.node, card, size, wanted), 100.0 * len(usage.slots) / POSITIONS)
        return FitError(cards.node, Short.SLOT, f"no {size} positions in a row", wanted=size)

    def annotations(self, allocation: Allocation, now_ns: int) -> dict[str, str]:
        container_devices = allocation.container_devices
        slots = [container_device.slot for container_device in container_devices if container_device.slot is not None]
        positions = ",".join(str(slot.number) for slot in slots)
        return {HELD: f"{container_devices[0].uuid}/{slots[0].group}/{positions}"}

    def quota(self, device_request: DeviceRequest) -> dict[str, int]:
        return {RESOURCE: device_request.detail}

    def _allocation(self, node: str, card: Card, size: int, positions: list[int]) -> Allocation:
        container_devices = tuple(
            ContainerDevice(card.index, card.uuid, 1, 0, 1, Slot(str(size), number)) for number in positions
        )
        return Allocation(self.name, node, (container_devices,))
