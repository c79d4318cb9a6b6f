"""NPUs: an emulated machine with them and what its ``npu-smi`` and programs say; the same in a cluster of this machine; and two
chips without a driver. Programs run in children: the driver's library serves one machine in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kit.local_cluster import LocalCluster, phase
from pumice.ports.cards import LOST, CardEvent, CardFacts, CardReading
from pumice.ports.cluster import Json
from pumice.ports.slices import NpuRefused, Vnpu
from pumice.wire.kinds import CONFIGMAPS, PODS
from pumice_lab.machine.npus import NpuState, create_npus, npu_environment, read_npus


@dataclass(frozen=True)
class NpuMachine:
    directory: Path

    def smi(self, *words: str, env: dict[str, str] | None = None, answer: str = "") -> subprocess.CompletedProcess[str]:
        return self.run([sys.executable, "-m", "pumice_lab.machine.npu_smi", *words], env, answer)

    def make(self, template: str, chip: int = 0) -> int:
        """The id of a slice that somebody made by hand."""
        done = self.smi("set", "-t", "create-vnpu", "-i", str(chip), "-c", "0", "-f", template)
        assert done.returncode == 0, done.stdout
        return next(int(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("Vnpu ID"))

    def hook(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run([sys.executable, "-m", "pumice_lab.ascend_runtime", *words])

    def python(self, text: str, env: dict[str, str] | None = None) -> Any:
        """Return a program's JSON output."""
        done = self.run([sys.executable, "-c", text], env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run(self, argv: Sequence[str], env: dict[str, str] | None = None, answer: str = "") -> subprocess.CompletedProcess[str]:
        around = {**os.environ, **npu_environment(self.directory), "PATH": os.environ["PATH"], **(env or {})}
        return subprocess.run(list(argv), capture_output=True, text=True, env=around, input=answer, timeout=60)

    def slices(self, chip: int = 0) -> list[tuple[int, str]]:
        """(id, template) of what is there."""
        row = self.state.chips[chip]
        return [(s.id, row.templates[s.template].name.decode()) for s in row.slices if s.used]

    @property
    def state(self) -> NpuState:
        return read_npus(self.directory)


def npu_machine(directory: Path, *chips: str) -> NpuMachine:
    create_npus(chips or ("310P3",), directory)
    return NpuMachine(directory)


# -- Emulated NPUs in a cluster of this machine: a scheduler as an example has it, and pods that run a script


EXAMPLES = Path(__file__).parents[1] / "examples"


def go_by(cluster: LocalCluster, example: str) -> None:
    """Give the scheduler the configuration that stands in this example."""
    found = yaml.safe_load_all((EXAMPLES / example).read_text())
    data = next(obj["data"] for obj in found if obj["kind"] == "ConfigMap")
    cluster.ask(lambda kube: kube.patch(CONFIGMAPS, "volcano-scheduler-configmap", {"data": data}, "volcano-system"))


def script_pod(name: str, script: str, limits: dict[str, str], **metadata: Any) -> Json:
    """A pod that runs the script once, and then stays."""
    container = {"name": "c", "image": "x", "command": ["sh", "-c", f"({script}) 2>&1; echo over; sleep 1000"],
                 "resources": {"limits": limits}}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [container]}}  # fmt: skip


def machine(cluster: LocalCluster, node: str) -> NpuMachine:
    return NpuMachine(cluster.data.node(node) / "machine")


def said(cluster: LocalCluster, name: str) -> str:
    """Return the output of the newest container's script, once it is over."""

    async def log(kube: Any) -> str:
        if await phase(kube, name) != "Running":
            return ""
        found = sorted((cluster.data.root / "nodes").glob(f"*/logs/default_{name}_*/c/*.log"))
        return text if found and "over" in (text := found[-1].read_text()) else ""

    return str(cluster.wait(log))


def until_slices(cluster: LocalCluster, node: str, wanted: list[tuple[int, str]]) -> None:
    """On the node's two chips, once the plugin or the runtime has done its work."""
    found = machine(cluster, node)

    async def there(kube: Any) -> bool:
        return [*found.slices(0), *found.slices(1)] == wanted

    cluster.wait(there)


def ran(cluster: LocalCluster, pod: Json) -> str:
    """Return the output of a new pod's script."""
    cluster.ask(lambda kube: kube.create(PODS, pod))
    return said(cluster, pod["metadata"]["name"])


# -- Two 310P chips as a node's plugin meets them, without a driver


U = tuple(f"{at:08X}-00000000-00000000-00000000-00000000" for at in (1, 2))


@dataclass
class Npus:
    """Two 310P cards and their slices (``ports.cards.Cards`` and ``ports.slices.Vnpus``)."""

    ill: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    measured: tuple[CardReading, ...] = ()
    made: dict[str, dict[int, Vnpu]] = field(default_factory=lambda: {uuid: {} for uuid in U})

    def facts(self) -> tuple[CardFacts, ...]:
        return tuple(CardFacts(at, uuid, "310P3", 24 << 30, minor=at) for at, uuid in enumerate(U) if uuid not in self.gone)

    def readings(self) -> tuple[CardReading, ...]:
        return self.measured

    def subscribe(self, uuids: Any) -> dict[str, str]:
        return {uuid: self.ill[uuid] for uuid in uuids if uuid in self.ill}

    def events(self) -> tuple[CardEvent, ...]:
        return tuple(CardEvent(uuid, LOST, text) for uuid, text in self.ill.items())

    def answers(self, uuid: str) -> bool:
        return uuid not in self.ill and uuid not in self.gone

    def close(self) -> None:
        return

    def list(self, chip: str) -> tuple[Vnpu, ...]:
        if chip in self.mute:
            raise NpuRefused("the device is not ready", -8012)
        return tuple(self.made[chip].values())

    def make(self, chip: str, template: str, ident: int | None = None) -> int:
        if template in self.refused:
            raise NpuRefused("check aicore num failed", -8001)
        ident = max([99, *self.made[chip]]) + 1 if ident is None else ident
        self.made[chip][ident] = Vnpu(ident, template)
        return ident

    def destroy(self, chip: str, ident: int) -> None:
        if self.made[chip][ident].busy:
            raise NpuRefused("the resource is busy", -8020)
        del self.made[chip][ident]
