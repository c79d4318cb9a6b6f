"""The cluster's page in the browser with `pumice up`: a listening socket that costs nothing, and the process behind it, which the
first request starts.

The process is given the socket, and settings with the token by its stdin: a token in arguments is read by everybody. It ends with
whoever holds the other end of its stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from pumice.model.errors import PumiceError
from pumice_lab.datadir import DataDir

log = logging.getLogger("pumice.cluster")

ADDRESS = "127.0.0.1"
AGAIN = 5.0
"""Seconds before a process that ended is followed by another."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of the process. ``socket`` is the number of the file that listens."""

    socket: int
    token: str
    kubeconfig: str
    scheduler_names: tuple[str, ...]


class WebPage:
    """Listens from the beginning; ``run`` waits for the first request. Where the extra `web` is not installed there is none."""

    def __init__(self, data: DataDir, scheduler_names: tuple[str, ...], program: tuple[str, ...] = ()) -> None:
        self._data, self._names = data, scheduler_names
        self._program = program or (sys.executable, "-m", "pumice_lab.web_page")
        self._token = secrets.token_urlsafe(32)
        self._socket: socket.socket | None = None
        self.starts = 0

    @property
    def where(self) -> str:
        """Address and port, without the token; empty where there is no page."""
        return f"{ADDRESS}:{self._socket.getsockname()[1]}" if self._socket is not None else ""

    def listen(self) -> bool:
        """Take the port of the last time, or a free one, and leave the token to the owner of the data dir. False where there is
        no page."""
        if importlib.util.find_spec("jinja2") is None:
            return False
        for wanted in (_port_of_the_last_time(self._data), 0):
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                made.bind((ADDRESS, wanted))
            except OSError:
                made.close()
                continue
            made.listen(128)
            made.setblocking(False)
            self._socket = made
            _write_secret(self._data.web_token, self._token)
            return True
        return False

    async def run(self, stop: asyncio.Event) -> None:
        """Start the process when somebody connects, and again when it has ended and somebody connects; until ``stop``."""
        if self._socket is None:
            return
        try:
            while not stop.is_set():
                await _either(stop, _asked(self._socket))
                if stop.is_set():
                    return
                await self._serve(self._socket, stop)
                await _either(stop, asyncio.sleep(AGAIN))
        finally:
            self._socket.close()

    async def _serve(self, listening: socket.socket, stop: asyncio.Event) -> None:
        self.starts += 1
        with open(self._data.logs / "web.log", "ab") as log_file:
            child = await asyncio.create_subprocess_exec(
                *self._program, stdin=asyncio.subprocess.PIPE, stdout=log_file, stderr=log_file, pass_fds=(listening.fileno(),),
                start_new_session=True,
            )  # fmt: skip
        assert child.stdin is not None
        settings = Settings(listening.fileno(), self._token, str(self._data.kubeconfig), self._names)
        with contextlib.suppress(ConnectionError):
            child.stdin.write(msgspec.json.encode(settings) + b"\n")
            await child.stdin.drain()
        try:
            await _either(stop, child.wait())
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.terminate()
                try:
                    await asyncio.wait_for(child.wait(), 5)
                except TimeoutError:
                    child.kill()
                    await child.wait()
        if not stop.is_set():
            log.error("the page in the browser ended with code %s; see %s", child.returncode, self._data.logs / "web.log")


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(f"{text}\n")


def _port_of_the_last_time(data: DataDir) -> int:
    port = str((data.facts() or {}).get("web", "")).rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() and int(port) < 65536 else 0


async def _asked(listening: socket.socket) -> None:
    """Wait until somebody connects, without taking the connection."""
    loop, here = asyncio.get_running_loop(), asyncio.Event()
    number = listening.fileno()
    loop.add_reader(number, _told(here, lambda: loop.remove_reader(number)))
    try:
        await here.wait()
    finally:
        loop.remove_reader(number)


def _told(event: asyncio.Event, enough: Callable[[], object]) -> Callable[[], None]:
    def tell() -> None:
        enough()
        event.set()

    return tell


async def _either(stop: asyncio.Event, work: object) -> None:
    """Until the work is done or ``stop`` is set."""
    tasks = {asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())}  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    """Serve the page on the socket that was handed over, until stdin ends."""
    from pumice.adapters.kube.config import load_kubeconfig
    from pumice.cli.daemon import log_to
    from pumice.cli.web import configured_by
    from pumice.web.running import Handed, serve_cluster

    log_to()
    settings = msgspec.json.decode(_line(0), type=Settings)
    with socket.socket(fileno=settings.socket) as listening:
        listening.setblocking(False)
        access = load_kubeconfig(Path(settings.kubeconfig))
        try:
            asyncio.run(serve_cluster(access, configured_by(frozenset(settings.scheduler_names)), ADDRESS, 0, _nobody,
                                      Handed(listening, settings.token, parent=0)))  # fmt: skip
        except PumiceError as error:
            raise SystemExit(f"pumice web: {error}") from None


def _line(number: int) -> bytes:
    """The first line, and no byte more of what follows."""
    text = b""
    while not text.endswith(b"\n") and (byte := os.read(number, 1)):
        text += byte
    return text


def _nobody(address: str) -> None:
    """Whoever started us knows the address."""


if __name__ == "__main__":
    main()
