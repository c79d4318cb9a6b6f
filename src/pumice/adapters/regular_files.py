"""Files that somebody else may have put something in the place of, read; files replaced as a whole; and locks on files."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

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


def replace_file(path: Path, content: bytes, mode: int, *, draft: Path | None = None, durable: bool = True) -> None:
    """``replacing`` with this content."""
    with replacing(path, mode, draft=draft, durable=durable) as out:
        out.write(content)


@contextmanager
def replacing(path: Path, mode: int, *, draft: Path | None = None, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a draft beside the file; when it is written, sync it and rename it there: whoever has the old file open or mapped
    keeps it, and a reader meets the old one or the new one whole. ``draft``: its path, where only one process at a time writes,
    so that one that was killed leaves at most one. Raises OSError; then the old file stands."""
    if draft is None:
        import tempfile  # slow to load for a program that waits to start

        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        draft = Path(name)
    else:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fchmod(out.fileno(), mode)
            if durable:
                os.fsync(out.fileno())
        os.rename(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def replace_link(link: Path, target: str) -> None:
    """Let the link lead there; at every moment it leads somewhere for whoever opens through it."""
    draft = link.with_name(f".{link.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.rename(link)


@contextmanager
def open_folder(path: Path | str, *, within: int | None = None) -> Iterator[int]:
    """The descriptor of a folder itself, never of what a link leads to: where others may write beside it, a path may lead
    elsewhere the next moment. ``within``: of the folder that it lies in. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file, or return False where another process has it locked."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(
    descriptor: int, seconds: float, kind: int = fcntl.LOCK_EX, *,
    clock: Callable[[], float] = time.monotonic, nap: Callable[[float], None] = time.sleep,
) -> bool:  # fmt: skip
    """Lock an open file, or return False where another process keeps it locked for so many seconds."""
    deadline = clock() + seconds
    while not try_lock(descriptor, kind):
        if clock() >= deadline:
            return False
        nap(0.005)
    return True


# -- The environment that processes were started with, read from /proc -----------------------------------------------


def variable_of(pid: int, name: str) -> bytes:
    """Return the value of this variable at the process's start; empty where it was not set or this user may not read it."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    prefix = f"{name}=".encode()
    return next((word.removeprefix(prefix) for word in words if word.startswith(prefix)), b"")
