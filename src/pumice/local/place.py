"""The folder of the bookings of a machine: one directory for everybody, or each user's own where nothing is shared."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from pumice.adapters.bookings.book import BOOK, PAGES, REGIONS
from pumice.model.errors import Unavailable
from pumice.wire import variables

SHARED = (Path("/run/pumice"), Path("/var/lib/pumice"))
OVERRIDE = variables.RUN_DIR


class Place(Struct, frozen=True):
    """A directory with bookings. ``machine`` is the emulated machine that they are on, None for the real cards; ``mode``
    is what the directory gets when it is made; ``note`` is a sentence when it serves this user alone."""

    directory: Path
    machine: Path | None = None
    mode: int = 0o755
    note: str = ""

    @property
    def neighbours(self) -> Path:
        """Return where the library's activity files lie."""
        return self.directory / "activity"

    @property
    def used(self) -> bool:
        """True if anybody has booked here before."""
        return (self.directory / BOOK).exists()

    def prepare(self) -> None:
        """Make what is missing. A directory that everybody may write passes that on to what lies in it.

        Raises Unavailable when it cannot be made, or is a link or somebody else's although it should be this user's.
        """
        try:
            if not self.directory.exists():
                self.directory.mkdir(parents=True, mode=self.mode)
                self.directory.chmod(self.mode)
            if self.note:
                _refuse_strangers(self.directory, os.getuid())
            mode = stat.S_IMODE(self.directory.stat().st_mode) & 0o777
            for folder in (self.directory / REGIONS, self.directory / PAGES, self.neighbours):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir()
                    folder.chmod(mode)
                if folder.is_symlink():
                    raise Unavailable(f"{folder}: is a link, which no pumice has made; remove it")
        except OSError as error:
            raise Unavailable(f"{self.directory}: no place for bookings: {error.strerror}") from error


def of_machine(machine: Path) -> Place:
    """An emulated machine keeps its bookings with itself."""
    return Place(machine / "run", machine)


def of_cards(environment: Mapping[str, str], shared: Sequence[Path] = SHARED, user: int | None = None) -> Place:
    """The place for the real cards. Makes nothing; raises Unavailable when the user's own belongs to somebody else."""
    if override := environment.get(OVERRIDE):
        return Place(Path(override))
    for directory in shared:
        if _writable(directory):
            return Place(directory, mode=0o777)
    user = os.getuid() if user is None else user
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    own = Path(runtime, "pumice") if runtime and os.access(runtime, os.W_OK) else Path(f"/tmp/pumice-{user}")
    with contextlib.suppress(FileNotFoundError):
        _refuse_strangers(own, user)
    first = shared[0] if shared else SHARED[0]
    note = (f"{first} is not there or not yours to write, so the bookings in {own} are yours alone and programs of other "
            f"users are not seen; `sudo install -d -m 0777 {first}` makes one for all")  # fmt: skip
    return Place(own, mode=0o700, note=note)


def _refuse_strangers(directory: Path, user: int) -> None:
    facts = directory.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != user:
        raise Unavailable(f"{directory}: belongs to somebody else; name a directory of your own with {OVERRIDE}")


def _writable(directory: Path) -> bool:
    """Return whether this user may write the directory, or make it."""
    if directory.exists():
        return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)
    return directory.parent.is_dir() and os.access(directory.parent, os.W_OK | os.X_OK)
