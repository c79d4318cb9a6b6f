"""Legacy GPU share (memory mode) and GPU number (whole cards) as a device type.

Both modes use the lowest card ids, take no account of policies and score 0. A card's "UUID" is its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pumice.devices.protocol import Columns, DeviceRequest, DeviceSharing, Fit, Inventory, NodeCards, Ranking, Tunables
from pumice.model.amount import INT32_MAX
from pumice.model.cards import Allocation, Card, ContainerDevice, Mode
from pumice.model.refusal import CardFitError, FitError, Refusal, Short
from pumice.wire import names
from pumice.wire.nvidia_gpushare import parse_index, parse_unhealthy, render_binding
from pumice.wire.objects import Container, Node, Pod, is_admitted, is_mirror
from pumice.wire.quantity import out_of_range, round_up

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ANY_NUMBER = 2**20
"""Share limit of a card in memory mode, where only memory limits the number of pods."""

MAX_CARDS = 1024
"""More cards than any machine has; a larger ``gpu-number`` is a mistake that must not fill our memory."""


@dataclass(frozen=True, slots=True)
class GpushareRequest:
    """A request for legacy shares. ``amount`` is memory units on one card, or a number of whole cards."""

    amount: int


class NvidiaGpushare(DeviceSharing):
    """One of the two legacy modes; upstream forbids both at once, and locks nodes in the first one only."""

    def __init__(self, *, number: bool = False) -> None:
        self.number = number
        self.name = "nvidia-gpu-number" if number else "nvidia-gpu-share"
        self.lock = "" if number else names.NODE_LOCK_GPUSHARE
        self.ranking = GpushareRanking(number)
        self._resource = names.GPU_NUMBER if number else names.GPU_MEMORY

    @property
    def tunables(self) -> Tunables:
        if self.number:
            return Tunables(count=names.GPU_NUMBER, rounds_up=True)
        return Tunables(memory=names.GPU_MEMORY, rounds_up=True)

    def resources(self) -> frozenset[str]:
        return frozenset((self._resource,))

    def device_request(self, pod: Pod) -> DeviceRequest | Refusal | None:
        """The larger of what runs together (containers and sidecars, D-41) and each init container at its time."""
        together, peak = 0, 0
        for container in pod.spec.init_containers:
            amount = self._amount(container)
            if isinstance(amount, Refusal):
                return amount
            if container.restart_policy == "Always":
                together += amount
            else:
                peak = max(peak, together + amount)  # runs beside the sidecars that started before it
        for container in pod.spec.containers:
            amount = self._amount(container)
            if isinstance(amount, Refusal):
                return amount
            together += amount
        amount = max(together, peak)
        if amount > INT32_MAX:
            return Refusal(self._resource, f"all containers together ask for {amount}, beyond {INT32_MAX}")
        return DeviceRequest(self.name, amount, GpushareRequest(amount)) if amount > 0 else None

    def resources_only(self, pod: Pod) -> bool:
        return True

    def _amount(self, container: Container) -> int | Refusal:
        text = container.resources.limits.get(self._resource, 0)
        try:
            value = round_up(text)
        except ValueError:
            value = -1
        if 0 <= value <= INT32_MAX:
            return value
        where = f"container {container.name!r}: {self._resource}"
        return Refusal(where, out_of_range(text, value, memory=not self.number))

    def inventory(self, node: Node) -> Inventory | None:
        """Cards 0 to number-1 of equal memory, from the node's capacity; unhealthy ids take no new pods."""
        capacity = node.status.capacity
        if names.GPU_MEMORY not in capacity or names.GPU_NUMBER not in capacity:
            return None
        name = node.metadata.name
        try:
            memory, count = round_up(capacity[names.GPU_MEMORY]), round_up(capacity[names.GPU_NUMBER])
        except ValueError as error:
            return Inventory(problems=(f"node {name}: {error}",))
        if count <= 0:
            return None
        if count > MAX_CARDS or not 0 <= memory < 2**53:
            return Inventory(problems=(f"node {name} claims {count} cards and memory {memory}; ignored",))
        unhealthy = parse_unhealthy(node.metadata.annotations.get(names.NODE_GPU_UNHEALTHY_IDS))
        mode, limit = (Mode.WHOLE, 1) if self.number else (Mode.SHARE, ANY_NUMBER)
        cards = (Card(i, str(i), "NVIDIA", memory // count, limit, i not in unhealthy, mode) for i in range(count))
        return Inventory(tuple(cards))

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Allocation | Refusal | None:
        """The cards of ``gpu-index``; ids that do not exist are ignored. The index may be set by hand (E-62). A pod that the
        kubelet has admitted holds as many as it asks for, known or not."""
        device_request = self.device_request(pod)
        if pod.spec.node_name != node or not isinstance(device_request, DeviceRequest) or is_mirror(pod):
            return None
        ids = parse_index(pod.metadata.annotations.get(names.GPU_INDEX)) or ()
        known = [i for i in dict.fromkeys(ids) if 0 <= i < len(inventory.cards)]
        if is_admitted(pod) and len(known) < (device_request.detail.amount if self.number else 1):
            return Refusal("", f"pod {pod.key} holds cards and {names.GPU_INDEX} does not say which")
        return self._allocation(node, device_request.detail, known, inventory) if known else None

    def fit(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | FitError:
        want: GpushareRequest = device_request.detail
        if not cards.inventory.cards:
            return self.no_devices(cards.node)
        wanted = want.amount if self.number else 1
        chosen: list[int] = []
        for card in cards.inventory.cards:
            if len(chosen) < wanted and self._fit_error(want, card, cards) is None:
                chosen.append(card.index)
        if len(chosen) == wanted:
            return Fit(self._allocation(cards.node, want, chosen, cards.inventory), 0.0)
        return self._explain(want, cards, len(chosen))

    def _fit_error(self, want: GpushareRequest, card: Card, cards: NodeCards) -> CardFitError | None:
        usage = cards.usages[card.index]
        if reason := cards.quarantined.get(card.index):
            return CardFitError(card.uuid, Short.QUARANTINE, detail=reason)
        if not card.healthy:
            return CardFitError(card.uuid, Short.HEALTH, detail="listed in volcano.sh/gpu-unhealthy-ids")
        if self.number:
            if usage.shares:
                return CardFitError(card.uuid, Short.SHARES, 1, 0, "a pod has the card")
            return None
        idle = max(0, card.total - usage.memory)
        if idle < want.amount:
            return CardFitError(card.uuid, Short.MEMORY, want.amount, idle, f"wants {want.amount}, {idle} is free")
        return None

    def _explain(self, want: GpushareRequest, cards: NodeCards, fitting: int) -> FitError:
        all_cards = cards.inventory.cards
        found = (self._fit_error(want, card, cards) for card in all_cards)
        fit_errors = tuple(fit_error for fit_error in found if fit_error is not None)
        healthy = [card for card in all_cards if card.healthy]
        if self.number:
            final = len(healthy) < want.amount
            text = "GpuNumber no enough gpu number"
            return FitError(cards.node, Short.COUNT, text, want.amount, fitting, final, fit_errors)
        best = max((fit_error.best for fit_error in fit_errors), default=0)
        final = all(card.total < want.amount for card in healthy)
        text = "GpuShare no enough gpu memory"
        return FitError(cards.node, Short.MEMORY, text, want.amount, best, final, fit_errors)

    def _allocation(self, node: str, want: GpushareRequest, chosen: list[int], inventory: Inventory) -> Allocation:
        """One part for the whole pod: the legacy wire knows no containers. A whole card is charged with its memory."""
        cards = inventory.cards
        container_devices = []
        for i in chosen:
            memory = cards[i].total if self.number else want.amount
            container_devices.append(ContainerDevice(i, cards[i].uuid, memory, 0, memory))
        return Allocation(self.name, node, (tuple(container_devices),))

    def annotations(self, allocation: Allocation, now_ns: int) -> dict[str, str]:
        return render_binding((container_device.card for container_device in allocation.container_devices), now_ns)

    def quota(self, device_request: DeviceRequest) -> dict[str, int]:
        return {self._resource: device_request.detail.amount}

    def least_memory(self, device_request: DeviceRequest) -> int:
        return 0 if self.number else int(device_request.detail.amount)

    def no_devices(self, node: str) -> FitError:
        word = "GpuNumber no enough gpu number" if self.number else "GpuShare no enough gpu memory"
        return FitError(node, Short.NO_DEVICES, f"{word}: no cards on the node", final=True)


@dataclass(frozen=True, slots=True)
class GpushareRanking(Ranking):
    """The score of nodes for legacy shares. ``number``: whole cards, else memory of one."""

    number: bool

    def vector(self, device_request: DeviceRequest, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        amount: int = device_request.detail.amount
        if self.number:
            may = (columns.flags & (columns.shares == 0)).sum(axis=1) >= amount
        else:
            may = (columns.flags & ((columns.total - columns.memory).clip(0) >= amount)).any(axis=1)
        return may, may * 0.0
