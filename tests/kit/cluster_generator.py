"""Random small clusters that exercise the Kubernetes filters: resources, taints, affinity, ports, topology spread.

Pure and seeded: the same seed gives the same objects on every machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
ZONES, DISKS, APPS, TIERS = ("a", "b", "c"), ("ssd", "hdd"), ("web", "db", "batch"), ("front", "back")
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NAMESPACES = {"default": {"team": "one"}, "other": {"team": "two"}}


@dataclass(frozen=True, slots=True)
class Case:
    """Nodes, pods that are already bound, and the pod that asks where it may go."""

    seed: int
    nodes: list[Json]
    bound: list[Json]
    incoming: Json


def generate(seed: int) -> Case:
    dice = random.Random(seed)
    nodes = [_node(dice, i) for i in range(dice.randint(3, 6))]
    bound = [_bound_pod(dice, i, nodes) for i in range(dice.randint(0, 12))]
    return Case(seed, nodes, bound, _incoming(dice, nodes))


def _node(dice: random.Random, index: int) -> Json:
    name = f"n{index}"
    labels = {HOST: name, "disk": dice.choice(DISKS), "cores": str(dice.choice((4, 8, 16)))}
    if dice.random() < 0.85:
        labels[ZONE] = dice.choice(ZONES)
    spec: Json = {}
    if dice.random() < 0.3:
        spec["taints"] = [_taint(dice) for _ in range(dice.randint(1, 2))]
        spec["taints"] = list({(t["key"], t["effect"]): t for t in spec["taints"]}.values())
    if dice.random() < 0.08:
        spec["unschedulable"] = True
    room = {"cpu": str(dice.choice((2, 4, 8))), "memory": f"{dice.choice((4, 8))}Gi", "pods": str(dice.choice((4, 110))),
            "example.com/card": str(dice.choice((0, 2, 4)))}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec,
            "status": {"allocatable": room, "capacity": room}}  # fmt: skip


def _taint(dice: random.Random) -> Json:
    return {"key": dice.choice(("dedicated", "spot")), "value": dice.choice(("gpu", "true")),
            "effect": dice.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))}  # fmt: skip


def _labels(dice: random.Random) -> dict[str, str]:
    labels = {"app": dice.choice(APPS)}
    if dice.random() < 0.5:
        labels["tier"] = dice.choice(TIERS)
    return labels


def _container(dice: random.Random, name: str) -> Json:
    requests: Json = {}
    if dice.random() < 0.8:
        requests = {"cpu": f"{dice.choice((100, 500, 900, 1500))}m", "memory": f"{dice.choice((128, 700, 2048))}Mi"}
    container: Json = {"name": name, "image": "i", "resources": {"requests": requests}}
    if dice.random() < 0.15:
        count = str(dice.choice((1, 2)))
        container["resources"] = {"requests": {**requests, "example.com/card": count}, "limits": {"example.com/card": count}}
    if dice.random() < 0.2:
        port: Json = {"containerPort": 80, "hostPort": dice.choice((8080, 9090)), "protocol": dice.choice(("TCP", "TCP", "UDP"))}
        if dice.random() < 0.4:
            port["hostIP"] = dice.choice(("10.0.0.1", "10.0.0.2"))
        container["ports"] = [port]
    return container


def _pod(dice: random.Random, name: str, namespace: str) -> Json:
    spec: Json = {"containers": [_container(dice, f"c{i}") for i in range(dice.randint(1, 2))],
                  "terminationGracePeriodSeconds": 0}  # fmt: skip
    if dice.random() < 0.25:
        init = _container(dice, "init")
        init.pop("ports", None)
        if dice.random() < 0.4:
            init["restartPolicy"] = "Always"
        spec["initContainers"] = [init]
    meta = {"name": name, "namespace": namespace, "labels": _labels(dice)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _bound_pod(dice: random.Random, index: int, nodes: list[Json]) -> Json:
    pod = _pod(dice, f"b{index}", dice.choice(tuple(NAMESPACES)))
    pod["spec"]["nodeName"] = dice.choice(nodes)["metadata"]["name"]
    if dice.random() < 0.2:
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_pod_term(dice)]}}
    return pod


def _incoming(dice: random.Random, nodes: list[Json]) -> Json:
    pod = _pod(dice, "incoming", "default")
    spec, affinity = pod["spec"], {}
    if dice.random() < 0.15:
        spec["nodeSelector"] = {"disk": dice.choice(DISKS)}
    if dice.random() < 0.35:
        terms = [_node_term(dice, nodes) for _ in range(dice.randint(1, 2))]
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if dice.random() < 0.25:
        affinity["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [_pod_term(dice)]}
    if dice.random() < 0.25:
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [_pod_term(dice)]}
    if affinity:
        spec["affinity"] = affinity
    if dice.random() < 0.5:
        spec["tolerations"] = [_toleration(dice) for _ in range(dice.randint(1, 2))]
    if dice.random() < 0.3:
        spread = [_spread(dice) for _ in range(dice.randint(1, 2))]
        spec["topologySpreadConstraints"] = list({(s["topologyKey"], s["whenUnsatisfiable"]): s for s in spread}.values())
    return pod


def _node_term(dice: random.Random, nodes: list[Json]) -> Json:
    def expression() -> Json:
        operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": "cores", "operator": operator, "values": [str(dice.choice((4, 8, 12)))]}
        key, values = dice.choice(((ZONE, ZONES), ("disk", DISKS)))
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        return {"key": key, "operator": operator, "values": sorted(dice.sample(values, dice.randint(1, len(values))))}

    term: Json = {"matchExpressions": [expression() for _ in range(dice.randint(1, 2))]}
    if dice.random() < 0.15:
        name = dice.choice(nodes)["metadata"]["name"]
        term["matchFields"] = [{"key": "metadata.name", "operator": dice.choice(("In", "NotIn")), "values": [name]}]
    return term


def _selector(dice: random.Random) -> Json:
    if dice.random() < 0.6:
        return {"matchLabels": {"app": dice.choice(APPS)}}
    operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    expression: Json = {"key": "tier", "operator": operator}
    if operator in ("In", "NotIn"):
        expression["values"] = [dice.choice(TIERS)]
    return {"matchExpressions": [expression]}


def _pod_term(dice: random.Random) -> Json:
    term: Json = {"labelSelector": _selector(dice), "topologyKey": dice.choice((ZONE, HOST))}
    kind = dice.random()
    if kind < 0.2:
        term["namespaces"] = ["other"]
    elif kind < 0.35:
        term["namespaceSelector"] = dice.choice(({}, {"matchLabels": {"team": "two"}}))
    return term


def _toleration(dice: random.Random) -> Json:
    toleration: Json = {}
    if dice.random() < 0.85:
        toleration["key"] = dice.choice(("dedicated", "spot"))
    if "key" not in toleration or dice.random() < 0.4:
        toleration["operator"] = "Exists"
    else:
        toleration["value"] = dice.choice(("gpu", "true"))
    if dice.random() < 0.5:
        toleration["effect"] = dice.choice(("NoSchedule", "NoExecute"))
    return toleration


def _spread(dice: random.Random) -> Json:
    spread: Json = {"maxSkew": dice.choice((1, 1, 2)), "topologyKey": dice.choice((ZONE, HOST)),
                    "whenUnsatisfiable": dice.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": _selector(dice)}  # fmt: skip
    if spread["whenUnsatisfiable"] == "DoNotSchedule" and dice.random() < 0.25:
        spread["minDomains"] = dice.choice((2, 4))
    if dice.random() < 0.3:
        spread["nodeAffinityPolicy"] = dice.choice(("Honor", "Ignore"))
    if dice.random() < 0.3:
        spread["nodeTaintsPolicy"] = dice.choice(("Honor", "Ignore"))
    if dice.random() < 0.2 and "matchLabels" in spread["labelSelector"]:  # the selector may not name the key itself
        spread["matchLabelKeys"] = ["tier"]
    return spread
