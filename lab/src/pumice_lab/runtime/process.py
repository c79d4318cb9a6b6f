"""The runtime of a real node: containers are local processes, started by the spawner."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import struct
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pumice_lab
from pumice_lab.runtime.console import Console
from pumice_lab.runtime.exec_session import LocalExec
from pumice_lab.runtime.proc import HOME, MARK, home_of, sweep
from pumice_lab.runtime.spec import ContainerSpec, ExecSession, Exit, Listening, Mount, StartFailed

log = logging.getLogger("pumice.runtime")
HELLO_SECONDS = 30.0
RESPAWN_SECONDS = 1.0
ANSWER_SECONDS = 120.0  # as the kubelet waits for its runtime: a mount of a dead file server hangs for ever
_BOOT = "import sys; sys.path[:0] = [{src!r}]; from pumice_lab.runtime import spawner; spawner.main()"


class ProcessRuntime(Listening):
    """Use ``await ProcessRuntime.launch(directory)``, then ``close``. One may serve several nodes of one process.

    ``directory`` lies in the data dir; it holds one folder per container. ``isolation``: auto, mount, user or none.
    """

    def __init__(self, directory: Path, data_dir: Path, isolation: str) -> None:
        super().__init__()
        self.directory, self.data_dir, self._wanted = directory, os.path.realpath(data_dir), isolation
        self.isolation, self.isolation_note = "none", ""
        self._spawner: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[int]] = {}
        self._specs: dict[str, ContainerSpec] = {}
        self._consoles: dict[str, Console] = {}
        self._sending = asyncio.Lock()
        self._up = asyncio.Event()
        self.respawn_seconds, self.answer_seconds = RESPAWN_SECONDS, ANSWER_SECONDS

    @classmethod
    async def launch(cls, directory: Path, *, data_dir: Path | None = None, isolation: str = "auto") -> ProcessRuntime:
        """Start the spawner; what an earlier one may have left behind is ended first. Raises StartFailed."""
        runtime = cls(directory, data_dir or directory, isolation)
        await runtime._spawn()
        runtime._reader = asyncio.create_task(runtime._read(), name="container runtime")
        return runtime

    async def _spawn(self) -> None:
        stage = self.directory / "stage"
        stage.mkdir(parents=True, exist_ok=True)
        ours = {"stage", *self._specs}  # who asks for a container while there is no spawner waits for the next one
        left = [entry.name for entry in self.directory.iterdir() if entry.name not in ours]
        near, far = socket.socketpair()
        source = str(Path(pumice_lab.__file__).resolve().parent.parent)
        try:
            self._spawner = await asyncio.create_subprocess_exec(
                sys.executable, "-E", "-s", "-S", "-c", _BOOT.format(src=source), str(far.fileno()), self._wanted,
                str(stage), *left, pass_fds=[far.fileno()], stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            near.close()
            raise StartFailed("RuntimeError", f"the spawner of containers cannot be started: {error}") from error
        finally:
            far.close()
        near.setblocking(False)
        self._socket = near
        hello = await self._hello()
        if hello is None:
            near.close()
            with contextlib.suppress(ProcessLookupError):
                self._spawner.kill()
            raise StartFailed("RuntimeError", "the spawner of containers ended at its start or does not answer")
        self.isolation, self.isolation_note = hello["isolation"], hello["note"]
        self._up.set()
        for name in left:
            with contextlib.suppress(OSError):
                (self.directory / name).rmdir()
        if hello["swept"]:
            log.warning("processes of an earlier run were ended count=%d", hello["swept"])

    async def _hello(self) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                return await self._receive()
        except TimeoutError:
            return None

    async def close(self) -> None:
        """End every container and the spawner."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)  # however it ended: the spawner still has to go
        if self._socket is not None:
            self._socket.close()
        if self._spawner is not None:
            try:
                await asyncio.wait_for(self._spawner.wait(), 10)
            except TimeoutError:
                self._spawner.kill()
                await self._spawner.wait()

    def console(self, container_id: str) -> Console | None:
        return self._consoles.get(container_id)

    async def start(self, spec: ContainerSpec, on_exit: Callable[[Exit], None]) -> int:
        for mount in spec.mounts:
            if not os.path.exists(mount.source):
                self._provide_source(mount.source)
        note = {MARK: spec.id, HOME: home_of(self.directory)}
        plain = self.isolation == "none"
        env = {**(flatten(spec.env, spec.mounts) if plain else spec.env), **note}
        stage = self.directory / spec.id
        stage.mkdir(exist_ok=True)
        self._specs[spec.id] = spec
        self._listeners[spec.id] = on_exit
        can_change_user = self.isolation != "user" and os.geteuid() == 0
        console = Console(spec.log_path, tty=spec.tty) if spec.stdin or spec.tty else None
        if console is not None:
            self._consoles[spec.id] = console
        try:
            return await self._ask(spec.id, {
                "op": "start", "id": spec.id, "argv": spec.argv, "env": env, "cwd": spec.working_dir,
                "hostname": spec.hostname, "network": spec.network, "log": spec.log_path, "stage": str(stage),
                "mounts": [] if plain else [
                    {"source": os.path.abspath(m.source), "target": m.target, "read_only": m.read_only,
                     "own": os.path.realpath(m.source).startswith(self.data_dir + "/")} for m in spec.mounts],
                "user": spec.user if can_change_user else None,
                "group": spec.group if can_change_user else None, "tty": spec.tty, "console": console is not None,
            }, [console.child_fd] if console else None)  # fmt: skip
        except StartFailed:
            self._forget(spec.id)
            raise
        finally:
            if console is not None:
                console.started()

    def _provide_source(self, path: str) -> None:
        """A missing host path: made when it lies in the data dir (as containerd would), an error elsewhere."""
        if not os.path.realpath(path).startswith(self.data_dir + "/"):
            raise StartFailed("CreateContainerError", f"mount source {path} does not exist on this machine, and "
                              "nothing is created outside the cluster's data dir", transient=True)
        os.makedirs(path, exist_ok=True)

    async def signal(self, container_id: str, signal: int) -> None:
        if container_id in self._listeners:
            await self._send({"op": "signal", "id": container_id, "signal": int(signal)})

    async def exec(self, container_id: str, argv: tuple[str, ...], *, tty: bool, stdin: bool,
                   env: Mapping[str, str] | None = None) -> ExecSession:
        if container_id not in self._listeners:
            raise StartFailed("NotFound", "the container is not running")
        ident = f"exec-{uuid.uuid4().hex}"
        session = LocalExec(lambda: self.signal(ident, signal.SIGKILL), tty=tty, stdin=stdin)
        self._listeners[ident] = session.on_exit
        message = {"op": "exec", "id": container_id, "exec": ident, "argv": argv, "tty": tty,
                   "env": {**({"TERM": "xterm"} if tty else {}), **(env or {})}}  # fmt: skip
        try:
            await self._ask(ident, message, session.child_fds)
        except StartFailed:
            self._listeners.pop(ident, None)
            session.abandon()
            raise
        finally:
            session.close_child_ends()
        return session

    # -- the conversation with the spawner -----------------------------------------------------------------------

    async def _ask(self, ident: str, message: dict[str, Any], fds: list[int] | None = None) -> int:
        """Send and wait for the answer, a process id. Raises StartFailed, also when there is none in time."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[ident] = answer
        try:
            async with asyncio.timeout(self.answer_seconds):
                await self._send(message, fds)
                return await answer
        except TimeoutError:
            if self._up.is_set():  # else there is nobody who could still start it
                await self._send({"op": "signal", "id": ident, "signal": int(signal.SIGKILL)})
            raise StartFailed("RuntimeError", f"the spawner of containers did not answer within {self.answer_seconds:.0f} s",
                              transient=True) from None
        finally:
            self._waiting.pop(ident, None)

    async def _send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        if self._reader is not None and self._reader.done():
            raise StartFailed("RuntimeError", "the spawner of containers is gone")
        await self._up.wait()
        body = json.dumps(message).encode()
        try:
            await self._send_bytes(body, fds)
        except OSError as error:
            raise StartFailed("RuntimeError", f"the spawner of containers is gone: {error}", transient=True) from error

    async def _send_bytes(self, body: bytes, fds: list[int] | None) -> None:
        assert self._socket is not None
        async with self._sending:
            loop = asyncio.get_running_loop()
            header = struct.pack("!I", len(body))
            if fds:  # descriptors ride on the header, which is small enough to go whole
                while True:
                    try:
                        socket.send_fds(self._socket, [header], fds)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.001)
            else:
                await loop.sock_sendall(self._socket, header)
            await loop.sock_sendall(self._socket, body)

    async def _receive(self) -> dict[str, Any] | None:
        header = await self._exactly(4)
        body = await self._exactly(struct.unpack("!I", header)[0]) if header else None
        return json.loads(body) if body else None

    async def _exactly(self, size: int) -> bytes | None:
        assert self._socket is not None
        out = b""
        while len(out) < size:
            try:
                piece = await asyncio.get_running_loop().sock_recv(self._socket, size - len(out))
            except OSError:
                return None
            if not piece:
                return None
            out += piece
        return out

    async def _read(self) -> None:
        while True:
            while (message := await self._receive()) is not None:
                self._on_message(message)
            log.error("the spawner of containers is gone, starting another")
            self._up.clear()
            self._all_died()
            if self._socket is not None:
                self._socket.close()
            await self._respawn()

    async def _respawn(self) -> None:
        while True:
            try:
                await self._spawn()
                return
            except StartFailed as error:
                log.error("%s; trying again", error)
                await asyncio.sleep(self.respawn_seconds)

    def _on_message(self, message: dict[str, Any]) -> None:
        ident = message["id"]
        waiting = self._waiting.get(ident)
        match message["event"]:
            case "started" if waiting and not waiting.done():
                waiting.set_result(message["pid"])
            case "failed" if waiting and not waiting.done():
                waiting.set_exception(start_failure(message, self._specs.get(ident)))
            case "exited":
                # The start's answer is delivered first: its future was resolved by an earlier message.
                asyncio.get_running_loop().call_soon(
                    self._forget, ident, Exit(ident, message["code"], message["signal"]))

    def _forget(self, ident: str, ended: Exit | None = None) -> None:
        listener = self._listeners.pop(ident, None)
        if console := self._consoles.pop(ident, None):
            console.close()
        if self._specs.pop(ident, None) is not None:
            with contextlib.suppress(OSError):
                (self.directory / ident).rmdir()
        if listener is not None and ended is not None:
            listener(ended)

    def _all_died(self) -> None:
        """First processes died with the spawner (PR_SET_PDEATHSIG); what they started is ended here."""
        sweep(list(self._specs), self.directory)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(StartFailed("RuntimeError", "the spawner of containers is gone", transient=True))
        for ident in list(self._listeners):
            self._forget(ident, Exit(ident, 128 + signal.SIGKILL, signal.SIGKILL))


# -- The spawner's errors in the words that a user of containerd knows ------------------------------------------------


def start_failure(message: Mapping[str, Any], spec: ContainerSpec | None) -> StartFailed:
    """The spawner's error in the words that a user of containerd knows."""
    stage, number, text = message["stage"], message["errno"], message["message"]
    path = message.get("path", "")
    prefix = "failed to create containerd task: OCI runtime create failed: unable to start container process: "
    if stage == "exec":
        program = spec.argv[0] if spec and spec.argv else path
        if number == errno.ENOENT and "/" in program:
            text = "no such file or directory"
        return StartFailed("StartError", f'{prefix}exec: "{program}": {text[:1].lower()}{text[1:]}')
    if stage == "cwd":
        where = spec.working_dir if spec else path
        return StartFailed("StartError", f'{prefix}chdir to cwd ("{where}") set in workingDir failed: {text}')
    return StartFailed("CreateContainerError", f"{stage}: {path + ': ' if path else ''}{text}", transient=True)


# -- Mounts of a container where mount namespaces are refused ---------------------------------------------------------

# The same files by their host paths.

_PRELOAD = "/etc/ld.so.preload"


def flatten(env: Mapping[str, str], mounts: Sequence[Mount]) -> dict[str, str]:
    """Rewrite env values that name a mounted container path to the host path behind it, and turn a mounted
    ld.so.preload into LD_PRELOAD. Best effort: a program with a compiled-in path does not find it."""
    table = sorted(((m.target.rstrip("/"), m.source.rstrip("/")) for m in mounts), key=lambda row: -len(row[0]))
    out = {name: _moved(value, table) for name, value in env.items()}
    preload = next((m.source for m in mounts if m.target == _PRELOAD), "")
    if preload and os.path.exists(preload):
        with open(preload, encoding="utf-8") as file:
            libraries = [_moved(path, table) for path in file.read().split()]
        present = [out["LD_PRELOAD"]] if out.get("LD_PRELOAD") else []
        out["LD_PRELOAD"] = ":".join([*present, *libraries])
    return out


def _moved(value: str, table: Sequence[tuple[str, str]]) -> str:
    for target, source in table:
        if value == target or value.startswith(target + "/"):
            return source + value[len(target) :]
    return value
