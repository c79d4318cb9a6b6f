"""Rights of people on a program of a share: whose it is, signals that meet no other program, and a log of both."""

from __future__ import annotations

import json
import os
import pwd
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pumice.adapters.bookings.book import Booking, holders, shared
from pumice.adapters.bookings.processes import start_time
from pumice.adapters.owners import pod_of
from pumice.adapters.region.folders import page_beside
from pumice.model.errors import BadInput, PumiceError
from pumice.wire.times import stamp

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
"""Signals that a program may be sent. None that stops it: a program stopped in a launch would hold up its card's neighbours."""
LOG: Final = "actions.log"
LOG_BYTES: Final = 1 << 20
"""A log that has grown so long becomes the older one, of which there is one."""
ROOT: Final = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A process as a person saw it: a later one of the same number is another."""

    pid: int
    start: int


def targets(pids: Iterable[int]) -> tuple[Target, ...]:
    """Those of the processes that live, as they are now."""
    return tuple(Target(pid, start) for pid in pids if (start := start_time(pid)))


def owner_of(pid: int) -> int | None:
    """The user whose process it is, root for one that keeps its memory to itself; None where it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def name_of(user: int) -> str:
    """The user's name, the number where it has none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def refuse_stranger(booking: Booking, user: int) -> None:
    """Raises BadInput where the share is another user's. By its processes, or by the page of limits that a container has: anybody
    may have written the book."""
    owner = _owner_of_page(booking)
    if owner is None:
        owner = next((owner for pid in holders(booking) if (owner := owner_of(pid)) is not None), booking.user)
    if user not in (ROOT, owner):
        raise BadInput(f"{booking.id} is {name_of(owner)}'s: only {name_of(owner)} and root may change its limits")


def _owner_of_page(booking: Booking) -> int | None:
    """The user who made the limits page; a container's processes are mostly root's, whoever started it."""
    try:
        return page_beside(Path(booking.region)).lstat().st_uid if booking.keeper else None
    except OSError:
        return None


def send(number: signal.Signals, to: Sequence[Target], user: int) -> tuple[int, ...]:
    """Send the signal to all of these processes that still live, and return which. Raises BadInput, and sends nothing, where one
    of them is not this user's, or belongs to a pod and the user is not the node's root: a pod is its cluster's."""
    held: list[tuple[int, int]] = []
    try:
        for target in to:
            try:
                descriptor = os.pidfd_open(target.pid)
            except OSError:
                continue
            held.append((target.pid, descriptor))
            if start_time(target.pid) != target.start:  # asked while it is held: the number is nobody else's from here on
                held.pop()
                os.close(descriptor)
                continue
            _refuse(target.pid, user)
        for pid, descriptor in held:
            try:
                signal.pidfd_send_signal(descriptor, number)
            except ProcessLookupError:
                continue
            except PermissionError:
                raise BadInput(f"process {pid}: the system does not let {name_of(user)} send it a signal") from None
        return tuple(pid for pid, _ in held)
    finally:
        for _, descriptor in held:
            os.close(descriptor)


def _refuse(pid: int, user: int) -> None:
    owner = owner_of(pid)
    if user == ROOT or owner is None:
        return
    if pod_of(pid):
        raise BadInput(f"process {pid} belongs to a pod: only root of this node may send it a signal; delete the pod instead")
    if owner != user:
        raise BadInput(f"process {pid} is {name_of(owner)}'s: only {name_of(owner)} and root may send it a signal")


def log(directory: Path, user: int, what: str, share: str, outcome: str, now: float) -> None:
    """Write one line: when, who, what, to which share, and what came of it. Raises PumiceError where that cannot be written."""
    path = directory / LOG
    line = json.dumps({"time": stamp(now), "user": user, "name": name_of(user),
                       "what": what, "share": share, "outcome": outcome})  # fmt: skip
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            facts = os.fstat(descriptor)
            if facts.st_uid == os.geteuid() and shared(directory):
                os.fchmod(descriptor, 0o666)
            os.write(descriptor, f"{line}\n".encode())
            if facts.st_size > LOG_BYTES:
                os.replace(path, path.with_suffix(".log.1"))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise PumiceError(f"{path}: {error.strerror}; what is not logged is not done") from error
