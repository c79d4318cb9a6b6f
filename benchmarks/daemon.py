"""A scheduler daemon against the static list server, and what /proc says of it (BS5, BS6)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rescan import EVERYTHING

PATIENCE = 600.0
"""Seconds without a word from the server after which a run has failed."""


def as_installed() -> dict[str, str]:
    """The environment in which a program of ours is started: its byte code is kept, as every installation has it."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@dataclass(slots=True)
class Daemon:
    """One running scheduler. ``began`` is when it was started, in seconds of the clock that the server uses too."""

    process: asyncio.subprocess.Process
    began: float

    def memory(self, field: str = "VmRSS") -> float:
        """MiB resident; ``VmHWM`` for the peak."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return round(int(next(line.split()[1] for line in text.splitlines() if line.startswith(field))) / 1024, 1)

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@dataclass(slots=True)
class Server:
    """The static list server and its words."""

    process: asyncio.subprocess.Process
    folder: Path
    port: int = 0

    async def hear(self, word: str) -> dict[str, Any]:
        """The next line that has this word. Raises RuntimeError when the server found fault or ended."""
        assert self.process.stdout is not None
        while True:
            line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
            said = json.loads(line) if line else {"error": "the server ended"}
            if "error" in said:
                raise RuntimeError(said["error"])
            if word in said:
                return dict(said)

    async def start_scheduler(self) -> Daemon:
        return await self._start("scheduler", "--scheduler-conf", str(self.folder / "conf"))

    async def start_controller(self) -> Daemon:
        return await self._start("controller")

    async def _start(self, *words: str) -> Daemon:
        began = time.time()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pumice", *words, "--kubeconfig", str(self.folder / "kubeconfig"),
            "--listen-address", "127.0.0.1:0", stderr=(self.folder / "log").open("w"), env=as_installed(),
        )  # fmt: skip
        return Daemon(process, began)


@contextlib.asynccontextmanager
async def static_server(nodes: int, pods: int, *, pending: int = 1, lives: int = 0, jobs: int = 0) -> AsyncIterator[Server]:
    """The server as a process of its own, with a kubeconfig that leads to it."""
    sizes = {"nodes": nodes, "pods": pods, "pending": pending, "lives": lives, "jobs": jobs}
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.static_server", *words, stdout=asyncio.subprocess.PIPE
    )
    with tempfile.TemporaryDirectory() as place:
        server = Server(process, Path(place))
        try:
            server.port = (await server.hear("port"))["port"]
            (server.folder / "conf").write_text(EVERYTHING)
            (server.folder / "kubeconfig").write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
                "users": [{"name": "x", "user": {"token": "t"}}]}))  # fmt: skip
            yield server
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
