"""The spawner: a small process that forks containers, keeps their logs and ends them when its client is gone.

Why a process of its own: forking the cluster's process (threads, gRPC, 100 MiB) is neither safe nor quick, while this
one is single-threaded and small, so that a container starts in a few milliseconds; and it outlives a ``kill -9``
of the cluster by the moment it takes to end every container. Should the spawner itself be killed, each container's
first process receives SIGKILL (PR_SET_PDEATHSIG) and the next start sweeps what is left, by the environment marker.

Standard library only. The protocol: one stream socket; each message is a 4-byte length and JSON; an ``exec`` message
is accompanied by three file descriptors (SCM_RIGHTS).

    -> {"op": "start", "id", "argv", "env", "cwd", "hostname", "network", "log", "stage", "mounts", "user", "group"}
    -> {"op": "exec", "id", "exec", "argv", "env", "tty"}   {"op": "signal", "id", "signal"}
    <- {"event": "started", "id", "pid"}  {"event": "failed", "id", "stage", "errno", "message"}
    <- {"event": "exited", "id", "code", "signal"}          (``id`` is the exec's own for an exec)
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

from pumice_lab.runtime import rootfs
from pumice_lab.runtime.child import become_container, become_exec
from pumice_lab.runtime.console import Log
from pumice_lab.runtime.proc import MARK, carries, mount_namespace, pids, session, sweep

_KILL_ROUNDS = 10  # a container that forks faster than this is left to the next start's sweep
Message = dict[str, Any]


class Process:
    """A forked child: a container's first process, or an exec (then ``log`` is None)."""

    def __init__(self, ident: str, pid: int, log: Log | None, container: str = "") -> None:
        self.ident, self.pid, self.log, self.container = ident, pid, log, container
        self.streams: dict[int, str] = {}
        self.started = False
        self.report = b""  # what the child wrote before its exec: a line when it is inside, then perhaps an error
        self.namespace_fd = -1

    @property
    def failure(self) -> bytes:
        return self.report.partition(b"\n")[2]

    def pin_namespace(self) -> None:
        """Hold the mount namespace open: the number of one that is gone is given to the next one at once."""
        with contextlib.suppress(OSError):
            self.namespace_fd = os.open(f"/proc/{self.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def unpin(self) -> None:
        if self.namespace_fd >= 0:
            os.close(self.namespace_fd)
            self.namespace_fd = -1


class Spawner:
    def __init__(self, sock: socket.socket, isolation: str) -> None:
        self.sock, self.isolation, self.pid = sock, isolation, os.getpid()
        self.selector = selectors.DefaultSelector()
        self.processes: dict[int, Process] = {}
        self.by_id: dict[str, Process] = {}
        self.specs: dict[str, Message] = {}
        self.inbox, self.outbox, self.fds = b"", b"", list[int]()
        self.alive = True

    def run(self) -> None:
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        rootfs.prctl(rootfs.PR_SET_CHILD_SUBREAPER, 1)
        self.selector.register(wake, selectors.EVENT_READ, ("wake", None))
        self.selector.register(self.sock, selectors.EVENT_READ, ("socket", None))
        while self.alive:
            for key, events in self.selector.select():
                self.take(key, events)
        self._end_all()

    def take(self, key: selectors.SelectorKey, events: int) -> None:
        """One event of a round."""
        kind, process = key.data
        if kind == "socket":
            self._on_socket(events)
        elif kind == "wake":
            _drain(key.fd)
            self._reap()
        elif self.selector.get_map().get(key.fd) is key:
            # An earlier event of this round may have closed it, and a container started since may have the same number.
            self._on_stream(key.fd, kind, process)

    # -- the client ---------------------------------------------------------------------------------------------

    def _on_socket(self, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush()
            if events & selectors.EVENT_READ:
                data, fds, _, _ = socket.recv_fds(self.sock, 1 << 18, 16)
                self.fds += fds
                if not data:
                    self.alive = False
                self.inbox += data
                for message in self._messages():
                    self._handle(message)
        except BlockingIOError:
            pass
        except OSError:
            self.alive = False

    def _messages(self) -> Iterator[Message]:
        while len(self.inbox) >= 4:
            (length,) = struct.unpack("!I", self.inbox[:4])
            if len(self.inbox) < 4 + length:
                return
            body, self.inbox = self.inbox[4 : 4 + length], self.inbox[4 + length :]
            yield json.loads(body)

    def tell(self, **message: Any) -> None:
        body = json.dumps(message).encode()
        self.outbox += struct.pack("!I", len(body)) + body
        with contextlib.suppress(BlockingIOError):
            self._flush()

    def _flush(self) -> None:
        try:
            while self.outbox:
                sent = self.sock.send(self.outbox)
                self.outbox = self.outbox[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self.alive, self.outbox = False, b""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outbox else 0)
        self.selector.modify(self.sock, wanted, ("socket", None))

    def _handle(self, message: Message) -> None:
        match message["op"]:
            case "start":
                self._start(message)
            case "exec":
                fds, self.fds = self.fds[:3], self.fds[3:]
                self._exec(message, fds)
            case "signal":
                self._signal(message["id"], message["signal"])

    # -- containers ---------------------------------------------------------------------------------------------

    def _start(self, spec: Message) -> None:
        console = self.fds.pop(0) if spec["console"] and self.fds else -1
        try:
            log = Log(spec["log"])
            spec["spawner"] = os.getpid()
            out, err, report = _pipe(), _pipe(), _pipe()
            pid = os.fork()
        except OSError as error:  # no space for the log, no room for a process
            self.tell(event="failed", id=spec["id"], stage="fork", errno=error.errno, message=str(error))
            return
        finally:
            if console >= 0 and os.getpid() == self.pid:
                os.close(console)
        if pid == 0:
            become_container(spec, self.isolation, (console, out[1], err[1]), report[1])
        process = self._adopt(spec["id"], pid, log, report)
        for pipe, stream in ((out, "stdout"), (err, "stderr")):
            os.close(pipe[1])
            process.streams[pipe[0]] = stream
            self.selector.register(pipe[0], selectors.EVENT_READ, (stream, process))
        self.specs[spec["id"]] = spec

    def _exec(self, message: Message, fds: list[int]) -> None:
        target = self.by_id.get(message["id"])
        if target is None or len(fds) < 3:
            self.tell(event="failed", id=message["exec"], stage="exec", errno=3, message="the container is not running")
        else:
            spec = self.specs[message["id"]]
            report = _pipe()
            try:
                pid = os.fork()
            except OSError as error:
                self.tell(event="failed", id=message["exec"], stage="fork", errno=error.errno, message=str(error))
            else:
                if pid == 0:
                    become_exec(message, spec, self.isolation, target.pid, fds, report[1])
                self._adopt(message["exec"], pid, None, report, container=message["id"])
        for fd in fds:
            os.close(fd)

    def _adopt(self, ident: str, pid: int, log: Log | None, report: tuple[int, int], container: str = "") -> Process:
        os.close(report[1])
        process = Process(ident, pid, log, container)
        self.processes[pid] = self.by_id[ident] = process
        self.selector.register(report[0], selectors.EVENT_READ, ("report", process))
        return process

    def _on_stream(self, fd: int, kind: str, process: Process) -> None:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        if data and kind == "report":
            if not process.report and self.isolation != "none" and not process.container:
                process.pin_namespace()
            process.report += data
        elif data and process.log:
            process.log.feed(kind, data)
        else:
            self._close(fd, process)
            if kind == "report" and not process.failure:
                process.started = True
                self.tell(event="started", id=process.ident, pid=process.pid)

    def _close(self, fd: int, process: Process) -> None:
        self.selector.unregister(fd)
        process.streams.pop(fd, None)
        os.close(fd)

    def _signal(self, ident: str, number: int) -> None:
        process = self.by_id.get(ident)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)  # the others of the container end with it, in ``_ended``

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self.processes.pop(pid, None)
            if process is not None:
                self._ended(process, status)

    def _ended(self, process: Process, status: int) -> None:
        for key in list(self.selector.get_map().values()):
            if key.data[1] is process and key.data[0] == "report":
                process.report += _drain(key.fd)
                self._close(key.fd, process)
        if not process.container:
            for other in list(self.processes.values()):
                if other.container == process.ident:  # its execs
                    self._signal(other.ident, signal.SIGKILL)
            self._kill_rest(process)  # like a PID namespace: nothing outlives the first process
            process.unpin()
        for fd, stream in list(process.streams.items()):
            if process.log:
                process.log.feed(stream, _drain(fd))
            self._close(fd, process)
        if process.log:
            process.log.close()
        self.by_id.pop(process.ident, None)
        self.specs.pop(process.ident, None)
        if process.failure:
            failure = json.loads(process.failure)
            self.tell(event="failed", id=process.ident, **failure)
            return
        if not process.started:
            self.tell(event="started", id=process.ident, pid=process.pid)
        code = os.waitstatus_to_exitcode(status)
        self.tell(event="exited", id=process.ident, code=code if code >= 0 else 128 - code, signal=max(0, -code))

    def _kill_rest(self, process: Process) -> None:
        """SIGKILL to every process of the container but the first, until there are none.

        They are told by their mount namespace or session; where the namespace could not be pinned (the first process was
        too quick) by the marker in their environment.
        """
        wanted = os.fstat(process.namespace_fd).st_ino if process.namespace_fd >= 0 else 0
        mark = f"{MARK}={process.ident}".encode()
        for _ in range(_KILL_ROUNDS):
            found = False
            for pid in pids():
                if pid in self.processes or pid == os.getpid():
                    continue  # first processes and execs are ended one by one
                inside = mount_namespace(pid) == wanted if wanted else carries(pid, {mark})
                if inside or session(pid) == process.pid:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                        found = True
            if not found:
                return
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Collect killed descendants (we are their reaper) without touching children that somebody still asks for."""
        for pid in pids():
            if pid not in self.processes:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _end_all(self) -> None:
        for process in list(self.processes.values()):
            self._signal(process.ident, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while self.processes and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.01)


# -- small helpers -------------------------------------------------------------------------------------------------


def _pipe() -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)
    return read, write


def _drain(fd: int) -> bytes:
    out = b""
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(fd, 65536):
            out += piece
    return out


def main() -> None:
    """Arguments: control socket's descriptor, isolation wanted, staging directory, ids to sweep."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    swept = sweep(sys.argv[4:], os.path.dirname(sys.argv[3]))
    isolation, note = probe(sys.argv[2], sys.argv[3])
    spawner = Spawner(sock, isolation)
    sock.setblocking(True)
    body = json.dumps({"event": "hello", "isolation": isolation, "note": note, "swept": swept}).encode()
    with contextlib.suppress(BrokenPipeError):  # the client is gone again already, as the first read will say
        sock.sendall(struct.pack("!I", len(body)) + body)
    sock.setblocking(False)
    spawner.run()


# -- Which kind of namespaces this machine allows. Standard library only (see spawner) -------------------------------


def probe(wanted: str, stage: str) -> tuple[str, str]:
    """The strongest isolation that works here, and why nothing stronger does."""
    reasons = []
    order = {"auto": ("mount", "user") if os.geteuid() == 0 else ("user",)}.get(wanted, (wanted,))
    for isolation in order:
        if isolation == "none":
            return "none", "asked for"
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                rootfs.enter_namespaces(isolation)
                rootfs.build_root(stage, [])
                os._exit(0)
            except BaseException as error:
                os.write(write, str(error).encode()[:500])
            os._exit(1)
        os.close(write)
        _, status = os.waitpid(pid, 0)
        text = os.read(read, 500).decode()
        os.close(read)
        if status == 0:
            return isolation, ""
        reasons.append(text)
    return "none", "; ".join(reasons)
