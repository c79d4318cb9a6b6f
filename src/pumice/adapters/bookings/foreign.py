"""Cards that programs of ``pumice run`` hold, as a node plugin needs to know: it hands out no card that another book has.

The wire has no word for a part of a card's compute being gone, so a card that is held at all takes no pods until the last of
its programs has ended. New ones are refused by ``pumice run`` from the moment on that the plugin's socket answers.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pumice.adapters.bookings.book import LOCK_SECONDS, Booking, booked, lasts
from pumice.adapters.regular_files import lock_within
from pumice.model.errors import PumiceError
from pumice.wire import variables

log = logging.getLogger("pumice.node")

SHARED: Final = (Path("/run/pumice"), Path("/var/lib/pumice"))
"""Where the bookings of all users of a machine lie."""


def booking_dirs(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where programs of this process's machine are booked, as `pumice run` has it: on an emulated one beside its state."""
    if machine := environment.get(variables.MACHINE):
        return (Path(machine) / "run",)
    if override := environment.get(variables.RUN_DIR):
        return (Path(override),)
    return SHARED


class ForeignPrograms:
    """The bookings in directories that others write; of a damaged one the last good version stays."""

    def __init__(
        self, directories: Sequence[Path] = SHARED, lasts: Callable[[Booking], bool] = lasts,
        others: Callable[[Sequence[Path]], Mapping[str, str]] | None = None,
    ) -> None:  # fmt: skip
        """``lasts``: whether the program of a booking still runs. ``others``: who else has cards by another book there."""
        self._directories, self._lasts, self._others = tuple(directories), lasts, others
        self._last: dict[Path, list[Booking]] = {}
        self._over: set[tuple[Path, str]] = set()
        self._warned: dict[Path, str] = {}

    def look(self, *, wait: bool = False) -> dict[str, str]:
        """Return why a card takes no pods, by UUID. ``wait``: wait for whoever is booking at this moment."""
        found: dict[str, list[str]] = {}
        for directory in self._directories:
            for booking in self._living(directory, wait):
                for device in booking.devices:
                    cores = f"{device.cores} % of the cores" if device.cores else "no core limit"
                    found.setdefault(device.uuid, []).append(f"{booking.id} ({booking.who}, {device.memory} MiB, {cores})")
        others = self._others(self._directories) if self._others is not None else {}
        return {**others, **{uuid: f"held by `pumice run`: {', '.join(programs)}" for uuid, programs in found.items()}}

    def _living(self, directory: Path, wait: bool) -> list[Booking]:
        try:
            if wait:
                _wait_for_the_lock(directory)
            there = booked(directory)
            self._warned.pop(directory, None)
        except (PumiceError, OSError) as error:
            if self._warned.get(directory) != str(error):
                log.warning("the programs of `pumice run` cannot be told, the last ones known count: %s", error)
                self._warned[directory] = str(error)
            there = self._last.get(directory, [])
        self._last[directory] = there
        # a container is started again: what ended once is over for programs alone
        asked = [booking for booking in there if booking.keeper or (directory, booking.id) not in self._over]
        living = [booking for booking in asked if self._lasts(booking)]
        self._over = {key for key in self._over if key[0] != directory}
        self._over |= {(directory, booking.id) for booking in there if booking not in living}
        return living


def _wait_for_the_lock(directory: Path) -> None:
    """Return once nobody changes the book who began before. It may be on a read-only mount; a stuck holder is not waited for."""
    try:
        descriptor = os.open(directory / ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        lock_within(descriptor, LOCK_SECONDS, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)
