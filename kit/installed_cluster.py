"""A cluster on which everything of ours is installed and ready, with one node that has cards: as an administrator leaves it.

Written by any client of an API server. Nothing runs there: statuses are what controllers and kubelets would write.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

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
