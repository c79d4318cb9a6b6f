"""Installations: a cluster on which everything of ours is ready, as an administrator leaves it; what Volcano's and HAMi's leave
there; the commands of a page of documentation; Helm and the chart.

Written by any client of an API server. Nothing runs there: statuses are what controllers and kubelets would write.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from kit.manifests import manifest, resource_of
from pumice.ports.cluster import Cluster, Json, Resource
from pumice.wire import names
from pumice.wire.kinds import NODES, PODS

NODE = "n1"
INSTALLED = ("volcano.yml", "volcano-admission.yml", "volcano-vgpu-device-plugin.yml", "reserved-annotations.yml", "own-node.yml",
             "tenant-limits.yml")  # fmt: skip
REGISTER = "GPU-a,10,32768,NVIDIA-Tesla V100,true,hami-core:"
READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
HOOKS = Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False)
SERVICE = "volcano-admission-service"


async def install(cluster: Cluster, authority: str = "YQ==") -> None:
    """``authority``: base64 of the certificate that the admission server's registration names."""
    for path in sorted((files("pumice") / "manifests" / "crds").iterdir(), key=lambda path: path.name):
        await create(cluster, *manifest(f"crds/{path.name}"))
    for name in INSTALLED:
        await create(cluster, *manifest(name))
    await cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": NODE, "annotations": {names.NODE_VGPU_REGISTER: REGISTER}}})  # fmt: skip
    offered = {names.VGPU_NUMBER: "10", "cpu": "8", "memory": "32Gi", "pods": "100"}
    await cluster.patch(NODES, NODE, {"status": {"capacity": offered, "allocatable": offered}}, subresource="status")
    daemon_sets = [obj for name in INSTALLED for obj in manifest(name) if obj["kind"] == "DaemonSet"]
    deployments = [obj for name in INSTALLED for obj in manifest(name) if obj["kind"] == "Deployment"]
    for obj in daemon_sets:
        counts = dict.fromkeys(("currentNumberScheduled", "desiredNumberScheduled", "numberReady", "numberMisscheduled"), 1)
        await status(cluster, obj, counts)
    for obj in deployments:
        await status(cluster, obj, {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1})
    for obj in (*daemon_sets, *deployments):
        await pod_of(cluster, obj)
    await cluster.create(HOOKS, hook(authority))


async def create(cluster: Cluster, *objects: Json) -> None:
    for obj in objects:
        await cluster.create(resource_of(obj), obj, obj["metadata"].get("namespace", ""))


async def status(cluster: Cluster, obj: Json, said: Json) -> None:
    meta = obj["metadata"]
    await cluster.patch(resource_of(obj), meta["name"], {"status": said}, meta["namespace"], subresource="status")


async def pod_of(cluster: Cluster, obj: Json, node: str = NODE, said: Json | None = None) -> None:
    """One of the workload's pods, on that node."""
    template, meta = obj["spec"]["template"], obj["metadata"]
    name = f"{meta['name']}-{node}"
    spec = {**template["spec"], "nodeName": node}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": spec}
    await cluster.create(PODS, body, meta["namespace"])
    await cluster.patch(PODS, name, {"status": said or READY}, meta["namespace"], subresource="status")


def hook(authority: str = "YQ==", service: str = SERVICE, **fields: Any) -> Json:
    """The admission server's registration for queues."""
    behind = {"namespace": names.SYSTEM_NAMESPACE, "name": service, "path": "/queues/validate"}
    client = {"service": behind, "caBundle": authority}
    rule = {"apiGroups": [names.VOLCANO_GROUP], "apiVersions": ["v1beta1"], "operations": ["CREATE"], "resources": ["queues"]}
    one = {"name": "validatequeue.volcano.sh", "clientConfig": client, "rules": [rule], "failurePolicy": "Fail",
           "sideEffects": "None", "admissionReviewVersions": ["v1"], **fields}  # fmt: skip
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": f"{service}-queues-validate"}, "webhooks": [one]}  # fmt: skip


# -- What Volcano's and HAMi's installations leave in a cluster, and what their users write: for the ways over


IMAGES = {"volcano-scheduler": "docker.io/volcanosh/vc-scheduler:v1.12.0",
          "volcano-controllers": "docker.io/volcanosh/vc-controller-manager:v1.12.0",
          "volcano-device-plugin": "docker.io/volcanosh/volcano-vgpu-device-plugin:v1.12.0"}  # fmt: skip
CONF = "actions: allocate\ntiers:\n- plugins:\n  - name: deviceshare\n    arguments: {deviceshare.VGPUEnable: true}\n"
DEVICES = "nvidia: {resourceCountName: nvidia.com/gpu, resourceMemoryName: nvidia.com/gpumem, deviceSplitCount: 7}\n"
WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: train, namespace: default}
spec:
  selector: {matchLabels: {app: train}}
  template:
    metadata: {labels: {app: train}}
    spec:
      containers:
      - name: c
        image: any
        command: [sleep, "1000"]
        resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}}   # HAMi's
