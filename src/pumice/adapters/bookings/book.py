"""The bookings of one machine: one file, changed under a lock and replaced by a rename, so that a crash leaves the old one.

A booking is what a pod is in a cluster: an id and the annotations that say which cards it holds how much of. It lives while
its leader lives, or any process that is attached to its region or would attach to it. One of a container lives while the
container runs, too, one with a name until it is deleted, one of a Slurm job until its epilog; all end with the machine's boot.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pumice.adapters.bookings.processes import boot, heirs, is_held, lives, mark, pid_namespace
from pumice.adapters.region.extension import live_slots, locked_slots
from pumice.adapters.regular_files import content_of, lock_within, open_folder, replace_file
from pumice.model.errors import BadInput, Unavailable
from pumice.wire import names
from pumice.wire.nvidia_vgpu import PodDevice, parse_pod_devices

LOCK_SECONDS = 10.0
REGIONS, PAGES = "regions", "limits"
"""Folders with one below for each booking: of its region, and of what a container is given read-only."""
BOOK = "bookings.json"
REGION_FILE = "vgpu.cache"
CONTAINER, NAMED, JOB = "container", "name", "slurm"
"""Keepers of a booking beside its processes: the container whose id the engine wrote beside the region, the share's name, or the
Slurm job that its id names."""
JOB_PREFIX = "slurm-"
"""The id of a Slurm job's booking is this and its number."""
ID_FILE = "container.id"
"""Beside the region: the engine writes it before the container starts (`--cidfile`)."""


class BookedCard(msgspec.Struct, frozen=True):
    """A card as it was known when it was booked: NVML's index, its name, and its MiB."""

    index: int
    model: str
    total: int


class Booking(msgspec.Struct, frozen=True):
    """One program's share. ``start`` is the leader's start time in clock ticks since the machine's ``boot``, ``cards`` stand in
    the order of ``devices``, ``region`` is the file that its processes share. ``keeper``: CONTAINER, NAMED or JOB, empty of a
    program's; ``pids``: with a keeper, the number of the PID namespace in which it was booked."""

    id: str
    pid: int
    start: int
    user: int
    command: list[str]
    cards: list[BookedCard]
    region: str
    annotations: dict[str, str]
    created: float
    priority: int = 1
    boot: str = ""
    keeper: str | msgspec.UnsetType = msgspec.UNSET
    pids: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def container(self) -> str:
        """The id of its container; empty before there is one."""
        if self.keeper != CONTAINER:
            return ""
        with contextlib.suppress(OSError):
            found = content_of(Path(self.region).with_name(ID_FILE), most=100).decode("ascii", "replace").strip()
            return found if re.fullmatch("[0-9a-f]{64}", found) else ""
        return ""

    @property
    def job(self) -> str:
        """The number of its Slurm job; empty of other shares."""
        return self.id.removeprefix(JOB_PREFIX) if self.keeper == JOB else ""

    @property
    def who(self) -> str:
        """Its leader, or what keeps it."""
        if self.keeper == NAMED:
            return "share with a name"
        if self.keeper == JOB:
            return f"Slurm job {self.job}"
        return f"container {self.container[:12]}" if self.container else f"pid {self.pid}"

    @property
    def devices(self) -> tuple[PodDevice, ...]:
        """The devices of its one container."""
        found = parse_pod_devices(self.annotations.get(names.VGPU_IDS, "")).containers
        return tuple(found[0]) if found else ()

    @property
    def allocated(self) -> list[tuple[BookedCard, PodDevice]]:
        """Each of its cards with what it holds there."""
        return list(zip(self.cards, self.devices, strict=True))

    def on(self, uuid: str) -> PodDevice | None:
        """Its part of this card."""
        return next((device for device in self.devices if device.uuid == uuid), None)

    @property
    def limits(self) -> dict[int, tuple[int, int]]:
        """Bytes and percent (0: no limit) by NVML index."""
        return {card.index: (device.memory << 20, device.cores) for card, device in self.allocated}

    @property
    def text(self) -> str:
        """The whole command, without what a terminal would take for an order."""
        return "".join(letter if letter.isprintable() else "?" for letter in " ".join(self.command))

    @property
    def line(self) -> str:
        """The same as one short line."""
        text = self.text
        return text if len(text) <= 60 else f"{text[:57]}..."


