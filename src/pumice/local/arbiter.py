"""Priorities without a monitor: while programs of different priority share a card, one small process writes the feedback.

``python -m pumice.local.arbiter DIR`` is started beside a program whose card is contested, and does nothing where another
does the work already. The rule is the monitor's (``node.feedback``); core limits stay in force, since here nobody asked
that they be lifted. A keeper starts the worker again when it is killed, so that nobody is left waiting for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from pumice.adapters.bookings.book import Booking, living, opened
from pumice.adapters.region.reader import read_region
from pumice.adapters.region.writer import write_feedback, write_pulse
from pumice.adapters.regular_files import try_lock
from pumice.model.errors import PumiceError
from pumice.node.feedback import WAIT, Tenant, feedback
from pumice.ports.region import BadRegion

ROUND = 1.0
"""Seconds of a round: longer than the half second in which a library repeats itself, and short for who waits."""
LOOKS = 5
"""Looks in a round: who begins to work is waited for after the next one, who falls silent after one to two rounds."""
LOCK = ".arbiter"
PATIENCE = 60 * LOOKS
"""Looks in a row without a readable book after which it is given up."""


def contested(bookings: Iterable[Booking]) -> bool:
    """Return whether programs of different priority hold the same card."""
    priorities: dict[str, set[int]] = {}
    for booking in bookings:
        for device in booking.devices:
            priorities.setdefault(device.uuid, set()).add(booking.priority)
    return any(len(found) > 1 for found in priorities.values())


def play(bookings: Iterable[Booking], aged: bool = True) -> None:
    """One round, or a look between two, over the regions of these programs. One that cannot be read or written is left out.

    Who waits hears a pulse in each round, and goes on by itself should it end.
    """
    tenants, regions = {}, {}
    for booking in bookings:
        with contextlib.suppress(BadRegion):
            found = read_region(booking.region).recent_kernel
            tenants[booking.id] = Tenant(tuple(device.uuid for device in booking.devices), booking.priority, found)
            regions[booking.id] = booking.region
    words = feedback(tenants, lift_limits=False, aged=aged)
    for number, tenant in tenants.items():
        recent = words[number].recent if number in words else None
        waits = (tenant.recent if recent is None else recent) == WAIT
        with contextlib.suppress(PumiceError):
            if recent is not None or (waits and aged):
                write_pulse(regions[number], ROUND if waits else None)
            if recent is not None:
                write_feedback(regions[number], recent)


def arbitrate(directory: Path, lock: int, nap: Callable[[float], None] = time.sleep) -> None:
    """Play rounds until no card is contested. ``lock`` is given back while the book is locked: who books then sees that
    nobody arbitrates and starts another."""
    failures = 0
    for look in itertools.count():
        if failures == PATIENCE:
            return
        try:
            there = living(directory)
            play(there, aged=look % LOOKS == 0)
            if not contested(there):
                with opened(directory) as bookings:
                    if not contested(bookings.all):
                        play(bookings.all)
                        fcntl.flock(lock, fcntl.LOCK_UN)
                        return
            failures = 0
        except (PumiceError, OSError):
            failures += 1
        nap(ROUND / LOOKS)


def start(directory: Path) -> None:
    """Leave an arbiter behind that is no child of this process, which is about to become the program. Failing costs the
    priorities only."""
    with contextlib.suppress(OSError):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            os.setsid()
            if os.fork():
                os._exit(0)
            for descriptor in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            os.closerange(3, 4096)  # above all the lock that would keep the region held
            os.execve(sys.executable, [sys.executable, "-m", "pumice.local.arbiter", str(directory)], _plain(os.environ))
        finally:
            os._exit(1)


def _plain(environment: os._Environ[str]) -> dict[str, str]:
    kept = ("HOME", "LANG", "PATH", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: environment[name] for name in kept if name in environment}


def main(directory: Path) -> NoReturn:
    """The keeper, which is the only one of this directory or ends at once."""
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with contextlib.suppress(PermissionError):  # another user's, who has opened it already
        os.fchmod(lock, 0o666)
    if not try_lock(lock):
        raise SystemExit(0)
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        worker = os.fork()
        if not worker:
            try:
                arbitrate(directory, lock)
            finally:
                os._exit(0)
        _, status = os.waitpid(worker, 0)
        if os.WIFEXITED(status):
            raise SystemExit(0)
        time.sleep(ROUND)  # killed; not in a hurry, should something kill it each time


if __name__ == "__main__":
    main(Path(sys.argv[1]))
