"""Containers to try things in, and what can be seen of them from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pumice_lab.runtime.process import ProcessRuntime
from pumice_lab.runtime.spec import ContainerSpec, Exit, Mount

PATH = "/usr/local/bin:/usr/bin:/bin"
KINDS = ["mount", "user"] if os.geteuid() == 0 else ["user"]


class Box:
    """A runtime in a folder, and short ways to run things in it."""

    def __init__(self, runtime: ProcessRuntime, directory: Path) -> None:
        self.runtime, self.directory = runtime, directory

    async def start(self, *argv: str, mounts: tuple[Mount, ...] = (), env: dict[str, str] | None = None,
                    **more: Any) -> tuple[str, asyncio.Future[Exit]]:
        ident = uuid.uuid4().hex
        ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        spec = ContainerSpec(ident, argv, {"PATH": PATH, **(env or {})}, str(self.log_path(ident)), mounts=mounts, **more)
        await self.runtime.start(spec, ended.set_result)
        return ident, ended

    async def run(self, script: str, **more: Any) -> tuple[int, str]:
        """Exit code and output of a shell script."""
        ident, ended = await self.start("sh", "-c", script, **more)
        return (await asyncio.wait_for(ended, 60)).code, self.text(ident)

    def log_path(self, ident: str) -> Path:
        return self.directory / "logs" / f"{ident}.log"

    def text(self, ident: str) -> str:
        lines = self.log_path(ident).read_text().splitlines()
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def folder(self, name: str) -> str:
        path = self.directory / name
        path.mkdir(parents=True, exist_ok=True)
        return str(path)


@contextlib.asynccontextmanager
async def box(directory: Path, isolation: str) -> AsyncIterator[Box]:
    runtime = await ProcessRuntime.launch(directory / "containers", data_dir=directory, isolation=isolation)
    try:
        if runtime.isolation != isolation:
            pytest.skip(f"this machine refuses isolation {isolation}: {runtime.isolation_note}")
        yield Box(runtime, directory)
    finally:
        await runtime.close()


Work = Callable[[Box], Coroutine[Any, Any, None]]
Inside = Callable[[Work], None]
"""The fixture ``inside``: run this in a box, once per kind of isolation."""


def marked(ident: str) -> list[int]:
    """Processes of this container, wherever they have gone."""
    return processes_with(f"PUMICE_CONTAINER={ident}")


def processes_with(variable: str) -> list[int]:
    """Processes with ``NAME=value`` in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if variable.encode() in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, "it did not happen within 15 s"
        time.sleep(0.02)


async def until(done: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_for, done)
