"""Change the limits of a running program: booked and enforced alike, whatever moment the change is cut off at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pumice.adapters.bookings.book import Booking, opened
from pumice.adapters.region.writer import set_limits
from pumice.local.allocator import Allocator
from pumice.local.place import Place
from pumice.local.plugin import handed_out
from pumice.local.request import Request
from pumice.local.shares import used
from pumice.model.amount import MIB
from pumice.model.errors import BadInput, PumiceError
from pumice.ports.cards import CardFacts
from pumice.ports.region import BadRegion


def change(booking: Booking, place: Place, request: Request, facts: Sequence[CardFacts], now_ns: int,
           force: bool = False) -> Booking:  # fmt: skip
    """The booking with the new limits, which hold from now on, on each of its cards.

    Raises Refused when the card has not that much left, BadInput when the program uses more memory than it may keep
    and ``force`` is not set: nothing would be taken from it, but it could allocate nothing until it has freed enough.
    """
    with opened(place.directory) as bookings:
        current = next((other for other in bookings.all if other.id == booking.id), None)
        if current is None:
            raise BadInput(f"{booking.id}: the program has ended")
        allocator = Allocator(facts, bookings.all)
        allocation = allocator.resize(request, current)
        changed = msgspec.structs.replace(current, annotations=allocator.annotations(allocation, now_ns))
        if not force:
            _refuse_taking(changed, current)
        # Booked is at every moment at least what is enforced: first book more, or first allow less.
        if _more(changed, current):
            if found := handed_out(place.machine):
                raise BadInput(f"{current.id} may hold less but not more: the cards of this machine are by now {found}")
            bookings.replace(_larger(changed, current, allocator, now_ns))
            bookings.save()
        try:
            _enforce(changed)
        except PumiceError:
            bookings.replace(current)
            bookings.save()
            raise
        bookings.replace(changed)
        bookings.save()
    return changed


def _refuse_taking(changed: Booking, current: Booking) -> None:
    """Raises BadInput where the change takes memory that is in use; what it leaves as it is it does not take."""
    for (card, device), before in zip(changed.allocated, current.devices, strict=True):
        allocated = used(changed, device.uuid)
        if device.memory < before.memory and device.memory * MIB < allocated:
            where = f" on card {card.index}" if len(changed.cards) > 1 else ""
            raise BadInput(
                f"{changed.id} uses {-(-allocated // MIB)} MiB{where}, more than the {device.memory} MiB it would keep; --force "
                "sets the limit all the same: nothing is taken away, and nothing more granted until it has freed enough"
            )


def _more(changed: Booking, current: Booking) -> bool:
    pairs = zip(changed.devices, current.devices, strict=True)
    return any(new.memory > old.memory or (new.cores or 100) > (old.cores or 100) for new, old in pairs)


def _larger(changed: Booking, current: Booking, allocator: Allocator, now_ns: int) -> Booking:
    """The booking of the moment between: the larger of both in each dimension; it fits because each of them does."""
    allocation = allocator.larger(changed, current)
    return msgspec.structs.replace(changed, annotations=allocator.annotations(allocation, now_ns))


def _enforce(booking: Booking) -> None:
    try:
        set_limits(Path(booking.region), booking.limits)
    except BadRegion as error:
        raise BadInput(f"{booking.id}: its region cannot be changed: {error}") from error
