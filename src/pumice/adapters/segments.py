"""A folder of files that are only appended to, all together bounded: the oldest go first."""

from __future__ import annotations

import os
from pathlib import Path

SUFFIX = ".pumice-journal"


class Segments:
    """``size`` bounds all files of the folder, those of runs before among them. Everything raises OSError."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size
        self.written = 0
        """Bytes of the open file."""
        self._open: int | None = None
        self._path = folder

    def begin(self, name: str, content: bytes) -> None:
        """Begin a file, of which there is none yet, and make the folder where there is none."""
        self.end()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}{SUFFIX}"
        self._open = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._path, self.written = path, 0
        self.append(content)

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
        if self._open is not None:
            os.close(self._open)
            self._open = None

    def _make_place(self, more: int) -> None:
        files = sorted(files_of(self.folder))
        total = sum(path.stat().st_size for path in files)
        for path in files:
            if total + more <= self.size:
                return
            if path != self._path:
                total -= path.stat().st_size
                path.unlink()
        if total + more > self.size:
            raise OSError(f"{total + more:,} bytes at once are more than the {self.size:,} that the journal may take")


def files_of(folder: Path) -> list[Path]:
    """The files of a journal."""
    return [path for path in folder.iterdir() if path.name.endswith(SUFFIX)]
