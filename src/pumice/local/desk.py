"""Who may join which card: the families' fit over the engine's ledger, with this machine as the only node.

The node value is rendered by the code that the device plugin registers a node with, and every booking is replayed as the
pod that it would be in a cluster. No rule of its own is here; what is here are the words for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pumice.engine.ledger import Holding, Ledger
from pumice.engine.resources import pod_request
from pumice.families.nvidia_vgpu import NvidiaVgpu
from pumice.families.seam import Ask, Fit, Inventory
from pumice.local.booking import Booking
from pumice.local.request import AUTO, Request
from pumice.model.cards import Card, Grant, Mode, Usage
from pumice.model.refusal import BadInput, Refusal
from pumice.node.hollow import hollow_node
from pumice.node.sharing import Sharing
from pumice.ports.cards import CardFacts
from pumice.wire import names
from pumice.wire.objects import Container, Meta, Node, Pod, PodSpec, Resources, convert

NODE = "this-machine"
SHARES = 63
"""Programs on one card: as many as the file by which they see each other's activity has entries (spec hami-core 11.5)."""


class Refused(BadInput):
    """The request does not fit now: who holds the rest, and what would fit. One or few lines."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of one card: MiB and percent. ``total`` in MiB; ``closed`` is why it takes nobody, or empty."""

    index: int
    uuid: str
    model: str
    total: int
    memory: int
    cores: int
    closed: str = ""