VERSION = 3
PLAIN = 2
"""The version without keepers, which a file has where no booking needs one: older commands read and write it."""


class _File(msgspec.Struct):
    version: int = PLAIN
    next: int = 1
    bookings: list[Booking] = []


class Bookings:
    """The bookings while the lock is held. ``all`` are the living ones; ``save`` makes a change hold."""

    def __init__(self, directory: Path, content: _File) -> None:
        self._directory, self._content = directory, content

    @property
    def all(self) -> list[Booking]:
        return self._content.bookings

    def new_id(self) -> str:
        self._content.next += 1
        return f"r{self._content.next - 1}"

    def region(self, number: str, start: int) -> Path:
        """Return where the region of a new booking lies: a folder of its own, as monitors want it, that no other ever had."""
        return self._directory / REGIONS / f"{number}_{os.getpid()}-{start}" / REGION_FILE

    def add(self, booking: Booking) -> None:
        self._content.bookings.append(booking)

    def replace(self, booking: Booking) -> None:
        self._content.bookings[:] = [booking if other.id == booking.id else other for other in self.all]

    def remove(self, number: str) -> None:
        self._content.bookings[:] = [booking for booking in self.all if booking.id != number]

    def sweep(self) -> None:
        """Remove the regions that no booking has: of programs that ended, or were killed while they booked.

        By what lies in our own folder, never by a path in the file: anybody may have written that.
        """
        kept = {Path(booking.region).parent.name for booking in self.all}
        for kind in (REGIONS, PAGES):
            with contextlib.suppress(OSError), open_folder(self._directory / kind) as folder:
                for name in set(os.listdir(folder)) - kept:
                    import shutil  # rarely needed, and slow to load for a program that waits to start

                    shutil.rmtree(name, ignore_errors=True, dir_fd=folder)

    def save(self) -> None:
        """Write beside the file and rename over it. Raises Unavailable; then nothing has changed."""
        self._content.version = VERSION if any(booking.keeper for booking in self.all) else PLAIN
        try:
            content = msgspec.json.format(msgspec.json.encode(self._content), indent=1)
        except UnicodeEncodeError as error:  # the paths of regions are the one thing in it that must stay as it is
            raise Unavailable(f"{self._directory}: a path that is not UTF-8 cannot stand in the records of shares") from error
        draft = self._directory / ".bookings.new"  # one name: whoever was killed over it left it to us, who hold the lock
        try:
            mode = 0o666 if shared(self._directory) else 0o600
            replace_file(self._directory / BOOK, content, mode, draft=draft, durable=False)
        except OSError as error:
            raise Unavailable(f"{self._directory}: the bookings cannot be written: {error.strerror}") from error


def shared(directory: Path) -> bool:
    """Return whether others may book in this directory too."""
    return bool(directory.stat().st_mode & 0o002)


@contextlib.contextmanager
def opened(directory: Path, clock: Callable[[], float] = time.monotonic,
           nap: Callable[[float], None] = time.sleep) -> Iterator[Bookings]:  # fmt: skip
    """The bookings of a directory under its lock, the dead ones taken out. Raises BadInput on a damaged file."""
    with _locked(directory, clock, nap):
        content = _load(directory)
        bookings = Bookings(directory, content)
        alive = [booking for booking in content.bookings if lasts(booking)]
        if len(alive) < len(content.bookings):
            content.bookings[:] = alive
            bookings.save()
        bookings.sweep()
        yield bookings


def living(directory: Path) -> list[Booking]:
    """The living bookings, without a lock: a rename replaces the file whole, so any reading of it is consistent."""
    return [booking for booking in booked(directory) if lasts(booking)]


def booked(directory: Path) -> list[Booking]:
    """All that stand in the file, of programs that ended too."""
    return _load(directory).bookings


