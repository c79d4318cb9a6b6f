"""What Volcano's and HAMi's installations leave in a cluster, and what their users write: for the ways over from there."""

from __future__ import annotations

from copy import deepcopy
from importlib.resources import files

from kit.manifests import manifest
from pumice.ports.cluster import Json

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
