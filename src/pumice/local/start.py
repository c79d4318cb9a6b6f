"""Book a share and become the program."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import UNSET, Struct, structs

from pumice.adapters.bookings.book import NAMED, BookedCard, Booking, followers, opened
from pumice.adapters.bookings.processes import REGION_VARIABLE, boot, hold, is_held, pid_namespace, put_mark, start_time
from pumice.adapters.region.writer import create_region
from pumice.local.allocator import Allocator
from pumice.local.containers import write_page
from pumice.local.place import Place
from pumice.local.plugin import handed_out
from pumice.local.request import Request
from pumice.local.shares import used
from pumice.model.amount import MIB
from pumice.model.errors import BadInput, Unavailable
from pumice.ports.cards import CardReading, Cards
from pumice.wire import variables


class Start(Struct, frozen=True):
    """A booked share. ``only_card``: the machine has no other; ``note`` is a sentence when the card may not hold all of it at
    the moment, ``contested`` whether programs of different priority share a card here, ``lock`` the descriptor that holds the
    region (-1: none)."""

    booking: Booking
    only_card: bool = False
    note: str = ""
    contested: bool = False
    lock: int = -1


def book(request: Request, command: Sequence[str], place: Place, cards: Cards,
         now: Callable[[], float] = time.time, keeper: str = "", name: str = "", user: int = -1) -> Start:  # fmt: skip
    """Book a share for this process, or for a container that it starts, or under a name, or for a Slurm job (``keeper``).
    ``name`` is its id then where it is given; ``user``: whose it is, where that is not who books. Raises Refused, BadInput or
    Unavailable; then nothing is booked."""
    facts = cards.facts()
    if not facts:
        raise Unavailable("this machine has no card that answers; `pumice run --emulated` brings emulated ones")
    place.prepare()
    with opened(place.directory) as bookings:
        refuse_plugin(place)  # under the lock: a plugin that opens its socket reads the books after it
        allocator = Allocator(facts, bookings.all)
        if any(other.id == name for other in bookings.all):
            raise BadInput(f"{name}: there is a share of this name already; `pumice share delete {name}` ends it")
        number, start = name or bookings.new_id(), start_time(os.getpid())
        allocation, region = allocator.place(request, number), bookings.region(number, start)
        leader = 0 if keeper == NAMED else os.getpid()
        allocated = [BookedCard(card.index, card.name, card.memory // MIB) for card in allocator.facts(allocation)]
        booking = Booking(
            id=number, pid=leader, start=start if leader else 0, user=os.getuid() if user < 0 else user,
            command=[word.encode("utf-8", "replace").decode() for word in command],  # JSON has no bytes that are not UTF-8
            cards=allocated, region=str(region), created=now(), boot=boot(), priority=request.priority, keeper=keeper or UNSET,
            pids=pid_namespace() if keeper else UNSET, annotations=allocator.annotations(allocation, int(now() * 1e9)),
        )  # fmt: skip
        try:
            create_region(region, booking.limits, request.priority)
            lock = -1
            if keeper:
                with contextlib.suppress(OSError):
                    region.parent.chmod(0o755)  # whatever root's umask: others read the container's id there
                write_page(booking)
            else:
                with contextlib.suppress(OSError):  # no locks on this file system: /proc tells who lives
                    lock = hold(region)
            note = "; ".join(filter(None, (tight(booking), strangers(booking, bookings.all, cards.readings()))))
            bookings.add(booking)
            bookings.save()
        except Unavailable:
            bookings.remove(number)
            bookings.sweep()  # half a region on a full disk helps nobody
            raise
        mixed = len({other.priority for other in bookings.all}) > 1 and _contested(bookings.all)
    return Start(booking, [card.index for card in facts] == [0], note, mixed, lock)


def _contested(bookings: Sequence[Booking]) -> bool:
    from pumice.local.arbiter import contested  # rarely needed

    return contested(bookings)


CONTEXT_MIB = 150
"""Memory of the smallest CUDA context on a card; on newer cards it is 250 to 500 MiB."""


def tight(booking: Booking) -> str:
    """A sentence when a program could hardly begin in this share."""
    return "; ".join(
        f"card {card.index}: a program's first use of CUDA takes {CONTEXT_MIB} to 500 MiB by itself, so in {device.memory} MiB "
        "it can hardly begin; give it more with --memory"
        for card, device in booking.allocated
        if device.memory < CONTEXT_MIB
    )


def strangers(booking: Booking, others: Sequence[Booking], readings: Sequence[CardReading]) -> str:
    """A sentence when programs that are in no book hold memory of the card that the new share may want."""
    reported = []
    used_now = {reading.uuid: reading.memory_used // MIB for reading in readings}
    for card, device in booking.allocated:
        uuid = device.uuid
        here = [other for other in others if other.on(uuid)]
        unbooked = used_now.get(uuid, 0) - sum(used(other, uuid) for other in here) // MIB
        free = card.total - sum(allocated.memory for other in here if (allocated := other.on(uuid))) - unbooked
        if unbooked * 20 > card.total and device.memory > free:  # a driver keeps a little for itself
            reported.append(f"card {card.index}: {unbooked} MiB are held by programs outside of `pumice run`, so of the "
                        f"{device.memory} MiB only {max(0, free)} may be had at the moment")  # fmt: skip
    return "; ".join(reported)


def refuse_plugin(place: Place) -> None:
    """Cards that a cluster has are booked by its scheduler; two books of one card would not agree."""
    if found := handed_out(place.machine):
        raise BadInput(
            f"the cards of this machine are {found}: its cluster keeps the books, so run the program as a pod that asks for "
            "volcano.sh/vgpu-memory, or stop the plugin and its pods"
        )


def refuse_nested(present: Mapping[str, str]) -> None:
    if inside := present.get(SHARE):
        raise BadInput(f"this already runs inside share {inside}, whose limits hold for everything in it; start it outside")


def executable(command: Sequence[str], path: str) -> str:
    """The file to run. Raises FileNotFoundError or PermissionError as exec would, but before anything is booked."""
    candidates = [command[0]] if "/" in command[0] else [os.path.join(folder, command[0]) for folder in path.split(":")]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    if any(os.path.exists(candidate) for candidate in candidates):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), command[0])
    raise FileNotFoundError(command[0])


def become(begun: Start, file: str, arguments: Sequence[str], place: Place, library: Path,
           present: Mapping[str, str]) -> NoReturn:  # fmt: skip
    """Replace this process by the program, which keeps its pid, so that exit codes and signals are its own.

    Raises OSError when the file cannot be run; the booking is given back then.
    """
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; what is ignored stays so across exec
        signal.signal(ignored, signal.SIG_DFL)
    booking = begun.booking
    put_mark(booking.pid, booking.start)
    try:
        os.execve(file, list(arguments), environment(booking, library, place.neighbours, present, only_card=begun.only_card))
    except OSError:
        give_back(begun, place)
        raise


def become_engine(begun: Start, arguments: Sequence[str], place: Place, present: Mapping[str, str]) -> NoReturn:
    """Replace this process by the engine's client, which starts the container of this share. Raises as ``become``."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execve(arguments[0], list(arguments), dict(present))
    except OSError:
        give_back(begun, place)
        raise


