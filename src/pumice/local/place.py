"""Where the bookings of a machine lie: one directory for everybody, or each user's own where nothing is shared."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pumice.model.refusal import Unavailable

SHARED = (Path("/run/pumice"), Path("/var/lib/pumice"))
OVERRIDE = "PUMICE_RUN_DIR"


@dataclass(frozen=True, slots=True)
class Place:
    """A directory with bookings. ``machine`` is the emulated machine that they are on, None for the real cards;
    ``note`` is a sentence when it serves this user alone."""

    directory: Path
    machine: Path | None = None
    note: str = ""

    @property
    def neighbours(self) -> Path:
        """Where the library's activity files lie."""
        return self.directory / "activity"

    def prepare(self) -> None:
        """Make what is missing. A directory that everybody may write passes that on to what lies in it."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            mode = stat.S_IMODE(self.directory.stat().st_mode) & 0o777
            for folder in (self.directory / "regions", self.neighbours):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir()
                    folder.chmod(mode)
        except OSError as error:
            raise Unavailable(f"{self.directory}: no place for bookings: {error.strerror}") from error


def of_machine(machine: Path) -> Place:
    """An emulated machine keeps its bookings with itself."""
    return Place(machine / "run", machine)


def of_cards(environment: dict[str, str], shared: Sequence[Path] = SHARED, user: int | None = None) -> Place:
    """The place for the real cards. Raises Unavailable when even the user's own cannot be had."""
    if override := environment.get(OVERRIDE):
        return Place(Path(override))
    for directory in shared:
        if _everybodys(directory):
            return Place(directory)
    user = os.getuid() if user is None else user
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    own = Path(runtime, "pumice") if runtime and os.access(runtime, os.W_OK) else Path(f"/tmp/pumice-{user}")
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        facts = own.lstat()
    except OSError as error:
        raise Unavailable(f"{own}: no place for bookings: {error.strerror}") from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != user:
        raise Unavailable(f"{own}: belongs to somebody else; name a directory of your own with {OVERRIDE}")
    return Place(own, note=f"{shared[0]} is not there or not yours to write, so the bookings in {own} are yours alone and "
                           f"programs of other users are not seen; `sudo install -d -m 0777 {shared[0]}` makes one for all")


def _everybodys(directory: Path) -> bool:
    """Whether the directory can be written, made on the way when this user may (root, as a rule)."""
    if not directory.exists():
        try:
            directory.mkdir()
            directory.chmod(0o777)
        except OSError:
            return False
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)
