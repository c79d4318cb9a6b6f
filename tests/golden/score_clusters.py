"""Random small clusters for the node scores: images, load, soft taints, wishes about nodes and pods, soft spread, own and by
Kubernetes' default for pods of one Service or controller. No filter refuses any node. Pure and seeded.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
IMAGES = [f"example.com/app{n}:1" for n in range(4)] + ["example.com/tools:latest"]
APPS = ("web", "db", "batch")


@dataclass(frozen=True, slots=True)
class ScoreCase:
    """Nodes, pods that run there, the pod that is scored, and what selects pods."""

    seed: int
    nodes: list[Json]
    bound: list[Json]
    incoming: Json
    selecting: list[Json]


def generate(seed: int) -> ScoreCase:
    rng = random.Random(seed)
    sizes = [rng.choice((5, 60, 300, 900, 2500)) for _ in IMAGES]  # where nodes disagree, kube-scheduler believes the first
    nodes = [_node(rng, index, sizes) for index in range(rng.randint(3, 6))]
    bound = []
    for index in range(rng.randint(0, 10)):
        pod = _pod(rng, f"b{index}")
        pod["spec"]["nodeName"] = rng.choice(nodes)["metadata"]["name"]
        if rng.random() < 0.3:
            pod["spec"]["affinity"] = _wishes_about_pods(rng)
        bound.append(pod)
        if rng.random() < 0.15:
            pod["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": rng.choice(APPS)}}, "topologyKey": rng.choice((ZONE, HOST))}]}}
    incoming = _incoming(rng)
    return ScoreCase(seed, nodes, bound, incoming, _selecting(rng, incoming))


def _node(rng: random.Random, index: int, sizes: list[int]) -> Json:
    name = f"n{index}"
    labels = {HOST: name, "disk": rng.choice(("ssd", "hdd")), "cores": rng.choice(("4", "8"))}
    if rng.random() < 0.85:
        labels[ZONE] = rng.choice("abc")
    taints = [{"key": key, "value": "x", "effect": "PreferNoSchedule"} for key in ("old", "spot", "loud") if rng.random() < 0.25]
    images = [{"names": [image, f"{image}@sha256:{n:064}"], "sizeBytes": sizes[n] * 10**6}
              for n, image in enumerate(IMAGES) if rng.random() < 0.4]  # fmt: skip
    room = {"cpu": rng.choice(("16", "31", "64")), "memory": rng.choice(("32Gi", "61Gi")), "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
            "status": {"allocatable": room, "capacity": room, "images": images}}  # fmt: skip


def _pod(rng: random.Random, name: str) -> Json:
    containers = [
        {"name": f"c{n}", "image": rng.choice([*IMAGES, "example.com/tools", "example.com/none:1"]),
         "resources": {"requests": {"cpu": f"{rng.choice((130, 700, 1500))}m", "memory": f"{rng.choice((200, 900, 2100))}Mi"}}}
        for n in range(rng.randint(1, 2))
    ]  # fmt: skip
    spec: Json = {"containers": containers, "terminationGracePeriodSeconds": 0}
    if rng.random() < 0.2:
        spec["initContainers"] = [{"name": "first", "image": rng.choice(IMAGES),
                                   "resources": {"requests": {"cpu": "2", "memory": "100Mi"}}}]  # fmt: skip
    meta = {"name": name, "namespace": "default", "labels": {"app": rng.choice(APPS)}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _incoming(rng: random.Random) -> Json:
    pod = _pod(rng, "incoming")
    spec, affinity = pod["spec"], {}
    if rng.random() < 0.4:
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": rng.choice((1, 7, 40)), "preference": {"matchExpressions": [_expression(rng)]}}
            for _ in range(rng.randint(1, 3))]}  # fmt: skip
    if rng.random() < 0.4:
        affinity |= _wishes_about_pods(rng)
    if affinity:
        spec["affinity"] = affinity
    if rng.random() < 0.4:
        spec["tolerations"] = [{"key": rng.choice(("old", "spot")), "operator": "Exists",
                                **({"effect": "PreferNoSchedule"} if rng.random() < 0.5 else {})}]  # fmt: skip
    if rng.random() < 0.5:
        keys = rng.choice(((ZONE,), (HOST,), (ZONE, HOST)))
        spec["topologySpreadConstraints"] = [
            {"maxSkew": rng.choice((1, 1, 3)), "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": {"app": rng.choice(APPS)}},
             **({"nodeTaintsPolicy": "Honor"} if rng.random() < 0.3 else {})} for key in keys
        ]  # fmt: skip
    return pod


def _selecting(rng: random.Random, incoming: Json) -> list[Json]:
    """Services, and often a controller that owns the incoming pod."""
    found: list[Json] = []
    for index in range(rng.choice((0, 0, 1, 2))):
        spec: Json = {"clusterIP": "None"}
        if rng.random() < 0.9:
            spec["selector"] = {"app": rng.choice(APPS)}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{index}", "namespace": "default"},
                      "spec": spec})  # fmt: skip
    kind = rng.choice(("", "", "ReplicaSet", "StatefulSet", "ReplicationController"))
    if kind:
        labels = dict(incoming["metadata"]["labels"])
        selector: Json = labels if kind == "ReplicationController" else {"matchLabels": labels}
        if kind == "ReplicaSet" and rng.random() < 0.5:
            selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": sorted({labels["app"], "db"})}]}
        version = "v1" if kind == "ReplicationController" else "apps/v1"
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        owned = {"selector": selector, "template": template, "replicas": 0, **({"serviceName": "s"} if "State" in kind else {})}
        found.append({"apiVersion": version, "kind": kind, "metadata": {"name": "owner", "namespace": "default"}, "spec": owned})
        incoming["metadata"]["ownerReferences"] = [
            {"apiVersion": version, "kind": kind, "name": "owner", "uid": "00000000-0000-0000-0000-000000000001",
             "controller": True}
        ]  # fmt: skip
    return found


def _expression(rng: random.Random) -> Json:
    if rng.random() < 0.3:
        return {"key": "cores", "operator": rng.choice(("Gt", "Lt")), "values": ["5"]}
    if rng.random() < 0.5:
        return {"key": "disk", "operator": "In", "values": ["ssd"]}
    return {"key": ZONE, "operator": rng.choice(("In", "NotIn")), "values": [rng.choice("abc")]}


def _wishes_about_pods(rng: random.Random) -> Json:
    def terms() -> list[Json]:
        return [
            {"weight": rng.choice((1, 5, 30)), "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"app": rng.choice(APPS)}}, "topologyKey": rng.choice((ZONE, HOST))}}
            for _ in range(rng.randint(1, 2))
        ]  # fmt: skip

    kinds = rng.choice((("podAffinity",), ("podAntiAffinity",), ("podAffinity", "podAntiAffinity")))
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms()} for kind in kinds}