def give_back(begun: Start, place: Place) -> None:
    """End this process's share. What it started inside keeps it: one of these leads it from now on."""
    if begun.lock >= 0:
        os.close(begun.lock)
    with opened(place.directory) as bookings:
        # as it stands in the book: its limits may have been changed
        booking = next((other for other in bookings.all if other.id == begun.booking.id), begun.booking)
        left = [pid for pid in followers(booking) if pid != os.getpid()]
        if left or is_held(booking.region):
            leader = left[0] if left else 0
            bookings.replace(structs.replace(booking, pid=leader, start=start_time(leader)))
        else:
            bookings.remove(booking.id)
        bookings.save()
        bookings.sweep()


# -- environment ------------------------------------------------------------------------------------------------------

# What a program finds in its environment, so that the library in front of the driver holds it to its share.

SHARE = variables.SHARE
"""Set inside a share, to its id."""
LIMITS = (variables.MEMORY_LIMIT, variables.SM_LIMIT)


def environment(booking: Booking, library: Path, neighbours: Path, present: Mapping[str, str], *,
                only_card: bool = False) -> dict[str, str]:  # fmt: skip
    """The program's whole environment. ``neighbours`` is the folder in which programs see each other's activity.

    Cards are named by UUID, for their numbers depend on who looks and when; where the machine has an ``only_card`` its number
    is sure, and programs that read nothing else (vLLM) run. What is the same on all cards is said by the general variables,
    whatever numbers NVML and CUDA give the cards.
    """
    env = {name: value for name, value in present.items() if not name.startswith(LIMITS)}
    limits = booking.limits
    for name, values in (
        (LIMITS[0], {index: f"{memory >> 20}m" for index, (memory, _) in limits.items()}),
        (LIMITS[1], {index: str(cores) for index, (_, cores) in limits.items()}),
    ):
        if len(set(values.values())) == 1:
            env[name] = next(iter(values.values()))
        else:
            env |= {f"{name}_{index}": value for index, value in values.items()}
    env |= {
        "LD_PRELOAD": ":".join((str(library), *filter(None, [present.get("LD_PRELOAD", "")]))),
        REGION_VARIABLE: booking.region,
        variables.TASK_PRIORITY: str(booking.priority),
        variables.CUDA_VISIBLE_DEVICES: "0" if only_card else ",".join(device.uuid for device in booking.devices),
        variables.SHARED_CARDS: ",".join(device.uuid for device in booking.devices),
        variables.LOCK_DIRECTORY: str(neighbours),
        SHARE: booking.id,
    }
    return env