def lasts(booking: Booking) -> bool:
    """Return whether a booking is still somebody's. A book may outlast the machine's boot, its programs do not."""
    if booking.boot and booking.boot != boot():
        return False
    if booking.keeper in (NAMED, JOB) or elsewhere(booking):
        return True
    return lives(booking.pid, booking.start) or is_held(booking.region) or used(booking) or bool(holders(booking))


def elsewhere(booking: Booking) -> bool:
    """Return whether a container's share was booked in another PID namespace, as a plugin's is another: here /proc does not tell
    when the container has ended."""
    return bool(booking.keeper and booking.pids) and pid_namespace() not in (0, booking.pids)


def holders(booking: Booking) -> tuple[int, ...]:
    """The processes known to keep a booking alive, the leader first. Others may hold its region unseen."""
    leader = (booking.pid,) if lives(booking.pid, booking.start) else ()
    if booking.keeper:  # in its region processes stand by the numbers that they have in their containers
        members = heirs(booking.region, mark(booking.pid, booking.start), booking.container, mounted=True)
        return leader + tuple(pid for pid in members if pid not in leader)
    attached = tuple(pid for pid in live_slots(booking.region).values() if pid not in leader)
    return leader + attached or heirs(booking.region, mark(booking.pid, booking.start))


def used(booking: Booking) -> bool:
    """Return whether a container uses its region, which its locks tell every user."""
    return bool(booking.keeper and locked_slots(booking.region))


def alive(booking: Booking) -> Collection[int]:
    """The slots of its region whose owners live. Of a container by their locks alone: what stands in them is its word, and its
    numbers of processes are not the machine's."""
    return locked_slots(booking.region) if booking.keeper else live_slots(booking.region)


def followers(booking: Booking) -> tuple[int, ...]:
    """The processes that keep a booking alive beside its leader."""
    attached = () if booking.keeper else live_slots(booking.region).values()
    here = {*attached, *heirs(booking.region, mark(booking.pid, booking.start))}
    return tuple(sorted(here - {booking.pid}))


def _load(directory: Path) -> _File:
    path = directory / BOOK
    try:
        raw = content_of(path)
    except FileNotFoundError:
        return _File()
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error
    try:
        version = msgspec.json.decode(raw, type=_Version).version
        plain = version in (PLAIN, VERSION)
        content = msgspec.json.decode(raw, type=_File) if plain else _older(raw) if version == 1 else _File()
    except (msgspec.DecodeError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if not 1 <= version <= VERSION:
        raise BadInput(f"{path}: written by another version of pumice ({version}, this reads {VERSION})")
    if any(not booking.devices or len(booking.devices) != len(booking.cards) for booking in content.bookings):
        raise _damaged(path, "a booking without its cards")
    return content


class _Version(msgspec.Struct):
    version: int = VERSION


def _older(raw: bytes) -> _File:
    """The file of the first version, whose programs held one card each and may run still."""
    content = msgspec.json.decode(raw, type=dict[str, Any])
    found = content.get("bookings")
    for booking in found if isinstance(found, list) else ():
        if isinstance(booking, dict):
            booking["cards"] = [{"index": booking.pop("card", -1), **{k: booking.pop(k, None) for k in ("model", "total")}}]
    return msgspec.convert({**content, "version": PLAIN}, _File)


def _damaged(path: Path, why: str) -> BadInput:
    return BadInput(f"{path}: damaged ({why}); remove it once no program runs under `pumice run`")


@contextlib.contextmanager
def _locked(directory: Path, clock: Callable[[], float], nap: Callable[[float], None]) -> Iterator[None]:
    path = directory / ".lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error
    try:
        if shared(directory):
            with contextlib.suppress(PermissionError):  # another user's, who has opened it already
                os.fchmod(descriptor, 0o666)
        if not lock_within(descriptor, LOCK_SECONDS, clock=clock, nap=nap):
            raise Unavailable(f"{path}: held by another pumice for more than {LOCK_SECONDS:.0f} s; is one stopped?")
        yield
    finally:
        os.close(descriptor)