"""


def volcanos(*, devices: bool = True) -> list[Json]:
    """Return Volcano's installation, by our manifests: most names are the same, images and configuration are not. It has no
    roles but cluster roles, and those of its own half are bound by names that end in ``-role``. ``devices``: the ConfigMaps of
    devices and nodes, which older installations lack."""
    found = [obj for path in (files("pumice") / "manifests" / "crds").iterdir() for obj in manifest(f"crds/{path.name}")]
    found += [*manifest("volcano.yml"), *manifest("volcano-vgpu-device-plugin.yml")]
    kept = [deepcopy(obj) for obj in found if not obj["metadata"]["name"].endswith(("-last-good", "-monitor"))
            and obj["kind"] not in ("Role", "RoleBinding") and (devices or "-vgpu-" not in obj["metadata"]["name"])]  # fmt: skip
    for obj in kept:
        if obj["kind"] == "ClusterRoleBinding" and obj["metadata"]["name"] in IMAGES and "plugin" not in obj["metadata"]["name"]:
            obj["metadata"]["name"] += "-role"
        if obj["kind"] in ("Deployment", "DaemonSet"):
            (container,) = obj["spec"]["template"]["spec"]["containers"]
            container |= {"image": IMAGES[obj["metadata"]["name"]], "args": ["--v=3"]}
        if obj["kind"] == "ConfigMap" and "volcano-scheduler.conf" in obj["data"]:
            obj["data"]["volcano-scheduler.conf"] = CONF
    return kept


def hamis() -> list[Json]:
    template = {"metadata": {"labels": {"app": "h"}}, "spec": {"containers": [
        {"name": "c", "image": "docker.io/projecthami/hami:v2.6.0", "command": ["scheduler"]}]}}  # fmt: skip
    plugin = deepcopy(template)
    plugin["spec"]["containers"][0]["command"] = ["nvidia-device-plugin"]  # type: ignore[index]
    spec = {"selector": {"matchLabels": {"app": "h"}}}
    rule = {"apiGroups": ["none.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}
    hook = {"name": "vgpu.hami.io", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None", "rules": [rule],
            "failurePolicy": "Ignore", "admissionReviewVersions": ["v1"]}  # fmt: skip
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "hami-scheduler", "namespace": "kube-system"},
         "spec": {**spec, "template": template}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "hami-device-plugin", "namespace": "kube-system"},
         "spec": {**spec, "template": plugin}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hami-scheduler-device", "namespace": "kube-system"},
         "data": {"device-config.yaml": DEVICES}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
         "metadata": {"name": "hami-webhook"}, "webhooks": [hook]},
    ]  # fmt: skip


# -- The commands of a page of documentation, run as a reader would run them


ROOT = Path(__file__).parents[1]
TELLS = "pumice() { command pumice \"$@\" || [ $? -eq 1 ]; }\n"
"""Our commands that look at something end with 1 where there is something to say."""


def blocks(page: str, title: str = "") -> list[str]:
    """What stands in the shell blocks of a page below docs, or of its part of that title; those of a list's items, too."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    if title:
        (text,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return [dedent(block) for block in re.findall(r"^(?:\d\. )?```sh\n(.*?)^ *```", text, re.M | re.S)]


def titles(page: str) -> list[str]:
    return re.findall(r"^## (.*)$", (ROOT / "docs" / page).read_text("utf-8"), re.M)


def run(script: str, folder: Path, kubeconfig: Path, *programs: Path) -> str:
    """All lines, the first that fails ends it. What was printed. ``programs``: folders of programs that count first."""
    path = os.pathsep.join(map(str, [*programs, Path(sys.executable).parent, os.environ["PATH"]]))
    environ = {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", TELLS + script], cwd=folder, env=environ, capture_output=True,
                          text=True, timeout=200)  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


# -- Helm as `make kube` builds it, or the PATH's; and the chart, rendered


CHART = Path(__file__).resolve().parents[1] / "deploy" / "chart"


def program(name: str) -> str:
    """Helm, or what `make kube` builds beside it. Skips the test where there is none."""
    built = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere")) / name
    found = str(built) if built.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is neither in KUBEBUILDER_ASSETS nor on the PATH (make kube)")
    return found


def helm(*words: str, values: Json | None = None, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """With these values besides the chart's; nothing of the user's own settings is read."""
    with tempfile.TemporaryDirectory() as home:
        given = Path(home) / "given.yaml"
        given.write_text(yaml.safe_dump(values))
        more = [f"--values={given}"] if values is not None else []
        environ = {"PATH": os.environ["PATH"], "HOME": home} | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
        command = [program("helm"), *words, *more]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


def rendered(values: Json) -> list[Json]:
    done = helm("template", "pumice", str(CHART), "--namespace", "default", values=values)
    assert done.returncode == 0, done.stderr
    return [obj for obj in yaml.load_all(done.stdout, yaml.CSafeLoader) if obj]


def refusal(values: Json, *words: str) -> str:
    done = helm("template", "pumice", str(CHART), *words, values=values)
    assert done.returncode != 0, "nothing was refused"
    return done.stderr


def key(obj: Json) -> tuple[Any, ...]:
    return obj["apiVersion"], obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]
