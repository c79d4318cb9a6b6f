"""The scheduler's half of the toy device type: what each must say to the engine, and a few of its words for lint and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tests.scenarios.toy_device_type.words import (
    ASSIGNED,
    CARD,
    CARDS,
    LOCK,
    NAME,
    NAMES,
    RESOURCE,
    SERVED,
    parse,
    render,
)

from pumice.devices.protocol import DeviceRequest, DeviceSharing, Fit, Inventory, NodeCards, Series, Tunables
from pumice.model.cards import Allocation, Card, ContainerDevice
from pumice.model.refusal import CardFitError, FitError, Refusal, Short
from pumice.wire.objects import Node, Pod


class ToySharing(DeviceSharing):
    """Takes the first card with enough slices."""

    name = NAME
    lock = LOCK
    register = CARDS
    series = Series("toy_card", "toy_card_own")
    allocation_keys = (ASSIGNED, SERVED)
    tunables = Tunables(count=RESOURCE, rounds_up=True)
    steering: Mapping[str, tuple[str, ...]] = MappingProxyType({CARD: NAMES})

    def resources(self) -> frozenset[str]:
        return frozenset((RESOURCE,))

    def device_request(self, pod: Pod) -> DeviceRequest | Refusal | None:
        written = [str(c.resources.limits[RESOURCE]) for c in pod.spec.containers if RESOURCE in c.resources.limits]
        if not all(text.isdecimal() for text in written):
            return Refusal(RESOURCE, f"{', '.join(written)}: slices are counted in whole numbers")
        key = sum(map(int, written)), pod.metadata.annotations.get(CARD, "")
        return DeviceRequest(self.name, key, key) if key[0] else None

    def inventory(self, node: Node) -> Inventory | None:
        found = parse(node.metadata.annotations.get(CARDS, ""))
        cards = (Card(at, name, "toy", slices, slices) for at, (name, slices) in enumerate(found.items()))
        return Inventory(tuple(cards)) if found else None

    def fit(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | FitError:
        slices, wanted = device_request.detail
        fit_errors = []
        for card, usage in zip(cards.inventory.cards, cards.usages, strict=True):
            idle = card.total - usage.memory
            if wanted not in ("", card.uuid):
                fit_errors.append(CardFitError(card.uuid, Short.TYPE, detail=f"is not {wanted}"))
            elif idle < slices:
                fit_errors.append(CardFitError(card.uuid, Short.MEMORY, slices, idle))
            else:
                return Fit(self._allocation(cards.node, card, slices), 0.0)
        best = max((fit_error.best for fit_error in fit_errors), default=0)
        return FitError(cards.node, Short.MEMORY, "toy: too few slices", slices, best, cards=tuple(fit_errors))

    def annotations(self, allocation: Allocation, now_ns: int) -> dict[str, str]:
        return {
            ASSIGNED: render(
                {container_device.uuid: container_device.memory for container_device in allocation.container_devices}
            )
        }

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Allocation | Refusal | None:
        held = parse(handed or pod.metadata.annotations.get(ASSIGNED, ""))
        found = [self._allocation(node, card, held[card.uuid]) for card in inventory.cards if card.uuid in held]
        return found[0] if found and pod.spec.node_name == node else None

    def quota(self, device_request: DeviceRequest) -> dict[str, int]:
        return {RESOURCE: device_request.detail[0]}

    def _allocation(self, node: str, card: Card, slices: int) -> Allocation:
        return Allocation(self.name, node, ((ContainerDevice(card.index, card.uuid, slices, 0, slices),),))
