"""The schedulers that are compared, each a process of its own on the same server; CPU and memory are its own.

``Ours`` is ``pumice scheduler``; ``OursGrouped`` finds a PodGroup there; ``OursWhole`` has ``pumice controller`` beside it, which
writes a PodGroup for every bare pod.
``KubeScheduler`` is the real one of ``make kube``: it counts the extended resources on the nodes' allocatable and chooses no
cards; its client limits are raised to QPS 5000 and burst 5000 (the default of 50 would throttle it), all else is its default.
``NullBinder`` only sends Bindings with annotations.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import yaml

from benchmarks.end_to_end.null_binder import NULL_BINDER
from benchmarks.end_to_end.server import ROOT, Server
from benchmarks.rescan import EVERYTHING
from pumice_lab.kube_control_plane import find_assets

BARE = ("--no-events", "--no-status-writes")
KUBE_SCHEDULER_LIMITS = {"qps": 5000, "burst": 5000}


class Contender:
    """A child process. ``schedules`` is the schedulerName of its pods, ``agents`` what it calls itself in the server's log."""

    schedules = "volcano"
    agents: tuple[str, ...] = ("pumice-scheduler",)
    chooses_cards = True
    grouped = False
    """True if its pods are in a PodGroup that is there before them."""
    ready_sign = ""

    def __init__(self, server: Server, kubeconfig: Path | None = None) -> None:
        self.server, self.kubeconfig = server, kubeconfig or server.kubeconfig
        self.log = server.directory / f"contender-{time.monotonic_ns()}.log"
        self.start_s = 0.0

    def command(self) -> list[str]:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        began = time.monotonic()
        with self.log.open("w") as log:
            self.process = await asyncio.create_subprocess_exec(*self.command(), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log,
                                                                stderr=log)  # fmt: skip
        async with asyncio.timeout(120):
            while self.ready_sign not in self.log.read_text():
                assert self.process.returncode is None, self.log.read_text()[-2000:]
                await asyncio.sleep(0.02)
        self.start_s = time.monotonic() - began
        self.mark()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.terminate()
            await asyncio.wait_for(self.process.wait(), 20)

    def mark(self) -> None:
        self._cpu = self._cpu_now()

    def cpu_since_mark(self) -> float:
        """Seconds of user and system time."""
        return self._cpu_now() - self._cpu

    def peak_mib(self) -> float:
        return self._mib("VmHWM")

    def resident_mib(self) -> float:
        return self._mib("VmRSS")

    def _mib(self, field: str) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith(field))) / 1024

    def _cpu_now(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Ours(Contender):
    """With conditions and events."""

    ready_sign = "ready nodes"
    flags: tuple[str, ...] = ()

    def command(self) -> list[str]:
        conf = self.server.directory / "volcano-scheduler.conf"
        conf.write_text(EVERYTHING)
        return [sys.executable, "-m", "pumice", "scheduler", "--kubeconfig", str(self.kubeconfig), "--scheduler-conf", str(conf),
                "--listen-address", "127.0.0.1:0", *self.flags]  # fmt: skip


class OursBare(Ours):
    """The writes of the null binder."""

    flags = BARE


class OursGrouped(Ours):
    """All pods in one PodGroup, with conditions and events."""

    grouped = True


class OursWhole(Ours):
    """With the controller. CPU and memory stay the scheduler's; writes are those of both."""

    agents = ("pumice-scheduler", "pumice-controller")
    flags = ("--name-pod-groups",)

    async def __aenter__(self) -> Self:
        self.controller = Controller(self.server, self.kubeconfig)
        await self.controller.__aenter__()
        try:
            return await super().__aenter__()
        except BaseException:
            await self.controller.__aexit__()
            raise

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        await self.controller.__aexit__()


class Controller(Contender):
    ready_sign = "ready queues"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "pumice", "controller", "--kubeconfig", str(self.kubeconfig), "--listen-address",
                "127.0.0.1:0"]  # fmt: skip


class NullBinder(Contender):
    schedules = NULL_BINDER
    agents = (NULL_BINDER,)
    ready_sign = "ready nodes"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.end_to_end.null_binder", str(self.kubeconfig)]


class KubeScheduler(Contender):
    schedules = "default-scheduler"
    agents = ("kube-scheduler",)
    chooses_cards = False

    def command(self) -> list[str]:
        config = self.server.directory / "kube-scheduler.yaml"
        config.write_text(yaml.safe_dump({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), **KUBE_SCHEDULER_LIMITS},
            "leaderElection": {"leaderElect": False},
        }))  # fmt: skip
        return [str(find_assets() / "kube-scheduler"), f"--config={config}", "--secure-port=0"]
