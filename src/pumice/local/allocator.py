"""Decide which cards of this machine a request gets: the device types' fit over the ledger of one node.

The node value is rendered by the code that the device plugin registers a node with, and every booking is replayed as the
pod that it would be in a cluster. No rule of its own is here; the words for people are in ``refusals``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from msgspec import Struct, structs

from pumice.adapters.bookings.book import Booking
from pumice.devices.nvidia_vgpu.node.inventory import hollow_node
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import DeviceRequest, Fit
from pumice.local.request import AUTO, Request
from pumice.model.cards import Allocation, Card, ContainerDevice, Mode, Usage
from pumice.model.errors import BadInput
from pumice.model.refusal import Refusal
from pumice.ports.cards import CardFacts
from pumice.scheduler.state.node_devices import NodeDevices
from pumice.wire import names
from pumice.wire.objects import Container, Meta, Node, Pod, PodSpec, Resources, convert

NODE = "this-machine"
IN_SLICES = "in MIG mode: its slices are shares already, `nvidia-smi -L` lists them"
SHARES = 63
"""Programs on one card: as many as the file by which they see each other's activity has entries (HAMi-core
src/multiprocess/multiprocess_utilization_watcher.c)."""


class Refused(BadInput):
    """The request does not fit now: who holds the rest, and what would fit. One or few lines."""


class Allocator:
    """The books of this machine at one moment. Deciding changes nothing in them."""

    def __init__(self, facts: Sequence[CardFacts], bookings: Iterable[Booking]) -> None:
        self._facts = {card.uuid: card for card in facts}
        self.bookings = {booking.id: booking for booking in bookings}
        self._device_type = NvidiaVgpu()
        inventory = self._device_type.inventory(convert(Node, hollow_node(NODE, facts, Sharing(split=SHARES))))
        assert inventory is not None, "a machine without cards"
        self._devices = NodeDevices.empty(NODE, inventory)
        for booking in self.bookings.values():
            self._hold(booking)

    def place(self, request: Request, number: str, without: str = "") -> Allocation:
        """The cards for a request, ``number`` being the id of its booking. ``without``: as if that booking were gone.

        Raises BadInput when there is no such card, Refused when it does not fit.
        """
        request = self._settled(request)
        if request.each:
            return self._allocation(
                container_device
                for one in request.each
                for container_device in self.place(one, number, without).container_devices
            )
        allocation = self.fit(request, number, without)
        if allocation is None:
            raise Refused(why(self, request, without))
        return self._in_order(allocation, request.cards)

    def fit(self, request: Request, number: str = "?", without: str = "") -> Allocation | None:
        """Return the device type's fit for a request whose ``cards`` are UUIDs."""
        device_request = self._device_type.device_request(_pod(request, number))
        assert isinstance(device_request, DeviceRequest), (
            device_request if isinstance(device_request, Refusal) else "no card asked for"
        )
        outcome = self._device_type.fit(device_request, self._devices.view(without=[without] if without else []))
        return outcome.allocation if isinstance(outcome, Fit) else None

    def _in_order(self, allocation: Allocation, named: Sequence[str]) -> Allocation:
        """The cards as they were named, else as NVML has them: the first one is the program's card 0."""
        order = {uuid: place for place, uuid in enumerate(named or sorted(self._facts, key=lambda uuid: self._facts[uuid].index))}
        return structs.replace(
            allocation,
            containers=(
                tuple(sorted(allocation.container_devices, key=lambda container_device: order[container_device.uuid])),
            ),
        )

    def resize(self, request: Request, booking: Booking) -> Allocation:
        """The grant of a living booking under new limits on its own cards; without memory or percent it keeps its memory.

        To hold less needs nobody's leave: a program that joined without a core limit keeps its place although all compute
        was given away since. Raises as ``place``.
        """
        container_devices = []
        wanted = request.each or (request,) * len(booking.cards)
        for one, container_device, (card, device) in zip(
            wanted, self._container_devices(booking), booking.allocated, strict=True
        ):
            memory = one.memory or card.total * one.percent // 100 or device.memory
            if memory <= device.memory and (one.cores or 100) <= (device.cores or 100):
                container_devices.append(
                    structs.replace(container_device, memory=memory, asked=memory, cores=one.cores or device.cores)
                )
            else:
                alone = replace(one, memory=memory, cards=(device.uuid,), count=1)
                container_devices += self.place(alone, booking.id, without=booking.id).container_devices
        return self._allocation(container_devices)

    def larger(self, one: Booking, other: Booking) -> Allocation:
        """The larger of two states of one booking, card by card and in each dimension."""
        both = zip(self._container_devices(one), one.devices, other.devices, strict=True)
        container_devices = []
        for container_device, a, b in both:
            memory = max(a.memory, b.memory)
            cores = 0 if 0 in (a.cores, b.cores) else max(a.cores, b.cores)
            container_devices.append(structs.replace(container_device, memory=memory, asked=memory, cores=cores))
        return self._allocation(container_devices)

    def _allocation(self, container_devices: Iterable[ContainerDevice]) -> Allocation:
        return Allocation(self._device_type.name, NODE, (tuple(container_devices),))

    def annotations(self, allocation: Allocation, now_ns: int) -> dict[str, str]:
        return self._device_type.annotations(allocation, now_ns)

    def facts(self, allocation: Allocation) -> list[CardFacts]:
        """The cards of a grant, in its order."""
        return [self._facts[container_device.uuid] for container_device in allocation.container_devices]

    def rooms(self, without: str = "") -> list[Room]:
        """The free part of every card, in NVML order."""
        view = self._devices.view(without=[without] if without else [])
        rooms = [self._room(card, usage) for card, usage in zip(view.inventory.cards, view.usages, strict=True)]
        return sorted(rooms, key=lambda room: room.index)

    def _hold(self, booking: Booking) -> None:
        pod = Pod(Meta(booking.id, uid=booking.id, annotations=booking.annotations), PodSpec(node_name=NODE))
        found = self._device_type.replay(pod, NODE, self._devices.inventory)
        if isinstance(found, Allocation):
            self._devices.charge(booking.id, found)

    def _container_devices(self, booking: Booking) -> tuple[ContainerDevice, ...]:
        by_uuid = {
            container_device.uuid: container_device
            for usage in self._devices.usages
            for container_device in usage.holders.get(booking.id, ())
        }
        missing = [card.index for card, device in booking.allocated if device.uuid not in by_uuid]
        if missing:
            raise BadInput(f"{booking.id}: the driver does not list card {missing[0]} any more")
        return tuple(by_uuid[device.uuid] for device in booking.devices)

    def _settled(self, request: Request) -> Request:
        """The request with its cards as UUIDs, none for any, and their number. Raises BadInput."""
        uuids = tuple(self._named(name, request.source) for name in request.cards)
        if len(set(uuids)) < len(uuids):
            raise BadInput(f"{_naming(request.source, ','.join(request.cards))}: names a card twice")
        present = len(uuids) or len(self._facts)
        if request.count > present:
            raise BadInput(f"--gpus {request.count}: {request.source} leaves {present} in view" if uuids else
                           f"--gpus {request.count}: this machine has {present}; --gpus all takes every card")  # fmt: skip
        count = request.count or present
        return replace(request, cards=uuids, count=count)

    def _named(self, card: str, source: str) -> str:
        if card.isdigit():
            found = [fact.uuid for fact in self._facts.values() if fact.index == int(card)]
        else:
            found = [uuid for uuid in self._facts if uuid.lower().startswith(card.lower())]
        if len(found) == 1:
            return found[0]
        if found:
            raise BadInput(f"{_naming(source, card)}: {len(found)} cards have UUIDs that begin so; give more of it")
        indices = sorted(fact.index for fact in self._facts.values())
        there = f"cards {indices[0]} to {indices[-1]}" if len(indices) > 1 else f"card {indices[0]} only"
        raise BadInput(f"{_naming(source, card)}: this machine has {there}")

    def _room(self, card: Card, usage: Usage) -> Room:
        fact = self._facts[card.uuid]
        closed = IN_SLICES if card.mode is Mode.MIG else card.blocked
        return Room(fact.index, card.uuid, fact.name, card.total, max(0, card.total - usage.memory),
                    max(0, 100 - usage.cores), closed)  # fmt: skip


