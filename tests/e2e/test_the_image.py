"""As an administrator does it: the image is built, containerd is handed it, the manifests are applied as they are, and the
kubelet runs the daemons, which give the guide's pod its share."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kit import real_kubelet
from kit.installing import CHART, helm

from pumice import __version__
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json
from pumice_lab import kube_control_plane, pki
from pumice_lab.machine import library_dir

ROOT = Path(__file__).parents[2]
PAGE, START = ((ROOT / page).read_text("utf-8") for page in ("docs/how-to/kubernetes.md", "docs/start/cluster.md"))
NODE, TOKEN = "real-1", "kubelet-token-of-this-test"
API_SERVER = "10.96.0.1"  # where pods look for it: the first address of the services, here an address of this machine itself
APPLIED = ("crds", "volcano.yml", "volcano-vgpu-device-plugin.yml")
OF_THE_HOST = (Path("/usr/local/vgpu"), Path("/run/pumice"), Path("/tmp/vgpulock"))  # which the kubelet makes for the manifests
REGISTERED = "volcano-admission-service-jobs-validate"
DAEMONS = {"volcano-scheduler", "volcano-controllers", "volcano-device-plugin", "volcano-vgpu-monitor"}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]  # most of it is building the image

DRIVER = """\
#!{python} -SE
# In runc's place: like NVIDIA's runtime it gives the driver to containers that ask for cards, here the emulated machine's.
import json, os, sys

words = sys.argv[1:]
if "create" in words:
    path = os.path.join(words[words.index("--bundle") + 1], "config.json")
    spec = json.load(open(path))
    environ = dict(pair.split("=", 1) for pair in spec["process"].get("env", []))
    if environ.get("NVIDIA_VISIBLE_DEVICES", "void") != "void":
        spec["process"]["env"] += ["LD_LIBRARY_PATH={libraries}", "PUMICE_MACHINE={machine}"]
        for place in ({libraries!r}, {machine!r}):
            mount = {{"destination": place, "source": place, "type": "bind", "options": ["rbind", "rw"]}}
            spec["mounts"].append(mount)
        json.dump(spec, open(path, "w"))
os.execvp("runc", ["runc", *words])
"""


@dataclass
class World:
    kubeconfig: Path
    directory: Path

    def kubectl(self, *arguments: str, said: str = "") -> str:
        command = [str(Path(os.environ["KUBEBUILDER_ASSETS"], "kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def pods(self) -> list[Json]:
        items: list[Json] = json.loads(self.kubectl("get", "pods", "--all-namespaces", "-o", "json"))["items"]
        return items

    def bind_what_is_not_for_volcano(self) -> None:
        """In place of kube-scheduler: there is one node."""
        for pod in self.pods():
            if pod["spec"]["schedulerName"] == "default-scheduler" and not pod["spec"].get("nodeName"):
                meta = pod["metadata"]
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]},
                           "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}}  # fmt: skip
                place = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
                self.kubectl("create", "--raw", place, "-f", "-", said=json.dumps(binding))

    def until_ready(self, names: set[str], seconds: float) -> list[Json]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.bind_what_is_not_for_volcano()
            ready = [pod for pod in self.pods() if _condition(pod, "Ready")]
            if {_maker(pod) for pod in ready} >= names:
                return ready
            time.sleep(2)
        late = [pod for pod in self.pods() if not _condition(pod, "Ready")]
        reported = "\n".join(f"{pod['metadata']['name']}: {pod['status']}\n{self._log(pod)}" for pod in late)
        raise AssertionError(f"not ready within {seconds:.0f} s:\n{reported[-6000:]}")

    def _log(self, pod: Json) -> str:
        meta = pod["metadata"]
        logs = (self.directory / "node/pod-logs").glob(f"{meta['namespace']}_{meta['name']}_*/*/*.log")
        return "\n".join(log.read_text(errors="replace")[-1500:] for log in logs)


def _condition(thing: Json, kind: str) -> bool:
    return any(one["type"] == kind and one["status"] == "True" for one in thing["status"].get("conditions", ()))


def _maker(pod: Json) -> str:
    """The name that its manifest gives what made it."""
    owners = pod["metadata"].get("ownerReferences", [{"name": pod["metadata"]["name"]}])
    return re.sub("-[0-9a-f]{6,10}$", "", owners[0]["name"])


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the page's command."""
    if reason := real_kubelet.missing():
        pytest.skip(reason)
    assert all("\nmake image\n" in page for page in (PAGE, START))
    directory = tmp_path_factory.mktemp("image")
    subprocess.run(["make", "-s", "-o", "setup", "image", f"DIST={directory}"], cwd=ROOT, check=True, timeout=400)
    return directory / "pumice-image.tar"


