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
    dice = random.Random(seed)
    sizes = [dice.choice((5, 60, 300, 900, 2500)) for _ in IMAGES]  # where nodes disagree, kube-scheduler believes the first
    nodes = [_node(dice, index, sizes) for index in range(dice.randint(3, 6))]
    bound = []
    for index in range(dice.randint(0, 10)):
        pod = _pod(dice, f"b{index}")
        pod["spec"]["nodeName"] = dice.choice(nodes)["metadata"]["name"]
        if dice.random() < 0.3:
            pod["spec"]["affinity"] = _wishes_about_pods(dice)
        bound.append(pod)
        if dice.random() < 0.15:
            pod["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": dice.choice(APPS)}}, "topologyKey": dice.choice((ZONE, HOST))}]}}
    incoming = _incoming(dice)
    return ScoreCase(seed, nodes, bound, incoming, _selecting(dice, incoming))


def _node(dice: random.Random, index: int, sizes: list[int]) -> Json:
    name = f"n{index}"
    labels = {HOST: name, "disk": dice.choice(("ssd", "hdd")), "cores": dice.choice(("4", "8"))}
    if dice.random() < 0.85:
        labels[ZONE] = dice.choice("abc")
    taints = [{"key": key, "value": "x", "effect": "PreferNoSchedule"} for key in ("old", "spot", "loud") if dice.random() < 0.25]
    images = [{"names": [image, f"{image}@sha256:{n:064}"], "sizeBytes": sizes[n] * 10**6}
              for n, image in enumerate(IMAGES) if dice.random() < 0.4]  # fmt: skip
    room = {"cpu": dice.choice(("16", "31", "64")), "memory": dice.choice(("32Gi", "61Gi")), "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
            "status": {"allocatable": room, "capacity": room, "images": images}}  # fmt: skip


def _pod(dice: random.Random, name: str) -> Json:
    containers = [
        {"name": f"c{n}", "image": dice.choice([*IMAGES, "example.com/tools", "example.com/none:1"]),
         "resources": {"requests": {"cpu": f"{dice.choice((130, 700, 1500))}m", "memory": f"{dice.choice((200, 900, 2100))}Mi"}}}
        for n in range(dice.randint(1, 2))
    ]  # fmt: skip
    spec: Json = {"containers": containers, "terminationGracePeriodSeconds": 0}
    if dice.random() < 0.2:
        spec["initContainers"] = [{"name": "first", "image": dice.choice(IMAGES),
                                   "resources": {"requests": {"cpu": "2", "memory": "100Mi"}}}]  # fmt: skip
    meta = {"name": name, "namespace": "default", "labels": {"app": dice.choice(APPS)}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _incoming(dice: random.Random) -> Json:
    pod = _pod(dice, "incoming")
    spec, affinity = pod["spec"], {}
    if dice.random() < 0.4:
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": dice.choice((1, 7, 40)), "preference": {"matchExpressions": [_expression(dice)]}}
            for _ in range(dice.randint(1, 3))]}  # fmt: skip
    if dice.random() < 0.4:
        affinity |= _wishes_about_pods(dice)
    if affinity:
        spec["affinity"] = affinity
    if dice.random() < 0.4:
        spec["tolerations"] = [{"key": dice.choice(("old", "spot")), "operator": "Exists",
                                **({"effect": "PreferNoSchedule"} if dice.random() < 0.5 else {})}]  # fmt: skip
    if dice.random() < 0.5:
        keys = dice.choice(((ZONE,), (HOST,), (ZONE, HOST)))
        spec["topologySpreadConstraints"] = [
            {"maxSkew": dice.choice((1, 1, 3)), "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": {"app": dice.choice(APPS)}},
             **({"nodeTaintsPolicy": "Honor"} if dice.random() < 0.3 else {})} for key in keys
        ]  # fmt: skip
    return pod


def _selecting(dice: random.Random, incoming: Json) -> list[Json]:
    """Services, and often a controller that owns the incoming pod."""
    found: list[Json] = []
    for index in range(dice.choice((0, 0, 1, 2))):
        spec: Json = {"clusterIP": "None"}
        if dice.random() < 0.9:
            spec["selector"] = {"app": dice.choice(APPS)}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{index}", "namespace": "default"},
                      "spec": spec})  # fmt: skip
    kind = dice.choice(("", "", "ReplicaSet", "StatefulSet", "ReplicationController"))
    if kind:
        labels = dict(incoming["metadata"]["labels"])
        selector: Json = labels if kind == "ReplicationController" else {"matchLabels": labels}
        if kind == "ReplicaSet" and dice.random() < 0.5:
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


def _expression(dice: random.Random) -> Json:
    if dice.random() < 0.3:
        return {"key": "cores", "operator": dice.choice(("Gt", "Lt")), "values": ["5"]}
    if dice.random() < 0.5:
        return {"key": "disk", "operator": "In", "values": ["ssd"]}
    return {"key": ZONE, "operator": dice.choice(("In", "NotIn")), "values": [dice.choice("abc")]}


def _wishes_about_pods(dice: random.Random) -> Json:
    def terms() -> list[Json]:
        return [
            {"weight": dice.choice((1, 5, 30)), "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"app": dice.choice(APPS)}}, "topologyKey": dice.choice((ZONE, HOST))}}
            for _ in range(dice.randint(1, 2))
        ]  # fmt: skip

    kinds = dice.choice((("podAffinity",), ("podAntiAffinity",), ("podAffinity", "podAntiAffinity")))
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms()} for kind in kinds}