def _naming(source: str, card: str) -> str:
    """Return what is to be blamed for the name of a card: the flag with it, or the variable as it stands."""
    return f"{source} {card}" if source == "--gpu" else source


def _pod(request: Request, number: str) -> Pod:
    """The pod that would ask for the same in a cluster."""
    limits: dict[str, str | int | float] = {names.VGPU_NUMBER: request.count, names.VGPU_CORES: request.cores}
    if request.memory:
        limits[names.VGPU_MEMORY] = request.memory
    else:
        limits[names.VGPU_MEMORY_PERCENTAGE] = request.percent or 100
    notes = {names.VGPU_MODE: Mode.HAMI_CORE.value, names.CARD_POLICY: "spread"}
    if request.cards:
        notes[names.USE_GPU_UUID] = ",".join(request.cards)
    program = Container("program", resources=Resources(limits))
    return Pod(Meta(number, uid=number, annotations=notes), PodSpec(containers=[program]))


# -- Why a request does not fit, in words -----------------------------------------------------------------------------

# What is left of each card, who holds the rest, and what would fit.

class Room(Struct, frozen=True):
    """The free part of one card: MiB and percent. ``total`` in MiB; ``closed`` is why it takes nobody, or empty."""

    index: int
    uuid: str
    model: str
    total: int
    memory: int
    cores: int
    closed: str = ""