class Desk:
    """The ledger of this machine at one moment. Deciding changes nothing in it."""

    def __init__(self, facts: Sequence[CardFacts], bookings: Iterable[Booking]) -> None:
        self._facts = {card.uuid: card for card in facts}
        self._bookings = {booking.id: booking for booking in bookings}
        self._family = NvidiaVgpu()
        self._ledger = Ledger()
        self._ledger.set_families([self._family])
        self._ledger.put_node(convert(Node, hollow_node(NODE, facts, Sharing(split=SHARES))))
        for booking in self._bookings.values():
            self._hold(booking)

    def place(self, request: Request, number: str, without: str = "") -> Grant:
        """The card for a request, ``number`` being the id of its booking. ``without``: as if that booking were gone.

        Raises BadInput when there is no such card, Refused when it does not fit.
        """
        card = self._named(request.card)
        fit = self._fit(request, number, card, without)
        if fit is None:
            raise Refused(self._why(request, card, without))
        return fit

    def resize(self, request: Request, booking: Booking) -> Grant:
        """The grant of a living booking under new limits on its own card. To hold less needs nobody's leave: a program that
        joined without a core limit keeps its place although all compute was given away since. Raises as ``place``."""
        (held,) = self._ledger.holdings[booking.id].grants[0].pieces
        memory = request.memory or booking.total * request.percent // 100
        if 0 < memory <= held.memory and (request.cores or 100) <= (held.cores or 100):
            cores = request.cores if request.cores or not held.cores else held.cores
            piece = replace(held, memory=memory, asked=memory, cores=cores)
            return Grant(self._family.name, NODE, ((piece,),))
        return self.place(request, booking.id, without=booking.id)

    def annotations(self, grant: Grant, now_ns: int) -> dict[str, str]:
        return self._family.annotations(grant, now_ns)

    def facts(self, grant: Grant) -> CardFacts:
        return self._facts[grant.pieces[0].uuid]

    def rooms(self, without: str = "") -> list[Room]:
        """What is left of every card, in NVML order."""
        view = self._ledger.books[self._family.name].view(NODE, without=[without] if without else [])
        rooms = [self._room(card, usage) for card, usage in zip(view.inventory.cards, view.usages, strict=True)]
        return sorted(rooms, key=lambda room: room.index)

    # -- deciding -------------------------------------------------------------------------------------------------

    def _hold(self, booking: Booking) -> None:
        pod = Pod(Meta(booking.id, uid=booking.id, annotations=booking.annotations), PodSpec(node_name=NODE))
        found = self._family.replay(pod, NODE, self._inventory)
        grants = (found,) if isinstance(found, Grant) else ()
        self._ledger.confirm(Holding(booking.id, NODE, pod_request(pod), grants))

    @property
    def _inventory(self) -> Inventory:
        return self._ledger.books[self._family.name].nodes[NODE].inventory

    def _named(self, card: str) -> str:
        """The UUID of the card that was named, empty for any. Raises BadInput."""
        if card == AUTO:
            return ""
        if card.isdigit():
            found = [fact.uuid for fact in self._facts.values() if fact.index == int(card)]
        else:
            found = [uuid for uuid in self._facts if uuid.lower().startswith(card.lower())]
        if len(found) == 1:
            return found[0]
        if found:
            raise BadInput(f"--gpu {card}: {len(found)} cards have UUIDs that begin so; give more of it")
        indices = sorted(fact.index for fact in self._facts.values())
        there = f"cards {indices[0]} to {indices[-1]}" if len(indices) > 1 else f"card {indices[0]} only"
        raise BadInput(f"--gpu {card}: this machine has {there}")

    def _fit(self, request: Request, number: str, card: str, without: str) -> Grant | None:
        ask = self._family.ask(_pod(request, number, card))
        assert isinstance(ask, Ask), ask if isinstance(ask, Refusal) else "no card asked for"
        view = self._ledger.books[self._family.name].view(NODE, without=[without] if without else [])
        outcome = self._family.fit(ask, view)
        return outcome.grant if isinstance(outcome, Fit) else None

    # -- words ----------------------------------------------------------------------------------------------------

    def _room(self, card: Card, usage: Usage) -> Room:
        fact = self._facts[card.uuid]
        closed = "in MIG mode" if card.mode is Mode.MIG else card.blocked
        return Room(fact.index, card.uuid, fact.name, card.total, max(0, card.total - usage.memory),
                    max(0, 100 - usage.cores), closed)  # fmt: skip

    def _why(self, request: Request, card: str, without: str) -> str:
        rooms = [room for room in self.rooms(without) if not card or room.uuid == card]
        where = f"card {rooms[0].index}" if card else "no card" if len(rooms) > 1 else "the card"
        verb = "has no room for" if card or len(rooms) == 1 else "has room for"
        lines = [f"{where} {verb} {request.words}"]
        for room in rooms:
            lines.append(f"  card {room.index} ({room.model}, {room.total} MiB): {_left(room)}")
            lines += [f"    {_holds(b)}" for b in self._on(room.uuid) if b.id != without]
        suggestion = self._suggestion(request, card, rooms, without)
        return "\n".join([*lines, f"  {suggestion}"] if suggestion else lines)

    def _on(self, uuid: str) -> list[Booking]:
        return [booking for booking in self._bookings.values() if booking.device.uuid == uuid]

    def _suggestion(self, request: Request, card: str, rooms: Sequence[Room], without: str) -> str:
        """What would fit, asked of the same fit."""
        if card and not without:
            other = self._fit(request, "?", "", "")
            if other is not None:
                index = self.facts(other).index
                return f"card {index} has room for it: --gpu {index}, or --gpu {AUTO}"
        for room in sorted(rooms, key=lambda room: -room.memory):
            wanted = request.memory or room.total * (request.percent or 100) // 100
            smaller = replace(request, memory=min(wanted, room.memory), percent=0, card=room.uuid,
                              cores=min(request.cores, room.cores) if room.cores else request.cores)  # fmt: skip
            if smaller.memory and self._fit(smaller, "?", room.uuid, without) is not None:
                cores = f" --cores {smaller.cores}" if smaller.cores else ""
                return f"what would fit on card {room.index}: --memory {smaller.memory}{cores}"
        return ""


def _pod(request: Request, number: str, card: str) -> Pod:
    """The pod that would ask for the same in a cluster."""
    limits: dict[str, str | int | float] = {names.VGPU_NUMBER: 1, names.VGPU_CORES: request.cores}
    if request.memory:
        limits[names.VGPU_MEMORY] = request.memory
    else:
        limits[names.VGPU_MEMORY_PERCENTAGE] = request.percent or 100
    notes = {names.VGPU_MODE: Mode.HAMI_CORE.value, names.CARD_POLICY: "spread"}
    if card:
        notes[names.USE_GPU_UUID] = card
    program = Container("program", resources=Resources(limits))
    return Pod(Meta(number, uid=number, annotations=notes), PodSpec(containers=[program]))


def _left(room: Room) -> str:
    if room.closed:
        return room.closed
    return f"{room.memory} MiB and {room.cores} % of the cores are free"


def _holds(booking: Booking) -> str:
    device = booking.device
    cores = f"{device.cores} %" if device.cores else "no core limit"
    return f"{booking.id}  pid {booking.pid}  {device.memory} MiB  {cores}  {booking.line}"
