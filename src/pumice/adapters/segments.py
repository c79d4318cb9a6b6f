"""A folder of files that are only appended to, all together bounded: the oldest go first.

One process at a time writes a folder: two would delete each other's open files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pumice.adapters.regular_files import try_lock

SUFFIX = ".pumice-journal"
LOCK = ".lock"


class Segments:
    """A folder of files whose oldest ones go. ``size`` bounds all files of the folder, those of runs before among them.
    Everything raises OSError."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size
        self.written = 0
        """Bytes of the open file."""
        self._open: int | None = None
        self._path = folder
        self._lock: int | None = None

    def begin(self, name: str, content: bytes) -> None:
        """Begin a file, of which there is none yet, and make the folder where there is none."""
        self._close()
        self._own()
        path = self.folder / f"{name}{SUFFIX}"
        self._open = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._path, self.written = path, 0
        try:
            self.append(content)
        except OSError:
            if not path.stat().st_size:  # a file without a head is none
                path.unlink()
            raise

    def append(self, content: bytes) -> None:
        """Append to the open file, once there is place in the folder."""
        if self._open is None:
            raise OSError("no file is open")
        self._make_place(len(content))
        left = memoryview(content)
        while left:
            left = left[os.write(self._open, left) :]
        self.written += len(content)

    def end(self) -> None:
        self._close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _close(self) -> None:
        if self._open is not None:
            os.close(self._open)
            self._open = None

    def _own(self) -> None:
        """Keep the folder for this process alone, until it ends."""
        if self._lock is not None:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not try_lock(lock):
            os.close(lock)
            raise OSError("another scheduler writes its journal into this folder; give each one its own")
        self._lock = lock

    def _make_place(self, more: int) -> None:
        files = {path: path.stat().st_size for path in sorted(files_of(self.folder))}
        total = sum(files.values())
        for path, size in files.items():
            if total + more <= self.size:
                return
            if path != self._path:
                total -= size
                path.unlink(missing_ok=True)
        if total + more > self.size:
            raise OSError(f"{total + more:,} bytes at once are more than the {self.size:,} that the journal may take")


def files_of(folder: Path) -> list[Path]:
    """The files of a journal: what is no file, a link among them, is none of it."""
    return [path for path in folder.iterdir() if path.name.endswith(SUFFIX) and stat.S_ISREG(path.lstat().st_mode)]
