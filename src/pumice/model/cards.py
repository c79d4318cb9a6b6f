"""Cards, what is used of them, and what a pod was granted. All plain values.

``Card`` holds the facts that a node registers; ``Usage`` what is booked on it; ``Allocation`` what one pod holds. A ledger
(engine) owns the mutable ``Usage`` rows; device types only read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pumice.model.refusal import Refusal


class Mode(StrEnum):
    """The sharing mode of a card. Anything that is not ``mig`` on the wire means HAMi-core (Volcano
    pkg/scheduler/api/devices/nvidia/vgpu)."""

    HAMI_CORE = "hami-core"
    MIG = "mig"
    WHOLE = "whole"  # legacy gpu-number: one pod has the card to itself
    SHARE = "share"  # legacy gpu-memory


class Card(Struct, frozen=True, gc=False):
    """One physical card as its node registered it.

    ``total`` is in memory units, ``shares`` the largest number of containers on it. ``blocked`` is empty, or the
    reason why the card takes no new pods although it still carries old ones (quarantine, no geometry, cordoned).
    ``links`` maps the index of a peer card to its NVLink width (0 or absent: none); ``numa`` is -1 when unknown.
    ``places``: the node's plugin can cut a MIG slice at a given place, outside any geometry group.
    """

    index: int
    uuid: str
    type: str
    total: int
    shares: int
    healthy: bool = True
    mode: Mode = Mode.HAMI_CORE
    blocked: str = ""
    numa: int = -1
    links: tuple[tuple[int, int], ...] = ()
    places: bool = False


IN_THE_MAKING = -1
"""The number of an NPU's slice that is placed and not made yet."""


class Slot(Struct, frozen=True, gc=False):
    """An exclusive position on a card: a MIG slot of a geometry group, or a place of an NPU template.

    ``profile`` and ``memory`` (memory units) are facts of the geometry in force when the slot was granted. An empty
    ``group`` means a slice outside the groups: ``profile`` beginning at memory slice ``number``.
    """

    group: str
    number: int
    profile: str = ""
    memory: int = 0


class ContainerDevice(Struct, frozen=True, gc=False):
    """The part of one card that one container holds.

    ``memory`` is what is charged to the ledger, ``asked`` what the annotation states (they differ for MIG, E-30).
    """

    card: int
    uuid: str
    memory: int
    cores: int
    asked: int
    slot: Slot | None = None


class Allocation(Struct, frozen=True, gc=False):
    """Everything one pod holds on one node for one device type: per *requesting* container, in container order, its pieces."""

    device_type: str
    node: str
    containers: tuple[tuple[ContainerDevice, ...], ...]
    doubts: tuple[Refusal, ...] = ()
    """Only from a replay: what the annotation claims and cannot be true. ``field`` is the UUID of the card, which is
    to be quarantined while the pod is there (D-25); the good pieces are charged all the same."""
    pending: bool = False
    """Its node's plugin has yet to say what exactly it made of this: the pod is read again whenever it changes."""
    starting: bool = False
    """Slices of it are made with the pod's containers: until all have started others may not count on their order."""
    unregistered: tuple[str, ...] = ()
    """Only from a replay: UUIDs of cards that the pod names and its node does not offer now. Nothing is charged there, and no
    claim may have them."""

    @property
    def container_devices(self) -> tuple[ContainerDevice, ...]:
        if len(self.containers) == 1:
            return self.containers[0]
        return tuple(container_device for container in self.containers for container_device in container)

    def started(self) -> Allocation:
        """Return it with its slices made."""
        containers = tuple(tuple(map(_made, container)) for container in self.containers)
        return Allocation(self.device_type, self.node, containers, self.doubts, self.pending, unregistered=self.unregistered)


def _made(device: ContainerDevice) -> ContainerDevice:
    slot = device.slot
    if slot is None or slot.number != IN_THE_MAKING:
        return device
    return replace(device, slot=replace(slot, number=0))


class Usage(Struct):
    """The sums booked on one card. ``holders`` maps pod uid to its pieces here; the counters are their sums."""

    shares: int = 0
    memory: int = 0
    cores: int = 0
    group: str = ""  # active geometry group; empty when no slot is in use (D-22)
    slots: frozenset[int] = frozenset()
    holders: dict[str, tuple[ContainerDevice, ...]] = {}


# -- What is left of a card that is cut into slices, by annotation or by claim, of a GPU or an NPU ---------------------

Request = TypeVar("Request")


def remaining(requests: Iterable[tuple[Request, float, float]], room: Callable[[Request], int]) -> float:
    """The amount that the card can still serve, in expectation over the requests to come: each with its size and how frequent it
    is taken to be. ``room`` tells how many of one sort can be cut side by side."""
    served = [(weight, size * room(request)) for request, size, weight in requests]
    return sum(weight * amount for weight, amount in served) / sum(weight for weight, _ in served)
