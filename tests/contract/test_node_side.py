"""The node plugin on a real API: what it reads and writes must mean the same to the embedded and the real server.

The plugin runs as a process of its own on an emulated machine, so that it can be killed, and as the service account of its
manifest; the kubelet is a small one in the test.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from kit.control_plane import Api
from kit.manifests import token_of
from kit.node_objects import container, gives
from kit.node_world import FakeKubelet, until

from pumice.wire import names
from pumice_lab.machine import MachineError, create, library_dir, machine_of, open_machine

NUMBER = names.VGPU_NUMBER
CARDS = [card.uuid for card in machine_of("2xGeForce-GTX-1080-Ti", name="contract").cards]


class Node:
    """One node of the API server under test, with its folder and its machine."""

    def __init__(self, api: Api, name: str, root: Path) -> None:
        self.api, self.name, self.root = api, name, root
        self.plugins, self.hook = root / "dp", root / "hook"
        self.plugins.mkdir()
        create(machine_of("2xGeForce-GTX-1080-Ti", name="contract"), root / "machine").close()
        (root / "lib.so").write_bytes(b"\x7fELF")
        (root / "kubeconfig").write_text(yaml.safe_dump(_kubeconfig(api)))
        api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    def start(self) -> subprocess.Popen[bytes]:
        words = ["device-plugin", "nvidia", "--node-name", self.name, "--kubeconfig", self.root / "kubeconfig",
                 "--kubelet-socket", self.plugins / "kubelet.sock", "--hook-path", self.hook,
                 "--lock-dir", self.root / "lock", "--library", self.root / "lib.so"]  # fmt: skip
        environment = {**os.environ, "PUMICE_MACHINE": str(self.root / "machine"), "PUMICE_NVML": str(library_dir())}
        with open(self.root / "plugin.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pumice", *map(str, words)], env=environment, stdout=log, stderr=log
            )

    def log(self) -> str:
        return (self.root / "plugin.log").read_text()

    def object(self) -> dict[str, Any]:
        return self.api.get(f"/api/v1/nodes/{self.name}")

    def pod(self, name: str, devices: str, *containers: dict[str, Any]) -> None:
        """A pod as the scheduler leaves it: created, then bound with its annotations."""
        notes = {
            names.VGPU_NODE: self.name, names.VGPU_TIME: "1760000000", names.VGPU_IDS: devices,
            names.DEVICES_TO_ALLOCATE: devices, names.BIND_PHASE: "allocating", names.BIND_TIME: "1760000000",
        }  # fmt: skip
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"image": "x", **c} for c in containers], "schedulerName": "volcano"},
        }
        self.api.create("/api/v1/namespaces/default/pods", body)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "annotations": notes},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.name},
        }
        self.api.create(f"/api/v1/namespaces/default/pods/{name}/binding", binding)

    def notes(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.api.get(f"/api/v1/namespaces/default/pods/{name}")["metadata"]["annotations"]
        return found

    def end(self, name: str, phase: str = "Failed") -> None:
        """As the kubelet does with a pod that it refuses."""
        status = {"phase": phase, "reason": "UnexpectedAdmissionError"}
        self.api.merge(f"/api/v1/namespaces/default/pods/{name}/status", {"status": status})


def _kubeconfig(api: Api) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": api.url, "certificate-authority": str(api.ca)}}],
        "users": [{"name": "u", "user": {"token": token_of(api, "volcano-vgpu-device-plugin.yml", "volcano-device-plugin")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }


@pytest.fixture
def node(api: Api, request: pytest.FixtureRequest) -> Iterator[Node]:
    try:
        library_dir()
    except MachineError as error:
        pytest.skip(str(error))
    root = Path(tempfile.mkdtemp(prefix="pumice"))  # a socket path has at most 107 bytes
    name = f"node-{random.Random(request.node.name).getrandbits(24):x}"
    try:
        made = Node(api, name, root)
        try:
            yield made
        finally:
            pods = api.get("/api/v1/namespaces/default/pods", fieldSelector=f"spec.nodeName={name}")
            for pod in pods["items"]:
                api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)
            api.delete(f"/api/v1/nodes/{name}")
    finally:
        shutil.rmtree(root)


@asynccontextmanager
async def kubelet_of(node: Node) -> AsyncIterator[FakeKubelet]:
    kubelet = FakeKubelet(node.plugins)
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()


@asynccontextmanager
async def plugin_of(node: Node, kubelet: FakeKubelet) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A plugin that has registered; ended politely with the block unless it is dead already."""
    kubelet.lists.clear()
    process = node.start()
    try:
        devices = await kubelet.until(NUMBER, lambda d: len(d) == 20, timeout=60)
        assert len(devices) == 20
        yield process
    except TimeoutError:
        raise AssertionError(node.log()) from None
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, 10) in (0, -9), node.log()


