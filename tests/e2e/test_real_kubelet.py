"""Our scheduler and device plugin under a real kubelet: the guide's pod in a real container sees what it was granted."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import real_kubelet

from pumice.adapters.kube import KubeClient
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json, Resource
from pumice.wire import limits_page
from pumice.wire.kinds import NODES, PODS
from pumice_lab import kube_control_plane, pki
from pumice_lab.machine import library_dir

ROOT = Path(__file__).parents[2]
NODE = "real-1"
PUMICE = [sys.executable, "-m", "pumice"]
KUBELET_TOKEN = "kubelet-token-of-this-test"

pytestmark = pytest.mark.e2e


@dataclass
class World:
    kubeconfig: Path
    directory: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def kubectl(self, *arguments: str) -> str:
        command = [str(Path(os.environ["KUBEBUILDER_ASSETS"], "kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}\n{self.logs()}"
        return done.stdout

    def nvidia_smi(self, *words: str) -> str:
        """On the host."""
        machine = self.directory / "machine"
        environ = {**os.environ, "PUMICE_MACHINE": str(machine), "LD_LIBRARY_PATH": str(library_dir())}
        done = subprocess.run([str(machine / "bin/nvidia-smi"), *words], env=environ, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def slices(self) -> dict[str, str]:
        """UUID to profile."""
        lines = (line.split() for line in self.nvidia_smi("-L").splitlines() if line.startswith("  MIG "))
        return {words[-1].rstrip(")"): words[1] for words in lines}

    def start(self, name: str) -> None:
        """One of our daemons."""
        command = {
            "scheduler": ["scheduler", f"--kubeconfig={self.kubeconfig}", "--listen-address=127.0.0.1:0"],
            "device-plugin": ["device-plugin", "nvidia", f"--kubeconfig={self.kubeconfig}", f"--node-name={NODE}",
                              f"--nvml={library_dir()}", f"--hook-path={self.directory}/vgpu"],
        }[name]  # fmt: skip
        environ = {**os.environ, "PUMICE_MACHINE": str(self.directory / "machine"), "NODE_NAME": NODE}
        with (self.directory / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen([*PUMICE, *command], env=environ, stdout=log, stderr=log)

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}"
                         for log in sorted(self.directory.glob("*.log")))  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """etcd, kube-apiserver, containerd and kubelet; on them our scheduler and device plugin with an emulated machine."""
    if reason := real_kubelet.missing():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("e2e")
    now = datetime.datetime.now(datetime.UTC)
    keys = pki.ensure_pki(directory / "pki", ["127.0.0.1", "localhost"], now)
    certificate = pki.issue(keys, "kubelet", [real_kubelet.NODE_IP], now)
    plane = asyncio.run(_start_plane(directory, keys))
    kubeconfig = kube_control_plane.kubeconfig(keys, plane.server, directory / "kubeconfig")
    world = World(kubeconfig, directory)
    try:
        with real_kubelet.real_node(directory / "node", plane.server, KUBELET_TOKEN, certificate, NODE):
            wait_for(world, NODES, NODE, "", lambda node: _ready(node), 60)
            world.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy/manifests/crds"))
            world.kubectl("create", "namespace", "volcano-system")
            world.kubectl("apply", "-f", str(ROOT / "examples/vgpu-user-guide/scheduler-config.yaml"))
            _make_machine(directory)
            world.start("scheduler")
            world.start("device-plugin")
            wait_for(world, NODES, NODE, "", lambda n: n["status"]["allocatable"].get("volcano.sh/vgpu-number") == "30", 60)
            yield world
    finally:
        for daemon in world.daemons.values():
            daemon.terminate()
        for daemon in world.daemons.values():
            daemon.wait(20)
        for process in plane.processes.values():
            subprocess.run(["kill", "-9", str(process.pid)], capture_output=True)


async def _start_plane(directory: Path, keys: pki.Pki) -> kube_control_plane.KubeControlPlane:
    return await kube_control_plane.start(
        kube_control_plane.find_assets(), directory, directory, keys, clock=SystemClock(), controller_manager=False,
        users=[f'{KUBELET_TOKEN},system:node:{NODE},{NODE},"system:nodes"'])  # fmt: skip


def _make_machine(directory: Path) -> None:
    model = directory / "machine.yaml"
    model.write_text(yaml.safe_dump({"cards": [{"preset": "GeForce-GTX-1080-Ti", "count": 2},
                                               {"preset": "A100-SXM4-40GB", "mig": True}]}))  # fmt: skip
    subprocess.run([*PUMICE, "machine", "create", str(directory / "machine"), "--model", str(model)], check=True)


def _ready(node: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))


def wait_for(world: World, resource: Resource, name: str, namespace: str, holds: Any, seconds: float) -> Json:
    async def watch() -> Json:
        last: Json = {}
        async with KubeClient.from_kubeconfig(world.kubeconfig) as kube:
            deadline = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < deadline:
                items = (await kube.list(resource, namespace, field_selector=f"metadata.name={name}"))["items"]
                if items and holds(last := items[0]):
                    return last
                await asyncio.sleep(0.1)
        raise AssertionError(f"{name} did not get there within {seconds:.0f} s: {last.get('status')}\n{world.logs()}")

    return asyncio.run(watch())


def test_the_guides_pod_runs_in_a_real_container_and_sees_its_share(world: World) -> None:
    pod = yaml.safe_load((ROOT / "examples/vgpu-user-guide/hami-pod.yaml").read_text())
    container = pod["spec"]["containers"][0]
    container |= {"image": real_kubelet.IMAGE, "imagePullPolicy": "Never",
                  "command": ["sleep", "1000"]}  # fmt: skip
    manifest = world.directory / "pod.yaml"
    manifest.write_text(yaml.safe_dump(pod))
    world.kubectl("apply", "-f", str(manifest))
    running = wait_for(world, PODS, "hami-pod", "default", lambda p: p["status"].get("phase") == "Running", 60)

    annotations = running["metadata"]["annotations"]
    assert annotations["volcano.sh/vgpu-node"] == NODE
    assert annotations["volcano.sh/bind-phase"] == "success"
    uuid, device_type, memory, cores = annotations["volcano.sh/vgpu-ids-new"].rstrip(":").split(",")
    assert (device_type, memory, cores) == ("NVIDIA", "3000", "50")
    seen = world.kubectl("exec", "hami-pod", "--", "env")
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=3000m" in seen
    assert "CUDA_DEVICE_SM_LIMIT=50" in seen
    assert f"NVIDIA_VISIBLE_DEVICES={uuid}" in seen
    assert world.kubectl("exec", "hami-pod", "--", "cat", "/etc/ld.so.preload").strip() == "/usr/local/vgpu/libvgpu.so"
    assert "libvgpu.so" in world.kubectl("exec", "hami-pod", "--", "ls", "/usr/local/vgpu")
    region = seen.partition("CUDA_DEVICE_MEMORY_SHARED_CACHE=")[2].split()[0]
    attempts = f"for file in {region} {limits_page.PATH}; do rm -f $file; mv $file $file.old; done; : > {limits_page.PATH}; "
    script = f"({attempts}) 2>/dev/null; ls {region} && wc -c < {limits_page.PATH}"
    left = world.kubectl("exec", "hami-pod", "--", "sh", "-c", script)
    assert left.split()[0] == region
    assert int(left.split()[1]) >= limits_page.BYTES


def test_two_pods_share_one_card_and_a_third_that_cannot_fit_says_why(world: World) -> None:
    def pod(name: str, memory: int) -> str:
        return yaml.safe_dump({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [{
                "name": "c", "image": real_kubelet.IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"],
                "resources": {"limits": {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": memory}}}]}})  # fmt: skip

    for name, memory in (("one", 2000), ("two", 2000), ("three", 50000)):
        manifest = world.directory / f"{name}.yaml"
        manifest.write_text(pod(name, memory))
        world.kubectl("apply", "-f", str(manifest))
    cards = set()
    for name in ("one", "two"):
        running = wait_for(world, PODS, name, "default", lambda p: p["status"].get("phase") == "Running", 60)
        cards.add(running["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"].split(",")[0])
    assert len(cards) == 1

    def reported(waiting: Json) -> bool:
        conditions = {c["type"]: c for c in waiting["status"].get("conditions", ())}
        return "memory" in conditions.get("PodScheduled", {}).get("message", "")

    wait_for(world, PODS, "three", "default", reported, 30)


def slice_pod(world: World, name: str, memory: int) -> dict[str, str]:
    """The environment of a pod in mode mig, once it runs."""
    manifest = world.directory / f"{name}.yaml"
    manifest.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {"volcano.sh/vgpu-mode": "mig"}},
        "spec": {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "c", "image": real_kubelet.IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"],
            "resources": {"limits": {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": memory}}}]}}))  # fmt: skip
    world.kubectl("apply", "-f", str(manifest))
    wait_for(world, PODS, name, "default", lambda p: p["status"].get("phase") == "Running", 60)
    return dict(line.split("=", 1) for line in world.kubectl("exec", name, "--", "env").splitlines() if "=" in line)


def test_a_pod_in_mode_mig_gets_a_slice_that_is_cut_for_it_and_the_next_one_gets_it_again(world: World) -> None:
    given = []
    for name in ("sliced", "sliced-again"):
        seen = slice_pod(world, name, 3000)
        assert not [variable for variable in seen if variable.startswith("CUDA_")], "the hardware keeps a slice's limits"
        assert world.slices() == {seen["NVIDIA_VISIBLE_DEVICES"]: "1g.5gb"}
        given.append(seen["NVIDIA_VISIBLE_DEVICES"])
        world.kubectl("delete", "pod", name, "--wait")
    assert given[0] == given[1]


def test_a_pod_whose_slice_came_back_under_another_name_is_ended_by_the_kubelet_with_the_reason(world: World) -> None:
    was = slice_pod(world, "booted", 18000)["NVIDIA_VISIBLE_DEVICES"]
    world.daemons["device-plugin"].terminate()
    world.daemons["device-plugin"].wait(20)
    world.nvidia_smi("mig", "-i", "2", "-dci")
    world.nvidia_smi("mig", "-i", "2", "-dgi")
    world.start("device-plugin")

    def ended(pod: Json) -> bool:
        states = [status["state"] for status in pod["status"].get("containerStatuses", [])]
        return pod["status"].get("phase") == "Failed" and bool(states) and all("terminated" in state for state in states)

    gone = wait_for(world, PODS, "booted", "default", ended, 60)
    assert f"it was given {was}" in gone["metadata"]["annotations"]["pumice.io/slice-gone"]
    assert list(world.slices().values()) == ["3g.20gb"]


def test_a_low_pods_card_goes_to_a_high_one_whose_container_starts_when_the_other_is_gone(world: World) -> None:
    world.kubectl("delete", "pods", "--all", "--wait")
    example = ROOT / "examples/preemption"
    world.kubectl("apply", "-f", str(example / "scheduler-config.yaml"))
    classes, work = yaml.safe_load_all((example / "low.yaml").read_text())
    template = work["spec"]["template"]
    manifests = [classes]
    for number in range(2):
        manifests.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"low-{number}"}, "spec": template["spec"]})
    manifests += yaml.safe_load_all((example / "high.yaml").read_text())
    for manifest in manifests:
        if manifest["kind"] == "Pod":
            manifest["metadata"]["annotations"] = {"volcano.sh/vgpu-mode": "hami-core"}  # two of the three cards
            manifest["spec"]["containers"][0] |= {"image": real_kubelet.IMAGE, "imagePullPolicy": "Never"}
    *low, high = manifests
    _apply(world, "low", *low)
    for number in range(2):
        wait_for(world, PODS, f"low-{number}", "default", lambda p: p["status"].get("phase") == "Running", 60)

    _apply(world, "high", high)
    waiting = wait_for(world, PODS, "urgent", "default", lambda p: p["status"].get("nominatedNodeName") == NODE, 30)
    assert not waiting["spec"].get("nodeName"), "the card is held still"
    seen_leaving = False
    for _ in range(300):
        items = json.loads(world.kubectl("get", "pods", "-o", "json"))["items"]
        pods = {item["metadata"]["name"]: item for item in items}
        leaving = [name for name, pod in pods.items() if pod["metadata"].get("deletionTimestamp")]
        if not leaving and len(pods) == 2:
            break
        seen_leaving = seen_leaving or bool(leaving)
        assert not pods["urgent"]["spec"].get("nodeName"), "it was bound while the other's container could still run"
    assert seen_leaving
    running = wait_for(world, PODS, "urgent", "default", lambda p: p["status"].get("phase") == "Running", 60)
    mine = running["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"].split(",")[0]
    (left,) = (pod for name, pod in pods.items() if name != "urgent")
    assert left["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"].split(",")[0] != mine
    events = world.kubectl("get", "events", "--field-selector", "reason=Evict", "-o", "jsonpath={.items[*].message}")
    assert "Pod is evicted, because of preempt" in events


def _apply(world: World, name: str, *manifests: Json) -> None:
    file = world.directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    world.kubectl("apply", "-f", str(file))
