"""Reads files that somebody else may have put something in the place of: neither a link nor a pipe, which may never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MOST = 64 << 20
"""Bytes; none of the files that we read whole comes near it."""


def content_of(path: Path, most: int = MOST) -> bytes:
    """The first ``most`` bytes of a regular file. Raises OSError for anything else, and for a file of more than MOST."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if facts.st_size > MOST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read(most)


# -- The environment that processes were started with, read from /proc -----------------------------------------------


def variable_of(pid: int, name: str) -> bytes:
    """Return the value of this variable at the process's start; empty where it was not set or this user may not read it."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    prefix = f"{name}=".encode()
    return next((word.removeprefix(prefix) for word in words if word.startswith(prefix)), b"")
