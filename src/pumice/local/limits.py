"""Change the limits of a running program: booked and enforced alike, whatever moment the change is cut off at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pumice.adapters.bookings.book import Booking, opened
from pumice.adapters.region.folders import grant
from pumice.adapters.region.writer import set_limits
from pumice.local.allocator import Allocator
from pumice.local.containers import page_order
from pumice.local.permissions import log, refuse_stranger
from pumice.local.place import Place
from pumice.local.plugin import handed_out
from pumice.local.request import Request, parse_cores, parse_memory, per_card
from pumice.local.shares import used
from pumice.model.amount import MIB
from pumice.model.errors import BadInput, PumiceError
from pumice.ports.cards import CardFacts
from pumice.ports.region import BadRegion
from pumice.wire.nvidia_vgpu import PodDevice


def wanted(booking: Booking, memory: str | None, cores: str | None) -> Request:
    """Read what a person wrote about a booking, None for what stays as it is. Raises BadInput."""
    if memory is None and cores is None:
        raise BadInput("nothing to change; give --memory, --cores or both")
    count = len(booking.cards)
    percents = [str(device.cores) for device in booking.devices] if cores is None else per_card("--cores", cores, count)
    amounts = [(0, 0)] * count if memory is None else [parse_memory(one) for one in per_card("--memory", memory, count)]
    each = [Request(*amount, parse_cores(percent)) for amount, percent in zip(amounts, percents, strict=True)]
    return Request(each=tuple(each))


def in_words(changed: Booking, before: Booking) -> list[str]:
    """One line for each card: what holds now, and what held before."""
    return [
        f"{changed.id}{f' on card {card.index}' if len(changed.cards) > 1 else ''}: {new.memory} MiB and "
        f"{f'{new.cores} % of the cores' if new.cores else 'no core limit'} (was {_held(old)})"
        for (card, new), old in zip(changed.allocated, before.devices, strict=True)
    ]


def _asked(one: Request) -> str:
    memory = f"{one.memory} MiB" if one.memory else f"{one.percent} % of the memory" if one.percent else "memory as it is"
    return f"{memory} and {f'{one.cores} % of the cores' if one.cores else 'no core limit'}"


def _held(device: PodDevice) -> str:
    return f"{device.memory} MiB and {f'{device.cores} %' if device.cores else 'no core limit'}"


def change_by(user: int, booking: Booking, place: Place, request: Request, facts: Sequence[CardFacts],
              force: bool = False) -> Booking:  # fmt: skip
    """The same as ``change`` for a user, of which a line is logged before and, should it be refused, after. Raises BadInput where
    the share is somebody else's."""
    refuse_stranger(booking, user)
    what = f"limits {'; '.join(map(_asked, request.each))}{' by force' if force else ''}"
    log(place.directory, user, what, booking.id, "asked for", time.time())
    try:
        changed = change(booking, place, request, facts, time.time_ns(), force)
    except PumiceError as error:
        log(place.directory, user, what, booking.id, f"refused: {str(error).splitlines()[0]}", time.time())
        raise
    log(place.directory, user, what, booking.id, "; ".join(in_words(changed, booking)), time.time())
    return changed


def change(booking: Booking, place: Place, request: Request, facts: Sequence[CardFacts], now_ns: int,
           force: bool = False) -> Booking:  # fmt: skip
    """The booking with the new limits, which hold from now on, on each of its cards. ``booking`` is as its reader saw it.

    Raises Refused when the card has not that much left, BadInput when its limits are no longer what the reader saw, or the
    program uses more memory than it may keep and ``force`` is not set: nothing would be taken from it, but it could allocate
    nothing until it has freed enough.
    """
    with opened(place.directory) as bookings:
        current = next((other for other in bookings.all if other.id == booking.id), None)
        if current is None:
            raise BadInput(f"{booking.id}: the program has ended")
        if current.devices != booking.devices:
            held = "; ".join(_held(device) for device in current.devices)
            raise BadInput(f"{booking.id}: somebody else has just changed its limits, to {held}; look at them and try again")
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
        grant(Path(booking.region), [(device.memory * MIB, device.cores) for _, device in page_order(booking)])
    except (BadRegion, OSError) as error:
        raise BadInput(f"{booking.id}: its region cannot be changed: {error}") from error
