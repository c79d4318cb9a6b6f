"""A fresh API server with its own record of every write: the real kube-apiserver with etcd, or the embedded one.

The clock of all figures is the server's: kube-apiserver's audit log (level Metadata, writes only), or the same log of the
embedded server. It also says who wrote what, so API writes per pod are counted by user agent and not estimated.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.end_to_end.request_log import RequestLog
from pumice.adapters.kube import KubeClient
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError
from pumice_lab import kube_control_plane
from pumice_lab.free_ports import free_port
from pumice_lab.pki import Pki, ensure_pki

ROOT = Path(__file__).parents[2]
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  users: ["system:apiserver"]
- level: Metadata
"""


@dataclass(slots=True)
class Server:
    """``kind`` is "kube" or "embedded"; ``log`` is what it recorded; ``kube`` a client for the load."""

    kind: str
    directory: Path
    kubeconfig: Path
    log: RequestLog
    kube: KubeClient = field(init=False)
    plane: Any = None
    arguments: list[str] = field(default_factory=list)
    process: asyncio.subprocess.Process | None = None

    @property
    def name(self) -> str:
        return "kube-apiserver v1.36 and etcd" if self.kind == "kube" else "embedded"

    def cpu(self) -> float:
        """Seconds of processor time of the API server itself, without etcd."""
        fields = Path(f"/proc/{self._api_process().pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def kill(self) -> None:
        """End the API server at once, as SIGKILL does; etcd and the database file stay."""
        process = self._api_process()
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def start_again(self) -> None:
        """The same server on the same port and data; returns when it is ready."""
        process = await self._spawn(self.arguments)
        if self.kind == "kube":
            self.plane.processes["kube-apiserver"] = process
        else:
            self.process = process
        await until_ready(self.kube)

    def _api_process(self) -> asyncio.subprocess.Process:
        if self.kind == "kube":
            found: asyncio.subprocess.Process = self.plane.processes["kube-apiserver"]
            return found
        assert self.process is not None
        return self.process

    async def _spawn(self, arguments: list[str]) -> asyncio.subprocess.Process:
        with (self.directory / "api-server.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(*arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                        start_new_session=True)  # fmt: skip


@asynccontextmanager
async def api_server(kind: str) -> AsyncIterator[Server]:
    """A fresh one with its data in a temporary directory; everything is gone afterwards, also when the run is told to end."""
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with tempfile.TemporaryDirectory(prefix="pumice-bench-") as place:
        directory = Path(place)
        pki = ensure_pki(directory / "pki", ["127.0.0.1", "localhost"], datetime.datetime.now(datetime.UTC))
        server = await (_kube(directory, pki) if kind == "kube" else _embedded(directory, pki))
        try:
            async with KubeClient.from_kubeconfig(server.kubeconfig, connections=64, user_agent="load") as server.kube:
                await until_ready(server.kube)
                yield server
        finally:
            if server.plane is not None:
                await server.plane.stop()
            elif server.process is not None and server.process.returncode is None:
                server.process.terminate()
                await server.process.wait()


def chosen_kind(wanted: str) -> str:
    """"auto" is the real one when KUBEBUILDER_ASSETS names its binaries."""
    if wanted == "auto":
        return "kube" if os.environ.get("KUBEBUILDER_ASSETS") else "embedded"
    return wanted


async def until_ready(kube: KubeClient, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while True:
            try:
                await kube.request("GET", "/readyz")
                await kube.request("GET", "/api/v1/namespaces/default")
                return
            except ApiError:
                await asyncio.sleep(0.02)


async def _kube(directory: Path, pki: Pki) -> Server:
    policy, audit = directory / "audit-policy.yaml", directory / "audit.log"
    policy.write_text(AUDIT_POLICY)
    plane = await kube_control_plane.start(
        kube_control_plane.find_assets(), directory / "kube", directory / "logs", pki, clock=SystemClock(),
        controller_manager=False, api_flags=[
            f"--audit-policy-file={policy}", f"--audit-log-path={audit}", "--audit-log-maxsize=8000",
            "--delete-collection-workers=4",
        ],
    )  # fmt: skip
    kubeconfig = kube_control_plane.kubeconfig(pki, plane.server, directory / "kubeconfig")
    pid = plane.processes["kube-apiserver"].pid
    arguments = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    return Server("kube", directory, kubeconfig, RequestLog(audit), plane=plane, arguments=arguments)


async def _embedded(directory: Path, pki: Pki) -> Server:
    port, log = free_port(), directory / "requests.log"
    log.touch()
    kubeconfig = kube_control_plane.kubeconfig(pki, f"https://127.0.0.1:{port}", directory / "kubeconfig")
    arguments = [sys.executable, "-m", "benchmarks.end_to_end.embedded", str(directory), str(port), str(log)]
    server = Server("embedded", directory, kubeconfig, RequestLog(log), arguments=arguments)
    server.process = await server._spawn(arguments)
    return server
