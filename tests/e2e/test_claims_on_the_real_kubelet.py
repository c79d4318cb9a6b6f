"""The driver of claims under the real kubelet and containerd 2: a share beside an annotated one, kills, and a restart."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import real_kubelet

from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json
from pumice_lab import kube_control_plane, pki
from pumice_lab.machine import library_dir

ROOT = Path(__file__).parents[2]
NODE, TOKEN = "real-1", "kubelet-token-of-this-test"
pytestmark = pytest.mark.e2e


@dataclass
class World:
    node: real_kubelet.RealNode
    kubeconfig: Path
    directory: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def kubectl(self, *words: str, given: str | None = None) -> str:
        command = [str(Path(os.environ["KUBEBUILDER_ASSETS"], "kubectl")), f"--kubeconfig={self.kubeconfig}", *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}\n{self.logs()}"
        return done.stdout

    def apply(self, *objects: Json) -> None:
        self.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str = "") -> Any:
        return json.loads(self.kubectl("get", kind, *([name] if name else []), "-o", "json"))

    def until(self, true: Callable[[], Any], what: str, seconds: float = 90) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := true()):
            assert time.monotonic() < deadline, f"{what}\n{self.kubectl('get', 'events')}\n{self.logs()}"
            time.sleep(0.3)
        return found

    def phase(self, pod: str) -> str:
        return str(self.get("pod", pod)["status"].get("phase"))

    def start(self, name: str) -> None:
        vgpu = f"--hook-path={self.directory}/vgpu"
        cards = [f"--nvml={library_dir()}", vgpu, f"--cdi-root={self.node.cdi_folder}", f"--node-name={NODE}"]
        command = {
            "scheduler": ["scheduler", "--listen-address=127.0.0.1:0"],
            "device-plugin": ["device-plugin", "nvidia", "--cdi=on", *cards],
            "dra-driver": ["dra-driver", "nvidia", f"--kubelet-dir={self.node.root}/kubelet", *cards],
        }[name]  # fmt: skip
        environ = {**os.environ, "PUMICE_MACHINE": str(self.directory / "machine"), "NODE_NAME": NODE}
        with (self.directory / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen([sys.executable, "-m", "pumice", *command, f"--kubeconfig={self.kubeconfig}"],
                                                  env=environ, stdout=log, stderr=log)  # fmt: skip

    def kill(self, name: str) -> None:
        self.daemons[name].send_signal(signal.SIGKILL)
        self.daemons[name].wait()

    def book(self) -> list[str]:
        path = self.directory / "machine/run/claims.json"
        return [one["name"] for one in json.loads(path.read_bytes())["claims"]] if path.exists() else []

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2500:]}"
                         for log in sorted(self.directory.glob("*.log")))  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if reason := real_kubelet.missing():
        pytest.skip(reason)
    if not (real_kubelet.containerd_2() / "containerd").exists():
        pytest.skip("KUBEBUILDER_ASSETS has no containerd 2 (make kube)")
    directory = tmp_path_factory.mktemp("c")
    now = datetime.datetime.now(datetime.UTC)
    keys = pki.ensure_pki(directory / "pki", ["127.0.0.1", "localhost"], now)
    certificate = pki.issue(keys, "kubelet", [real_kubelet.NODE_IP], now)
    plane = asyncio.run(kube_control_plane.start(
        kube_control_plane.find_assets(), directory, directory, keys, clock=SystemClock(), controller_manager=True,
        users=[f'{TOKEN},system:node:{NODE},{NODE},"system:nodes"']))  # fmt: skip
    kubeconfig = kube_control_plane.kubeconfig(keys, plane.server, directory / "kubeconfig")
    try:
        with real_kubelet.real_node(directory / "node", plane.server, TOKEN, certificate, NODE,
                                    programs=real_kubelet.containerd_2()) as node:  # fmt: skip
            found = World(node, kubeconfig, directory)
            try:
                _prepare(found)
                yield found
            finally:
                for daemon in found.daemons.values():
                    daemon.kill()
                    daemon.wait()
    finally:
        for process in plane.processes.values():
            process.kill()


def _prepare(world: World) -> None:
    model = world.directory / "machine.yaml"
    model.write_text(yaml.safe_dump({"cards": [{"preset": "GeForce-GTX-1080-Ti", "count": 2}]}))
    machine = [sys.executable, "-m", "pumice", "machine", "create", str(world.directory / "machine"), "--model", str(model)]
    subprocess.run(machine, check=True)
    world.until(lambda: [one for one in world.get("nodes")["items"] for said in one["status"].get("conditions", ())
                         if (said["type"], said["status"]) == ("Ready", "True")], "the node is not ready")  # fmt: skip
    world.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy/manifests/crds"))
    world.kubectl("create", "namespace", "volcano-system")
    world.kubectl("apply", "-f", str(ROOT / "examples/vgpu-user-guide/scheduler-config.yaml"))
    world.kubectl("apply", "-f", str(ROOT / "examples/claims/classes.yaml"))
    for name in ("scheduler", "device-plugin", "dra-driver"):
        world.start(name)
    world.until(lambda: world.get("resourceslices")["items"], "no slices")
    ready = "volcano.sh/vgpu-number"
    world.until(lambda: world.get("node", NODE)["status"]["allocatable"].get(ready) == "20", "no shares")


def pod(name: str, **more: Any) -> Json:
    container = {"name": "c", "image": real_kubelet.IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"], **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False,
        "containers": [container]}}  # fmt: skip


def by_claim(name: str) -> Json:
    made = pod(name, resources={"claims": [{"name": "gpu"}]})
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "half-a-card"}]
    return made


def test_the_guides_pod_written_as_a_claim_runs_beside_an_annotated_one_each_held_to_its_share(world: World) -> None:
    template, _ = yaml.safe_load_all((ROOT / "examples/claims/pod.yaml").read_text())
    world.apply(template, by_claim("a"))
    world.until(lambda: world.phase("a") == "Running", "the pod with a claim does not run")
    seen = world.kubectl("exec", "a", "--", "env")
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=3000m" in seen
    assert "CUDA_DEVICE_SM_LIMIT=50" in seen
    assert world.kubectl("exec", "a", "--", "cat", "/etc/ld.so.preload").strip() == "/usr/local/vgpu/libvgpu.so"
    card = seen.partition("NVIDIA_VISIBLE_DEVICES=")[2].split()[0]

    def closed() -> bool:  # to annotated pods, within the plugin's look
        notes = world.get("node", NODE)["metadata"]["annotations"]["volcano.sh/node-vgpu-register"]
        return any(card in part and "false" in part for part in notes.split(":"))

    world.until(closed, "the card that a claim holds is not closed to annotated pods")
    world.apply(pod("b", resources={"limits": {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 2000}}))
    world.until(lambda: world.phase("b") == "Running", "the annotated pod does not run")
    other = world.kubectl("exec", "b", "--", "env")
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=2000m" in other
    assert card not in other
    taints = {one["name"]: one.get("taints", ()) for one in world.get("resourceslices")["items"][0]["spec"]["devices"]}
    world.until(lambda: sorted(len(one.get("taints", ())) for one in world.get("resourceslices")["items"][0]["spec"]["devices"])
                == [0, 1], f"the card with an annotated share is not tainted: {taints}")  # fmt: skip


def test_a_killed_driver_and_a_restarted_kubelet_keep_the_share_and_slices_come_back(world: World) -> None:
    before = world.book()
    assert len(before) == 1
    world.kill("dra-driver")
    world.node.restart_kubelet()  # it deletes all slices of the node
    world.until(lambda: not world.get("resourceslices")["items"], "the kubelet has not taken the slices away")
    world.start("dra-driver")
    world.until(lambda: world.get("resourceslices")["items"], "the slices have not come back")
    assert world.book() == before
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=3000m" in world.kubectl("exec", "a", "--", "env")
    world.apply(by_claim("second"))
    world.until(lambda: world.phase("second") == "Running", "a second half of the card is not given")
    assert len(world.book()) == 2


def test_claims_go_from_the_book_with_their_pods_also_while_the_driver_was_away(world: World) -> None:
    world.kubectl("delete", "pod", "second", "--wait=false")
    world.until(lambda: len(world.book()) == 1, "the claim is still booked")
    world.kill("dra-driver")
    world.kubectl("delete", "pod", "a", "--wait=false")
    world.start("dra-driver")
    world.until(lambda: not world.book(), "the claim whose pod went meanwhile is still booked", 180)
    assert not list(world.node.cdi_folder.glob("pumice.io-claim_*"))