def test_the_node_object_says_what_the_plugin_advertises(node):
    async def play() -> None:
        async with kubelet_of(node) as kubelet, plugin_of(node, kubelet):
            await until(lambda: names.VGPU_CORES in node.object().get("status", {}).get("allocatable", {}))
            seen = node.object()
            assert seen["metadata"]["annotations"][names.NODE_VGPU_REGISTER] == "".join(
                f"{uuid},10,11178,NVIDIA-NVIDIA GeForce GTX 1080 Ti,true,hami-core:" for uuid in CARDS
            )
            for table in ("capacity", "allocatable"):
                assert seen["status"][table][names.VGPU_MEMORY] == "22356"
                assert seen["status"][table][names.VGPU_CORES] == "200"

    asyncio.run(play())


def test_a_bound_pod_is_served_and_marked(node):
    async def play() -> None:
        async with kubelet_of(node) as kubelet, plugin_of(node, kubelet):
            node.api.merge(f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": {"hamivgpu": "2026-01-01T00:00:00Z"}}})
            node.pod("served", f"{gives(CARDS[1])};{gives(CARDS[0])}", container("a", 1), container("b", 1))
            first, second = await kubelet.allocate(NUMBER, 1), await kubelet.allocate(NUMBER, 1)
            assert [a.envs["NVIDIA_VISIBLE_DEVICES"] for a in (first, second)] == [CARDS[1], CARDS[0]]
            notes = node.notes("served")
            assert (notes[names.BIND_PHASE], notes[names.DEVICES_TO_ALLOCATE]) == ("success", ";")
            assert notes[names.VGPU_IDS] == f"{gives(CARDS[1])};{gives(CARDS[0])}"
            await until(lambda: "hamivgpu" not in node.object()["metadata"].get("annotations", {}))

    asyncio.run(play())


def test_a_refused_pod_is_marked_and_has_an_event(node):
    async def play() -> None:
        async with kubelet_of(node) as kubelet, plugin_of(node, kubelet):
            node.pod("refused", gives("GPU-of-another-node"), container("a", 1))
            with pytest.raises(grpc.aio.AioRpcError, match="pod default/refused: card GPU-of-another-node is not on this"):
                await kubelet.allocate(NUMBER, 1)
            assert node.notes("refused")[names.BIND_PHASE] == "failed"
            path, selector = "/api/v1/namespaces/default/events", "involvedObject.name=refused"
            reasons = [event["reason"] for event in node.api.get(path, fieldSelector=selector)["items"]]
            assert "VGPUAllocationFailed" in reasons

    asyncio.run(play())


def test_a_critical_error_of_a_card_reaches_the_node_object_and_takes_its_shares_away(node):
    async def play() -> None:
        async with kubelet_of(node) as kubelet, plugin_of(node, kubelet):
            with open_machine(node.root / "machine") as machine:
                machine.raise_xid(1, 79)
            devices = await kubelet.until(NUMBER, lambda d: not all(d.values()))
            assert {unit for unit, healthy in devices.items() if not healthy} == {f"{CARDS[1]}-{i}" for i in range(10)}
            await until(lambda: ",false," in node.object()["metadata"]["annotations"][names.NODE_VGPU_REGISTER])
            await until(lambda: node.object()["status"]["allocatable"][names.VGPU_MEMORY] == "11178")
            node.pod("late", gives(CARDS[1]), container("a", 1))
            with pytest.raises(grpc.aio.AioRpcError, match=f"card {CARDS[1]} takes no pods: Xid 79"):
                await kubelet.allocate(NUMBER, 1, [f"{CARDS[0]}-0"])

    asyncio.run(play())


@pytest.mark.timeout(180)
def test_a_plugin_killed_during_allocate_books_nothing_twice_and_loses_nothing(node):
    """Killed at any moment of the call: the kubelet refuses that pod, and the next plugin goes on from the annotations."""
    dice = random.Random(20260820)

    async def play() -> None:
        async with kubelet_of(node) as kubelet:
            for turn in range(4):
                name = f"turn-{turn}"
                node.pod(name, f"{gives(CARDS[0])};{gives(CARDS[1])}", container("a", 1), container("b", 1))
                handed = []
                async with plugin_of(node, kubelet) as plugin:
                    handed.append((await kubelet.allocate(NUMBER, 1)).envs["NVIDIA_VISIBLE_DEVICES"])
                    call = asyncio.create_task(kubelet.allocate(NUMBER, 1))
                    await asyncio.sleep(dice.uniform(0.0, 0.012))
                    plugin.kill()
                    try:
                        handed.append((await call).envs["NVIDIA_VISIBLE_DEVICES"])
                    except grpc.aio.AioRpcError:
                        await asyncio.to_thread(node.end, name)
                assert handed in ([CARDS[0]], CARDS), "a segment was handed out twice"
                if len(handed) == 2:
                    await asyncio.to_thread(node.end, name, "Running")
                async with plugin_of(node, kubelet):
                    if len(handed) == 1:
                        await until(lambda name=name: node.notes(name)[names.BIND_PHASE] != "allocating")
                    with pytest.raises(grpc.aio.AioRpcError, match="no pod of this node waits"):
                        await kubelet.allocate(NUMBER, 1)
                assert node.notes(name)[names.VGPU_IDS] == f"{gives(CARDS[0])};{gives(CARDS[1])}"
                await asyncio.to_thread(node.end, name)

    asyncio.run(play())
