"""Notices that a kubelet started: at its start it deletes every socket in its folder and makes ``kubelet.sock`` anew.

The new socket often has the old inode number, so inodes do not tell (ADR 120): inotify does, and where it
is refused, the change time together with the inode.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pumice.ports.clock import Clock

log = logging.getLogger("pumice.kubelet")

_CREATE, _MOVED_TO, _OVERFLOW = 0x100, 0x80, 0x4000
_EVENT = struct.Struct("iIII")


class Presence:
    """Tells of the starts of one kubelet. Use as ``async with watch(...) as presence``."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.started = asyncio.Event()

    def note(self) -> None:
        self.started.set()


@asynccontextmanager
async def watch(socket: Path, clock: Clock, poll: float = 2.0) -> AsyncIterator[Presence]:
    """Sets ``started`` whenever ``socket`` is made anew. The directory must exist."""
    presence = Presence(socket)
    descriptor = _inotify(socket.parent)
    loop = asyncio.get_running_loop()
    poller: asyncio.Task[None] | None = None
    if descriptor is None:
        poller = asyncio.create_task(_poll(presence, clock, poll))
    else:
        loop.add_reader(descriptor, _read, descriptor, presence)
    try:
        yield presence
    finally:
        if descriptor is not None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        if poller is not None:
            poller.cancel()
            with suppress(asyncio.CancelledError):
                await poller


def _inotify(directory: Path) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except AttributeError:
        return None
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(directory), _CREATE | _MOVED_TO) < 0:
        log.warning("no inotify on %s (%s); looking every 2 s", directory, os.strerror(ctypes.get_errno()))
        os.close(descriptor)
        return None
    return descriptor


def _read(descriptor: int, presence: Presence) -> None:
    try:
        data = os.read(descriptor, 65536)
    except BlockingIOError:
        return
    offset = 0
    while offset + _EVENT.size <= len(data):
        _, mask, _, length = _EVENT.unpack_from(data, offset)
        name = data[offset + _EVENT.size : offset + _EVENT.size + length].rstrip(b"\0")
        offset += _EVENT.size + length
        if name == os.fsencode(presence.socket.name) or mask & _OVERFLOW:  # nobody knows what was lost: it may have been this
            presence.note()


async def _poll(presence: Presence, clock: Clock, interval: float) -> None:
    known = _mark(presence.socket)
    while True:
        await clock.sleep(interval)
        mark = _mark(presence.socket)
        if mark is not None and mark != known:
            presence.note()
        known = mark


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_ctime_ns, stat.st_ino)
