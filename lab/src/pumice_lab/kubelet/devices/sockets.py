"""Unix sockets whose path may be longer than the 107 bytes that the kernel takes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_LIMIT = 100


class ShortPath:
    """``target`` for gRPC of a socket file; long paths go through a descriptor of their directory. Close after use."""

    def __init__(self, path: Path) -> None:
        self._fd = -1
        self.path = str(path)
        if len(os.fsencode(self.path)) > _LIMIT:
            self._fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.path = f"/proc/self/fd/{self._fd}/{path.name}"
        self.target = f"unix://{self.path}"

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def remove_sockets(directory: Path) -> None:
    """Delete every socket in a folder, as the kubelet does at its start."""
    for entry in directory.iterdir():
        if stat.S_ISSOCK(entry.lstat().st_mode):
            entry.unlink(missing_ok=True)
