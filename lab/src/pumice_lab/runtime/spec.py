"""The contract of a container runtime: requests of the kubelet twin, and answers. The port that a test replaces by ``hollow``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount. ``source`` is a host path (file or directory), ``target`` a path inside the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container, ready to start. ``argv[0]`` is looked up in the container's PATH."""

    id: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log_path: str
    mounts: tuple[Mount, ...] = ()
    working_dir: str = ""
    hostname: str = ""
    network: str = ""  # a path to the network namespace; empty: the machine's
    user: int | None = None
    group: int | None = None
    stdin: bool = False
    tty: bool = False
    cdi_devices: tuple[str, ...] = ()  # what they do is in env and mounts already
    about: Mapping[str, str] = field(default_factory=dict)  # pod and container name, for the log and for hollow tests


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a container. ``signal`` is 0 unless a signal ended it; then ``code`` is 128 + signal."""

    id: str
    code: int
    signal: int = 0


class StartFailed(Exception):
    """The container could not be started. ``reason`` as in a container status, for example ``StartError``.

    ``transient`` failures are tried again (a missing device node, say); others end the container with code 128.
    """

    def __init__(self, reason: str, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.reason, self.message, self.transient = reason, message, transient


class ExecSession(Protocol):
    """One command inside a running container. Output channels: 1 stdout (or the terminal), 2 stderr."""

    async def read(self) -> tuple[int, bytes] | None:
        """The next piece of output as (channel, bytes), None after the last."""
        ...

    async def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def resize(self, columns: int, rows: int) -> None: ...
    async def wait(self) -> int:
        """The exit code."""
        ...

    def kill(self) -> None: ...


class Attached(Protocol):
    """A running container's stdin and terminal."""

    tty: bool

    async def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def resize(self, columns: int, rows: int) -> None: ...
    def subscribe(self) -> asyncio.Queue[bytes | None]:
        """The terminal's output from now on; None at its end."""
        ...

    def unsubscribe(self, queue: asyncio.Queue[bytes | None]) -> None: ...


class Listening:
    """The listeners to the exits of containers that run, by container id."""

    def __init__(self) -> None:
        self._listeners: dict[str, Callable[[Exit], None]] = {}

    def running(self) -> frozenset[str]:
        return frozenset(self._listeners)

    def adopt(self, container_id: str, on_exit: Callable[[Exit], None]) -> bool:
        if container_id not in self._listeners:
            return False
        self._listeners[container_id] = on_exit
        return True


class Runtime(Protocol):
    """Starts, signals and forgets containers. Exits are told to the listener given with ``start``."""

    isolation: str  # "mount", "user" (mount namespace inside a user namespace), "none" or "hollow"
    isolation_note: str  # why there is no isolation; empty otherwise

    async def start(self, spec: ContainerSpec, on_exit: Callable[[Exit], None]) -> int:
        """Start and return the process id. Raises StartFailed."""
        ...

    async def signal(self, container_id: str, signal: int) -> None:
        """Signal the container's first process; SIGKILL reaches every process of the container."""
        ...

    async def exec(self, container_id: str, argv: tuple[str, ...], *, tty: bool, stdin: bool,
                   env: Mapping[str, str] | None = None) -> ExecSession:
        """Run a command in the container's namespaces and environment. Raises StartFailed."""
        ...

    def console(self, container_id: str) -> Attached | None:
        """None unless the container runs and was started with ``stdin`` or ``tty``."""
        ...

    def running(self) -> frozenset[str]: ...

    def adopt(self, container_id: str, on_exit: Callable[[Exit], None]) -> bool:
        """Listen to a running container that somebody else started here. False when it does not run."""
        ...
