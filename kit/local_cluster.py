"""A whole cluster started by the command, as a person would, for scenarios that look at it from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import PODS
from pumice_lab.datadir import DataDir

PUMICE = [sys.executable, "-m", "pumice"]
TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ ].*\n|\n)*(\S.*)$", re.MULTILINE)
"""The last line of a traceback in a log: what was raised."""
OF_THE_WORLD = ("pumice.ports.cluster.ApiError", "OSError", "ConnectionResetError", "BrokenPipeError", "TimeoutError")
"""Errors by which the world refuses: they are no defect."""


def pumice(*arguments: str, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PUMICE, *arguments], capture_output=True, text=True, timeout=seconds)


class LocalCluster:
    """One cluster and its data dir."""

    def __init__(self, directory: Path) -> None:
        self.data = DataDir(directory)

    def up(self, *arguments: str) -> str:
        done = pumice("up", "-d", "--emulated", "--data-dir", str(self.data.root), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def down(self) -> None:
        assert pumice("down", "--data-dir", str(self.data.root)).returncode == 0

    @property
    def pid(self) -> int:
        return int((self.data.facts() or {})["pid"])

    def kill(self) -> None:
        """kill -9, and wait until nobody holds the data dir."""
        os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while self.data.running() and time.monotonic() < deadline:
            time.sleep(0.02)

    def ask(self, question: Callable[[KubeClient], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with KubeClient.from_kubeconfig(self.data.kubeconfig) as kube:
                return await question(kube)

        return asyncio.run(run())

    def wait(self, question: Callable[[KubeClient], Awaitable[Any]], seconds: float = 60) -> Any:
        """Ask until the answer is true."""

        async def run() -> Any:
            async with KubeClient.from_kubeconfig(self.data.kubeconfig) as kube:
                deadline = time.monotonic() + seconds
                while time.monotonic() < deadline:
                    if answer := await question(kube):
                        return answer
                    await asyncio.sleep(0.05)
                raise AssertionError(f"not within {seconds} s; log:\n{self.log()[-3000:]}")

        return asyncio.run(run())

    def delete_pod(self, name: str) -> None:
        """Of the namespace ``default``; returns when it is gone."""
        self.ask(lambda kube: kube.delete(PODS, name, "default"))

        async def missing(kube: KubeClient) -> bool:
            try:
                await kube.get(PODS, name, "default")
            except ApiError as error:
                return error.code == 404
            return False

        self.wait(missing)

    def log(self) -> str:
        return (self.data.logs / "up.log").read_text()

    def caught(self) -> list[str]:
        """Return the exceptions of our own making that somebody logged and survived: an object set aside, a request of which the
        server made a 500."""
        found = TRACEBACK.findall(self.log())
        return [error for error in found if not error.startswith(OF_THE_WORLD)]


@contextlib.contextmanager
def local_cluster(directory: Path, *arguments: str) -> Iterator[LocalCluster]:
    built = LocalCluster(directory)
    built.up(*arguments)
    try:
        yield built
        assert not (caught := built.caught()), f"the cluster caught {caught}; log:\n{built.log()[-5000:]}"
    finally:
        if built.data.running():
            built.down()


def vgpu_pod(name: str, memory: int, cores: int = 0, number: int = 1, **spec: Any) -> Json:
    limits = {"volcano.sh/vgpu-number": number, "volcano.sh/vgpu-memory": memory}
    if cores:
        limits["volcano.sh/vgpu-cores"] = cores
    container = {"name": "c", "image": "any", "command": ["sleep", "1000"], "resources": {"limits": limits}}
    return {"metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}}


async def phase(kube: KubeClient, name: str) -> str:
    return str((await kube.get(PODS, name, "default"))["status"].get("phase", ""))


async def log_with(kube: KubeClient, name: str, wanted: str, container: str = "") -> str:
    """The log of a container once it holds that word; empty before."""
    with contextlib.suppress(ApiError):
        of = {"container": container} if container else None
        text = (await kube.request("GET", f"/api/v1/namespaces/default/pods/{name}/log", params=of)).decode()
        return text if wanted in text else ""
    return ""
