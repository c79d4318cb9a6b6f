"""``ports.slices.Journal`` as one JSON file: written beside its place, synced, renamed, and the folder synced, so that a power
cut leaves the old text or the new one."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pumice.adapters.regular_files import content_of, lock_within, replace_file
from pumice.model.errors import Unavailable
from pumice.ports.slices import Entry

log = logging.getLogger("pumice.node")

VERSION = 1


class _Text(msgspec.Struct):
    version: int
    slices: list[Entry]


class FileJournal:
    """The journal of one machine. Its folder is made with the first write; ``.lock`` beside it keeps cutters apart, who wait so
    many seconds for each other."""

    def __init__(self, path: Path, patience: float = 20.0) -> None:
        self._path, self._patience = path, patience
        self._told: bytes | None = None
        """The text that was last found damaged: it is told once."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        lock = self._path.with_suffix(".lock")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise Unavailable(f"cannot open {lock}: {error.strerror}") from error
        try:
            if not lock_within(descriptor, self._patience):
                raise Unavailable(f"somebody else has cut this machine's cards for {self._patience:.0f} s ({lock})")
            yield
        finally:
            os.close(descriptor)

    def read(self) -> tuple[Entry, ...]:
        """Raises Unavailable where there is a file that cannot be read now: who wrote it anew would forget what it says."""
        try:
            content = content_of(self._path)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Unavailable(f"cannot read {self._path}: {error.strerror}") from error
        try:
            text = msgspec.json.decode(content, type=_Text)
        except (msgspec.DecodeError, RecursionError) as error:
            self._tell(content, f"cannot be read: {error}")
            return ()
        if text.version != VERSION:
            self._tell(content, f"is of version {text.version}, this is {VERSION}")
            return ()
        return tuple(text.slices)

    def _tell(self, content: bytes, what: str) -> None:
        if content != self._told:
            log.error("%s %s; slices that are there count as somebody else's", self._path, what)
        self._told = content

    def write(self, entries: Iterable[Entry]) -> None:
        content = msgspec.json.format(msgspec.json.encode(_Text(VERSION, list(entries))), indent=1) + b"\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, content, 0o600, draft=self._path.with_suffix(".draft"))
            _sync(self._path.parent)
        except OSError as error:
            raise Unavailable(f"cannot write {self._path}: {error.strerror}") from error


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
