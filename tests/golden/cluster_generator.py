"""Random small clusters that exercise the Kubernetes filters: resources, taints, affinity, ports, topology spread, volumes.

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
DRIVER, THIN = "csi.example.com", "csi.thin.example.com"
WITH_CAPACITIES = 1000
"""From this seed on, clusters have claims whose driver tells how much it can still make."""
CLASSES: list[Json] = [
    {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, "provisioner": provisioner,
     "volumeBindingMode": mode, **more}
    for name, provisioner, mode, more in (
        ("now", DRIVER, "Immediate", {}),
        ("later", DRIVER, "WaitForFirstConsumer", {}),
        ("zonal", DRIVER, "WaitForFirstConsumer",
         {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]}),
        ("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", {}),
        ("thin", THIN, "WaitForFirstConsumer", {}),
        ("thin-zonal", THIN, "WaitForFirstConsumer",
         {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]}),
    )
]  # fmt: skip
CLASSES.append({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": THIN},
                "spec": {"storageCapacity": True}})  # fmt: skip
"""Storage classes, and the driver that tells its capacity: they are there in every case."""

WITH_SIDECARS = 2000
"""From this seed on, pods have sidecars with host ports, resources of their own, local storage, and claims for one pod alone."""


@dataclass(frozen=True, slots=True)
class Case:
    """Nodes, pods that are already bound, and the pod that asks where it may go."""

    seed: int
    nodes: list[Json]
    bound: list[Json]
    incoming: Json
    storage: list[Json]


def generate(seed: int) -> Case:
    dice = random.Random(seed)
    nodes = [_node(dice, i) for i in range(dice.randint(3, 6))]
    bound = [_bound_pod(dice, i, nodes) for i in range(dice.randint(0, 12))]
    incoming = _incoming(dice, nodes)
    storage = _storage(dice, nodes, bound, incoming) if dice.random() < 0.6 or WITH_CAPACITIES <= seed < WITH_SIDECARS else []
    if WITH_CAPACITIES <= seed < WITH_SIDECARS:
        _thin_storage(dice, nodes, incoming, storage)
    if seed >= WITH_SIDECARS:
        for node in nodes:
            node["status"]["allocatable"] |= {"ephemeral-storage": "10Gi", "hugepages-2Mi": "8Mi"}
        for pod in (*bound, incoming):
            _enrich(dice, pod)
        incoming["spec"].pop("nodeSelector", None)
        incoming["spec"].pop("affinity", None)
        _claim_for_one(dice, nodes, bound, incoming, storage)
    return Case(seed, nodes, bound, incoming, storage)


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


def _storage(dice: random.Random, nodes: list[Json], bound: list[Json], incoming: Json) -> list[Json]:
    """Claims for some of the pods with the volumes that they are bound to, or with none yet; attach limits; attachments."""
    found: list[Json] = []
    for node in nodes:
        if dice.random() < 0.6:
            drivers = [{"name": DRIVER, "nodeID": "x", "topologyKeys": [], "allocatable": {"count": dice.randint(1, 3)}}]
            meta = {"name": node["metadata"]["name"]}
            found.append({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta, "spec": {"drivers": drivers}})
    shared = [_bound_claim(dice, f"shared-{i}", "default", nodes, found) for i in range(2)]
    for pod in bound:
        if dice.random() < 0.5:
            name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
            _use(pod, [shared[0]] if space == "default" and dice.random() < 0.3
                 else [_bound_claim(dice, f"{name}-{i}", space, nodes, found) for i in range(dice.randint(1, 2))])  # fmt: skip
    claims = []
    for i in range(dice.randint(1, 2)):
        kind = dice.random()
        if kind < 0.2:
            claims.append(dice.choice(shared))
        elif kind < 0.65:
            claims.append(_bound_claim(dice, f"mine-{i}", "default", nodes, found))
        elif kind < 0.69:
            claims.append("missing")
        else:
            name = dice.choice(("now", "later", "later", "zonal", "local", "local", ""))
            claims.append(_claim(f"mine-{i}", "default", name, "", found))
    _use(incoming, sorted(set(claims)))
    for i in range(dice.randint(0, 4)):
        found.append(_volume(dice, f"free-{i}", "local", "", nodes))
    attached = [o["metadata"]["name"] for o in found if o["kind"] == "PersistentVolume" and "csi" in o["spec"]]
    for name in attached:
        if dice.random() < 0.1:
            found.append({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": f"at-{name}"},
                          "spec": {"attacher": DRIVER, "nodeName": dice.choice(nodes)["metadata"]["name"],
                                   "source": {"persistentVolumeName": name}}})  # fmt: skip
    return found


def _enrich(dice: random.Random, pod: Json) -> None:
    """A sidecar with a host port, resources of the pod as a whole, local storage, huge pages: each now and then."""
    spec, first = pod["spec"], pod["spec"]["containers"][0]
    if dice.random() < 0.5:
        port = {"containerPort": 81, "hostPort": dice.choice((8080, 9090)), "protocol": "TCP"}
        kind = {"restartPolicy": "Always"} if dice.random() < 0.7 else {}
        spec["initContainers"] = [{"name": "beside", "image": "i", "ports": [port], **kind}]
    requests, limits = first["resources"].setdefault("requests", {}), first["resources"].setdefault("limits", {})
    if dice.random() < 0.4:
        requests["ephemeral-storage"] = dice.choice(("1Gi", "4Gi"))
    if dice.random() < 0.3:
        requests.setdefault("cpu", "100m")
        requests["hugepages-2Mi"] = limits["hugepages-2Mi"] = dice.choice(("2Mi", "4Mi"))
    elif dice.random() < 0.3:
        spec["resources"] = {"requests": {"cpu": dice.choice(("4", "6")), "memory": "6Gi"}}


def _claim_for_one(dice: random.Random, nodes: list[Json], bound: list[Json], incoming: Json, found: list[Json]) -> None:
    """A claim that one pod at a time may use, and users of it."""
    _bound_claim(dice, "alone", "default", nodes, found)
    found[-1]["spec"]["accessModes"] = found[-2]["spec"]["accessModes"] = ["ReadWriteOncePod"]
    use = {"name": "alone", "persistentVolumeClaim": {"claimName": "alone"}}
    mine = [pod for pod in bound if pod["metadata"]["namespace"] == "default"]
    users = ([dice.choice(mine)] if mine and dice.random() < 0.5 else []) + ([incoming] if dice.random() < 0.5 else [])
    for pod in users:
        pod["spec"]["volumes"] = [*pod["spec"].get("volumes", ()), use]


def _thin_storage(dice: random.Random, nodes: list[Json], incoming: Json, found: list[Json]) -> None:
    """Claims of the incoming pod that are still to be made, and what their driver says that it can make, and where."""
    if dice.random() < 0.8:  # most of these clusters are about storage alone
        for part in ("nodeSelector", "affinity", "topologySpreadConstraints"):
            incoming["spec"].pop(part, None)
        incoming["spec"]["tolerations"] = [{"operator": "Exists"}]
        incoming["spec"]["containers"] = [{"name": "c0", "image": "i"}]
    claims = [] if dice.random() < 0.8 else [v["persistentVolumeClaim"]["claimName"] for v in incoming["spec"]["volumes"]]
    for i in range(dice.randint(1, 2)):
        claims.append(_claim(f"thin-{i}", "default", dice.choice(("thin", "thin", "thin-zonal")), "", found))
        if dice.random() < 0.1:
            found[-1]["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": dice.choice(nodes)["metadata"]["name"]}
    _use(incoming, claims)
    for i in range(dice.randint(0, 5)):
        capacity: Json = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                          "metadata": {"name": f"capacity-{i}", "namespace": dice.choice(tuple(NAMESPACES))},
                          "storageClassName": dice.choice(("thin", "thin", "thin-zonal", "later"))}  # fmt: skip
        if dice.random() < 0.9:
            capacity["nodeTopology"] = _reach(dice, nodes)
        if dice.random() < 0.9:
            capacity["capacity"] = dice.choice(("0", "2147483647", "2Gi", "2147483649", "100Gi"))
        if dice.random() < 0.3:
            capacity["maximumVolumeSize"] = dice.choice(("1Gi", "2Gi", "3Gi"))
        found.append(capacity)


def _reach(dice: random.Random, nodes: list[Json]) -> Json:
    """The nodes of one capacity, as a label selector."""
    kind = dice.random()
    if kind < 0.1:
        return {}
    if kind < 0.6:
        return {"matchLabels": {ZONE: dice.choice(ZONES)}}
    if kind < 0.8:
        names = [n["metadata"]["name"] for n in nodes]
        return {"matchExpressions": [{"key": HOST, "operator": "In", "values": sorted(dice.sample(names, 2))}]}
    return {"matchExpressions": [{"key": ZONE, "operator": dice.choice(("NotIn", "NotIn", "In")), "values": ["a"]}]}


def _use(pod: Json, claims: list[str]) -> None:
    pod["spec"]["volumes"] = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": c}} for i, c in enumerate(claims)]


def _claim(name: str, space: str, storage_class: str, volume: str, found: list[Json]) -> str:
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}},
                  "storageClassName": storage_class}  # fmt: skip
    meta: Json = {"name": name, "namespace": space}
    if volume:
        spec["volumeName"], meta["annotations"] = volume, {"pv.kubernetes.io/bind-completed": "yes"}
    found.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    return name


def _bound_claim(dice: random.Random, name: str, space: str, nodes: list[Json], found: list[Json]) -> str:
    volume = f"pv-{space}-{name}"
    found.append(_volume(dice, volume, "later", f"{space}/{name}", nodes))
    return _claim(name, space, "later", volume, found)


def _volume(dice: random.Random, name: str, storage_class: str, claim: str, nodes: list[Json]) -> Json:
    """A volume bound to that claim, or a free local one."""
    spec: Json = {"capacity": {"storage": dice.choice(("1Gi", "2Gi", "5Gi", "5Gi"))}, "accessModes": ["ReadWriteOnce"],
                  "storageClassName": storage_class, "persistentVolumeReclaimPolicy": "Retain"}  # fmt: skip
    meta: Json = {"name": name}
    if claim:
        space, _, key = claim.partition("/")
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": space, "name": key}
    if claim and dice.random() < 0.9:
        spec["csi"] = {"driver": dice.choice((DRIVER, DRIVER, DRIVER, "csi.other.com")), "volumeHandle": name}
    else:
        spec["hostPath"] = {"path": "/x"}
    where = dice.random()
    if not claim or where < 0.2:
        key, values = dice.choice(((ZONE, list(ZONES)), (HOST, [n["metadata"]["name"] for n in nodes])))
        expression = {"key": key, "operator": "In", "values": sorted(dice.sample(values, min(len(values), dice.randint(1, 2))))}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    elif where < 0.35:
        meta["labels"] = {ZONE: dice.choice(("a", "b", "c", "a__b"))}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}