@pytest.fixture(scope="module")
def world(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    imports = "\nctr -n k8s.io images import dist/pumice-image.tar\n"
    assert all(imports in page for page in (PAGE, START)), "what the node's kit does"
    directory = tmp_path_factory.mktemp("e2e-image")
    now = datetime.datetime.now(datetime.UTC)
    keys = pki.ensure_pki(directory / "pki", [API_SERVER, "kubernetes.default.svc"], now)
    certificate = pki.issue(keys, "kubelet", [real_kubelet.NODE_IP], now)
    subprocess.run(["ip", "address", "add", f"{API_SERVER}/32", "dev", "lo"], check=True)
    plane, made = None, [path for path in OF_THE_HOST if not path.exists()]
    try:
        plane = asyncio.run(kube_control_plane.start(
            kube_control_plane.find_assets(), directory, directory, keys, clock=SystemClock(), address=API_SERVER, port=443,
            service_accounts=True, users=[f'{TOKEN},system:node:{NODE},{NODE},"system:nodes"']))  # fmt: skip
        world = World(kube_control_plane.kubeconfig(keys, plane.server, directory / "kubeconfig"), directory)
        runtime = _driver(directory)
        with real_kubelet.real_node(directory / "node", plane.server, TOKEN, certificate, NODE, [image], runtime):
            world.kubectl("wait", "--for=create", f"node/{NODE}", "--timeout=60s")
            world.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=60s")
            yield world
    finally:
        for process in plane.processes.values() if plane else ():
            subprocess.run(["kill", "-9", str(process.pid)], capture_output=True)
        subprocess.run(["ip", "address", "delete", f"{API_SERVER}/32", "dev", "lo"], check=True)
        for path in made:
            shutil.rmtree(path, ignore_errors=True)


def _driver(directory: Path) -> Path:
    machine = directory / "machine"
    create = [sys.executable, "-m", "pumice", "machine", "create", str(machine), "--cards", "2xGeForce-GTX-1080-Ti"]
    subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
    runtime = directory / "runtime-with-driver"
    runtime.write_text(DRIVER.format(python=sys.executable, libraries=str(library_dir()), machine=str(machine)))
    runtime.chmod(0o755)
    return runtime


def test_the_manifests_as_they_are_run_the_image_and_the_guides_pod_has_its_share(world: World) -> None:
    for file in APPLIED:
        assert f"kubectl create -f deploy/manifests/{file} " in PAGE.replace("\n", " ")
        world.kubectl("create", "-f", str(ROOT / "deploy/manifests" / file))
    daemons = [pod for pod in world.until_ready(DAEMONS, 150) if _maker(pod) in DAEMONS]
    images = {pod["status"]["containerStatuses"][0]["image"] for pod in daemons}
    assert {name.removeprefix("docker.io/") for name in images} == {f"pumice/pumice:{__version__}"}

    pod = yaml.safe_load((ROOT / "examples/vgpu-user-guide/hami-pod.yaml").read_text())
    pod["spec"]["containers"][0] |= {"image": real_kubelet.IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"]}
    world.kubectl("create", "-f", "-", said=json.dumps(pod))
    world.until_ready({"hami-pod"}, 60)
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=3000m" in world.kubectl("exec", "hami-pod", "--", "env")
    assert "libvgpu.so" in world.kubectl("exec", "hami-pod", "--", "ls", "/usr/local/vgpu")


def test_the_images_admission_server_fills_in_and_refuses(world: World) -> None:
    file = "volcano-admission.yml"
    assert f"kubectl create -f deploy/manifests/{file} " in PAGE.replace("\n", " ")
    world.kubectl("create", "-f", str(ROOT / "deploy/manifests" / file))
    world.until_ready({"volcano-admission"}, 90)
    with carried(world, "volcano-admission-service", "volcano-system"):
        world.kubectl("wait", "--for=create", f"validatingwebhookconfiguration/{REGISTERED}", "--timeout=60s")
        container = {"name": "c", "image": real_kubelet.IMAGE, "imagePullPolicy": "Never", "command": ["true"]}
        spec: Json = {"minAvailable": 1, "tasks": [{"replicas": 1, "template": {"spec": {"containers": [container]}}}]}
        job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "meant"}, "spec": spec}
        world.kubectl("create", "-f", "-", said=json.dumps(job))
        made = json.loads(world.kubectl("get", "jobs.batch.volcano.sh", "meant", "-o", "json"))["spec"]
        assert (made["queue"], made["tasks"][0]["name"]) == ("default", "default0")
        job |= {"metadata": {"name": "not-meant"}, "spec": spec | {"minAvailable": 3}}
        with pytest.raises(AssertionError, match="job 'minAvailable' should not be greater than total replicas"):
            world.kubectl("create", "-f", "-", said=json.dumps(job))
        world.kubectl("delete", "jobs.batch.volcano.sh", "meant")
    world.kubectl("delete", "-f", str(ROOT / "deploy/manifests" / file))