class Books(Protocol):
    """The bookings of this machine (``allocator.Allocator``)."""

    @property
    def bookings(self) -> Mapping[str, Booking]: ...

    def rooms(self, without: str = "") -> list[Room]: ...

    def fit(self, request: Request, number: str = "?", without: str = "") -> Allocation | None: ...

    def facts(self, allocation: Allocation) -> list[CardFacts]: ...


def why(books: Books, request: Request, without: str) -> str:
    """One line on the request, some on each card, and one on what would fit. ``request`` names its cards by UUID.

    ``without`` is the booking that asks for a change, and is left out.
    """
    rooms = [room for room in books.rooms(without) if not request.cards or room.uuid in request.cards]
    lines = [_headline(request, rooms)]
    for room in rooms:
        lines.append(f"  card {room.index} ({room.model}, {room.total} MiB): {_left(room)}")
        allocated = [booking for booking in books.bookings.values() if booking.id != without and booking.on(room.uuid)]
        lines += [f"    {_holds(booking, room.uuid)}" for booking in allocated]
    suggestion = _elsewhere(books, request, without) or _smaller(books, request, rooms, without)
    return "\n".join([*lines, f"  {suggestion}"] if suggestion else lines)


def _headline(request: Request, rooms: Sequence[Room]) -> str:
    if request.count == 1:
        if len(rooms) == 1:
            return f"card {rooms[0].index} has no room for {request.words}"
        return f"no card has room for {request.words}"
    if request.count == len(rooms):
        return f"not each of the cards {', '.join(str(room.index) for room in rooms)} has room for {request.words}"
    return f"fewer than {request.count} cards have room for {request.words}"


def _left(room: Room) -> str:
    return room.closed or f"{room.memory} MiB and {room.cores} % of the cores are free"


def _holds(booking: Booking, uuid: str) -> str:
    device = booking.on(uuid)
    assert device is not None
    cores = f"{device.cores} %" if device.cores else "no core limit"
    return f"{booking.id}  {booking.who}  {device.memory} MiB  {cores}  {booking.line}"


def _elsewhere(books: Books, request: Request, without: str) -> str:
    """Other cards with room for the same, asked of the same fit."""
    if not request.cards or without:
        return ""
    other = books.fit(replace(request, cards=()))
    if other is None:
        return ""
    found = sorted(card.index for card in books.facts(other))
    numbers = ",".join(map(str, found))
    anywhere = f"--gpu {AUTO}" if len(found) == 1 else f"--gpus {len(found)}"
    have = f"card {numbers} has" if len(found) == 1 else f"cards {numbers} have"
    return f"{have} room for it: --gpu {numbers}, or {anywhere}"


def _smaller(books: Books, request: Request, rooms: Sequence[Room], without: str) -> str:
    """The most that would fit on as many of these cards."""
    by_room = sorted(rooms, key=lambda room: -room.memory)
    for last in range(request.count - 1, len(by_room)):
        best, memory = by_room[: last + 1], by_room[last].memory
        wanted = request.memory or by_room[last].total * (request.percent or 100) // 100
        cores = min((room.cores for room in best if room.cores), default=0)
        smaller = replace(request, memory=min(wanted, memory), percent=0,
                          cores=min(request.cores, cores) or request.cores, cards=tuple(room.uuid for room in rooms))  # fmt: skip
        found = books.fit(smaller, without=without) if smaller.memory else None
        if found is not None:
            indices = sorted(card.index for card in books.facts(found))
            where = f"card {indices[0]}" if len(indices) == 1 else f"cards {', '.join(map(str, indices))}"
            more = f" --cores {smaller.cores}" if smaller.cores else ""
            return f"what would fit on {where}: --memory {smaller.memory}{more}"
    return ""
