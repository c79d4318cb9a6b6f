"""Builders of API objects for scheduling tests: what does not matter has a default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from pumice.wire.device_config import ModelGeometries

Json = dict[str, Any]
_serial = count(1)

VGPU = "volcano.sh/vgpu"


def node(
    name: str, *, cards: int = 0, mib: int = 8000, shares: int = 10, cpu: str = "16", memory: str = "64Gi",
    pods: int = 110, kind: str = "NVIDIA-Tesla V100-SXM2-16GB", labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] = (), cordoned: bool = False, extra: Mapping[str, str] | None = None, register: str | None = None,
) -> Json:  # fmt: skip
    """A node with that many vGPU cards of ``mib`` each."""
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods), **(extra or {})}
    annotations = {}
    if cards or register is not None:
        entries = [f"GPU-{name}-{i},{shares},{mib},{kind},true,hami-core:" for i in range(cards)]
        annotations["volcano.sh/node-vgpu-register"] = "".join(entries) if register is None else register
        count_of = max(cards, 1)
        resources |= {
            f"{VGPU}-number": str(count_of * shares),
            f"{VGPU}-memory": str(count_of * mib),
            f"{VGPU}-cores": str(count_of * 100),
        }
    spec: Json = {"taints": list(taints)} if taints else {}
    if cordoned:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": annotations,
        },
        "spec": spec,
        "status": {"allocatable": resources, "capacity": dict(resources)},
    }


def pod(
    name: str, *, namespace: str = "default", cards: int | None = None, mib: int | None = None, cores: int | None = None,
    cpu: str | None = None, memory: str | None = None, group: str | None = None, queue: str | None = None,
    priority: int | None = None, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None,
    limits: Mapping[str, Any] | None = None, scheduler: str = "volcano", role: str = "", gated: bool = False, owner: str = "",
    **spec: Any,
) -> Json:  # fmt: skip
    """A pending pod of ours; ``cards``, ``mib`` and ``cores`` ask for vGPUs. ``owner``: the Job that makes it anew."""
    resources: Json = dict(limits or {})
    for key, value in (("number", cards), ("memory", mib), ("cores", cores)):
        if value is not None:
            resources[f"{VGPU}-{key}"] = str(value)
    if mib is not None and cards is None:
        resources[f"{VGPU}-number"] = "1"
    if cpu is not None:
        resources["cpu"] = cpu
    if memory is not None:
        resources["memory"] = memory
    written = dict(annotations or {})
    if group is not None:
        written["scheduling.k8s.io/group-name"] = group
    if queue is not None:
        written["scheduling.volcano.sh/queue-name"] = queue
    if role:
        written["volcano.sh/task-spec"] = role
    body: Json = {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "image": "busybox",
                        "resources": {"limits": resources, "requests": dict(resources)} if resources else {}}],
        **spec,
    }  # fmt: skip
    if priority is not None:
        body["priority"] = priority
    if gated:
        body["schedulingGates"] = [{"name": "example.com/wait"}]
    owned = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"job-{owner}", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{name}-{next(_serial)}",
            "labels": dict(labels or {}),
            "annotations": written,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **({"ownerReferences": [owned]} if owner else {}),
        },
        "spec": body,
        "status": {"phase": "Pending"},
    }


def group(
    name: str, *, minimum: int, namespace: str = "default", queue: str = "default", priority_class: str = "",
    resources: Mapping[str, str] | None = None, roles: Mapping[str, int] | None = None,
    topology: Json | None = None, sub_groups: Sequence[Json] = (),
) -> Json:  # fmt: skip
    """A PodGroup."""
    spec: Json = {"minMember": minimum, "queue": queue}
    if priority_class:
        spec["priorityClassName"] = priority_class
    if resources is not None:
        spec["minResources"] = dict(resources)
    if roles:
        spec["minTaskMember"] = dict(roles)
    if topology is not None:
        spec["networkTopology"] = topology
    if sub_groups:
        spec["subGroupPolicy"] = list(sub_groups)
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"group-{name}", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }  # fmt: skip


def queue(name: str, *, weight: int = 1, capability: Mapping[str, str] | None = None, parent: str = "",
          guarantee: Mapping[str, str] | None = None, deserved: Mapping[str, str] | None = None,
          state: str = "Open", priority: int = 0, annotations: Mapping[str, str] | None = None, **more: Any) -> Json:  # fmt: skip
    """``more`` goes into its spec."""
    spec: Json = {"weight": weight, "priority": priority, **more}
    if deserved:
        spec["deserved"] = dict(deserved)
    if capability:
        spec["capability"] = dict(capability)
    if guarantee:
        spec["guarantee"] = {"resource": dict(guarantee)}
    if parent:
        spec["parent"] = parent
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name, "uid": f"queue-{name}", "creationTimestamp": "2026-01-01T00:00:00Z",
                     "annotations": dict(annotations or {})},
        "spec": spec,
        "status": {"state": state},
    }


def hyper_node(name: str, tier: int, *members: str, tier_name: str = "", children: Sequence[str] = (),
               selectors: Sequence[Json] = (), created: str = "2026-01-01T00:00:00Z") -> Json:  # fmt: skip
    """A HyperNode of nodes and HyperNodes by name, and of nodes by other selectors."""
    named = [{"type": "Node", "selector": {"exactMatch": {"name": member}}} for member in members]
    named += [{"type": "HyperNode", "selector": {"exactMatch": {"name": child}}} for child in children]
    named += [{"type": "Node", "selector": dict(selector)} for selector in selectors]
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name, "uid": f"hypernode-{name}", "creationTimestamp": created},
        "spec": {"tier": tier, **({"tierName": tier_name} if tier_name else {}), "members": named},
    }


def budget(name: str, labels: Mapping[str, str], allowed: int, namespace: str = "default") -> Json:
    """A PodDisruptionBudget as its controller has reckoned it."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "uid": f"budget-{name}"},
        "spec": {"selector": {"matchLabels": dict(labels)}},
        "status": {"disruptionsAllowed": allowed},
    }


def priority_class(name: str, value: int, *, default: bool = False) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "uid": f"class-{name}"},
        "value": value,
        "globalDefault": default,
    }


def render_geometries(models: tuple[ModelGeometries, ...]) -> list[dict[str, Any]]:
    """The canonical YAML value of ``knownMigGeometries``."""
    return [
        {
            "models": list(model.models),
            "allowedGeometries": [
                {
                    "group": group.name,
                    "geometries": [{"name": i.name, "memory": i.memory, "count": i.count} for i in group.instances],
                }
                for group in model.groups
            ],
        }
        for model in models
    ]