@contextmanager
def carried(world: World, service: str, space: str) -> Iterator[None]:
    """In place of kube-proxy: the Service's address is this machine's, and what comes there goes to the first pod behind it."""
    where = json.loads(world.kubectl("get", "service", service, "-n", space, "-o", "json"))["spec"]
    selector = ",".join(f"{key}={value}" for key, value in where["selector"].items())
    pods = json.loads(world.kubectl("get", "pods", "-n", space, "-l", selector, "-o", "json"))["items"]
    ports = {port["name"]: port["containerPort"] for port in pods[0]["spec"]["containers"][0]["ports"]}
    (port,) = where["ports"]
    address, to = where["clusterIP"], (pods[0]["status"]["podIP"], ports[port["targetPort"]])

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*to)
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(asyncio.start_server(carry, address, port["port"]), loop).result(10)
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        subprocess.run(["ip", "address", "delete", f"{address}/32", "dev", "lo"], check=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def test_the_chart_takes_the_daemons_over_and_changes_them_and_back_under_pods_that_run(world: World) -> None:
    """Every daemon is another pod twice; whoever has a card goes on, and each revision gives out cards. The admission server is
    left out: nothing here carries the API server to a Service."""
    changed: Json = {
        "custom": {"scheduler_replicas": 2, "scheduler_extraArgs": ["--log-format=json"],
                   "controller_extraArgs": ["--log-format=json"]},
        "devicePlugin": {"extraArgs": ["--log-level=debug"], "monitor": {"extraArgs": ["--log-level=debug"]}},
    }  # fmt: skip
    before = _running(world, "hami-pod")
    where = ["--namespace=volcano-system"]
    _helm(world, "upgrade", "--install", "pumice", str(CHART), *where, "--take-ownership", "--force-conflicts",
          "--set=custom.admission_enable=false")  # fmt: skip
    _guest(world, "guest-1")
    _helm(world, "upgrade", "pumice", str(CHART), *where, "--reuse-values", "--force-conflicts", values=changed)
    _settled(world, 5)
    _guest(world, "guest-2")
    _helm(world, "rollback", "pumice", "1", *where)
    _settled(world, 0)
    _guest(world, "guest-3")
    assert _running(world, "hami-pod") == before
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=3000m" in world.kubectl("exec", "hami-pod", "--", "env")


def _helm(world: World, *words: str, values: Json | None = None) -> None:
    done = helm(*words, values=values, kubeconfig=world.kubeconfig)
    assert done.returncode == 0, done.stderr


def _guest(world: World, name: str) -> None:
    limits = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 500}
    container = {"name": "c", "image": real_kubelet.IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"],
                 "resources": {"limits": limits}}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
           "spec": {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [container]}}  # fmt: skip
    world.kubectl("create", "-f", "-", said=json.dumps(pod))
    world.until_ready({name}, 90)


def _running(world: World, name: str) -> list[tuple[str, str, int]]:
    statuses = json.loads(world.kubectl("get", "pod", name, "-o", "json"))["status"]["containerStatuses"]
    return [(one["containerID"], next(iter(one["state"])), one["restartCount"]) for one in statuses]


def _settled(world: World, changed: int) -> None:
    """That many daemons have the flags of the change, all are ready, and none of another revision is left."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        world.bind_what_is_not_for_volcano()
        ours = [pod for pod in world.pods() if _maker(pod) in DAEMONS]
        flagged = [pod for pod in ours if pod["spec"]["containers"][0]["args"][-1].startswith("--log-")]
        if len(flagged) == changed and len(ours) == (changed or len(DAEMONS)) and all(_condition(pod, "Ready") for pod in ours):
            return
        time.sleep(2)
    raise AssertionError("\n".join(f"{pod['metadata']['name']}: {pod['status']}\n{world._log(pod)}" for pod in ours)[-6000:])


def test_it_holds_no_shell_and_no_cluster_of_its_own(world: World) -> None:
    scheduler = next(pod["metadata"]["name"] for pod in world.pods() if _maker(pod) == "volcano-scheduler")
    inside = ["exec", "-n", "volcano-system", scheduler, "--"]
    assert world.kubectl(*inside, "pumice", "--version").startswith("pumice ")
    with pytest.raises(AssertionError, match="needs the laboratory of Pumice, which is not installed"):
        world.kubectl(*inside, "pumice", "up")
    with pytest.raises(AssertionError, match=r"no such file|not found"):
        world.kubectl(*inside, "sh", "-c", "true")
