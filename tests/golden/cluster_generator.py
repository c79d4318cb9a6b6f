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
    rng = random.Random(seed)
    nodes = [_node(rng, i) for i in range(rng.randint(3, 6))]
    bound = [_bound_pod(rng, i, nodes) for i in range(rng.randint(0, 12))]
    incoming = _incoming(rng, nodes)
    storage = _storage(rng, nodes, bound, incoming) if rng.random() < 0.6 or WITH_CAPACITIES <= seed < WITH_SIDECARS else []
    if WITH_CAPACITIES <= seed < WITH_SIDECARS:
        _thin_storage(rng, nodes, incoming, storage)
    if seed >= WITH_SIDECARS:
        for node in nodes:
            node["status"]["allocatable"] |= {"ephemeral-storage": "10Gi", "hugepages-2Mi": "8Mi"}
        for pod in (*bound, incoming):
            _enrich(rng, pod)
        incoming["spec"].pop("nodeSelector", None)
        incoming["spec"].pop("affinity", None)
        _claim_for_one(rng, nodes, bound, incoming, storage)
    return Case(seed, nodes, bound, incoming, storage)


def _node(rng: random.Random, index: int) -> Json:
    name = f"n{index}"
    labels = {HOST: name, "disk": rng.choice(DISKS), "cores": str(rng.choice((4, 8, 16)))}
    if rng.random() < 0.85:
        labels[ZONE] = rng.choice(ZONES)
    spec: Json = {}
    if rng.random() < 0.3:
        spec["taints"] = [_taint(rng) for _ in range(rng.randint(1, 2))]
        spec["taints"] = list({(t["key"], t["effect"]): t for t in spec["taints"]}.values())
    if rng.random() < 0.08:
        spec["unschedulable"] = True
    room = {"cpu": str(rng.choice((2, 4, 8))), "memory": f"{rng.choice((4, 8))}Gi", "pods": str(rng.choice((4, 110))),
            "example.com/card": str(rng.choice((0, 2, 4)))}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec,
            "status": {"allocatable": room, "capacity": room}}  # fmt: skip


def _taint(rng: random.Random) -> Json:
    return {"key": rng.choice(("dedicated", "spot")), "value": rng.choice(("gpu", "true")),
            "effect": rng.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))}  # fmt: skip


def _labels(rng: random.Random) -> dict[str, str]:
    labels = {"app": rng.choice(APPS)}
    if rng.random() < 0.5:
        labels["tier"] = rng.choice(TIERS)
    return labels


def _container(rng: random.Random, name: str) -> Json:
    requests: Json = {}
    if rng.random() < 0.8:
        requests = {"cpu": f"{rng.choice((100, 500, 900, 1500))}m", "memory": f"{rng.choice((128, 700, 2048))}Mi"}
    container: Json = {"name": name, "image": "i", "resources": {"requests": requests}}
    if rng.random() < 0.15:
        count = str(rng.choice((1, 2)))
        container["resources"] = {"requests": {**requests, "example.com/card": count}, "limits": {"example.com/card": count}}
    if rng.random() < 0.2:
        port: Json = {"containerPort": 80, "hostPort": rng.choice((8080, 9090)), "protocol": rng.choice(("TCP", "TCP", "UDP"))}
        if rng.random() < 0.4:
            port["hostIP"] = rng.choice(("10.0.0.1", "10.0.0.2"))
        container["ports"] = [port]
    return container


def _pod(rng: random.Random, name: str, namespace: str) -> Json:
    spec: Json = {"containers": [_container(rng, f"c{i}") for i in range(rng.randint(1, 2))],
                  "terminationGracePeriodSeconds": 0}  # fmt: skip
    if rng.random() < 0.25:
        init = _container(rng, "init")
        init.pop("ports", None)
        if rng.random() < 0.4:
            init["restartPolicy"] = "Always"
        spec["initContainers"] = [init]
    meta = {"name": name, "namespace": namespace, "labels": _labels(rng)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _bound_pod(rng: random.Random, index: int, nodes: list[Json]) -> Json:
    pod = _pod(rng, f"b{index}", rng.choice(tuple(NAMESPACES)))
    pod["spec"]["nodeName"] = rng.choice(nodes)["metadata"]["name"]
    if rng.random() < 0.2:
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_pod_term(rng)]}}
    return pod


def _incoming(rng: random.Random, nodes: list[Json]) -> Json:
    pod = _pod(rng, "incoming", "default")
    spec, affinity = pod["spec"], {}
    if rng.random() < 0.15:
        spec["nodeSelector"] = {"disk": rng.choice(DISKS)}
    if rng.random() < 0.35:
        terms = [_node_term(rng, nodes) for _ in range(rng.randint(1, 2))]
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if rng.random() < 0.25:
        affinity["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [_pod_term(rng)]}
    if rng.random() < 0.25:
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [_pod_term(rng)]}
    if affinity:
        spec["affinity"] = affinity
    if rng.random() < 0.5:
        spec["tolerations"] = [_toleration(rng) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        spread = [_spread(rng) for _ in range(rng.randint(1, 2))]
        spec["topologySpreadConstraints"] = list({(s["topologyKey"], s["whenUnsatisfiable"]): s for s in spread}.values())
    return pod


def _node_term(rng: random.Random, nodes: list[Json]) -> Json:
    def expression() -> Json:
        operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": "cores", "operator": operator, "values": [str(rng.choice((4, 8, 12)))]}
        key, values = rng.choice(((ZONE, ZONES), ("disk", DISKS)))
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        return {"key": key, "operator": operator, "values": sorted(rng.sample(values, rng.randint(1, len(values))))}

    term: Json = {"matchExpressions": [expression() for _ in range(rng.randint(1, 2))]}
    if rng.random() < 0.15:
        name = rng.choice(nodes)["metadata"]["name"]
        term["matchFields"] = [{"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": [name]}]
    return term


def _selector(rng: random.Random) -> Json:
    if rng.random() < 0.6:
        return {"matchLabels": {"app": rng.choice(APPS)}}
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    expression: Json = {"key": "tier", "operator": operator}
    if operator in ("In", "NotIn"):
        expression["values"] = [rng.choice(TIERS)]
    return {"matchExpressions": [expression]}


def _pod_term(rng: random.Random) -> Json:
    term: Json = {"labelSelector": _selector(rng), "topologyKey": rng.choice((ZONE, HOST))}
    kind = rng.random()
    if kind < 0.2:
        term["namespaces"] = ["other"]
    elif kind < 0.35:
        term["namespaceSelector"] = rng.choice(({}, {"matchLabels": {"team": "two"}}))
    return term


def _toleration(rng: random.Random) -> Json:
    toleration: Json = {}
    if rng.random() < 0.85:
        toleration["key"] = rng.choice(("dedicated", "spot"))
    if "key" not in toleration or rng.random() < 0.4:
        toleration["operator"] = "Exists"
    else:
        toleration["value"] = rng.choice(("gpu", "true"))
    if rng.random() < 0.5:
        toleration["effect"] = rng.choice(("NoSchedule", "NoExecute"))
    return toleration


def _spread(rng: random.Random) -> Json:
    spread: Json = {"maxSkew": rng.choice((1, 1, 2)), "topologyKey": rng.choice((ZONE, HOST)),
                    "whenUnsatisfiable": rng.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": _selector(rng)}  # fmt: skip
    if spread["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.25:
        spread["minDomains"] = rng.choice((2, 4))
    if rng.random() < 0.3:
        spread["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
    if rng.random() < 0.3:
        spread["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
    if rng.random() < 0.2 and "matchLabels" in spread["labelSelector"]:  # the selector may not name the key itself
        spread["matchLabelKeys"] = ["tier"]
    return spread


def _storage(rng: random.Random, nodes: list[Json], bound: list[Json], incoming: Json) -> list[Json]:
    """Claims for some of the pods with the volumes that they are bound to, or with none yet; attach limits; attachments."""
    found: list[Json] = []
    for node in nodes:
        if rng.random() < 0.6:
            drivers = [{"name": DRIVER, "nodeID": "x", "topologyKeys": [], "allocatable": {"count": rng.randint(1, 3)}}]
            meta = {"name": node["metadata"]["name"]}
            found.append({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta, "spec": {"drivers": drivers}})
    shared = [_bound_claim(rng, f"shared-{i}", "default", nodes, found) for i in range(2)]
    for pod in bound:
        if rng.random() < 0.5:
            name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
            _use(pod, [shared[0]] if space == "default" and rng.random() < 0.3
                 else [_bound_claim(rng, f"{name}-{i}", space, nodes, found) for i in range(rng.randint(1, 2))])  # fmt: skip
    claims = []
    for i in range(rng.randint(1, 2)):
        kind = rng.random()
        if kind < 0.2:
            claims.append(rng.choice(shared))
        elif kind < 0.65:
            claims.append(_bound_claim(rng, f"mine-{i}", "default", nodes, found))
        elif kind < 0.69:
            claims.append("missing")
        else:
            name = rng.choice(("now", "later", "later", "zonal", "local", "local", ""))
            claims.append(_claim(f"mine-{i}", "default", name, "", found))
    _use(incoming, sorted(set(claims)))
    for i in range(rng.randint(0, 4)):
        found.append(_volume(rng, f"free-{i}", "local", "", nodes))
    attached = [o["metadata"]["name"] for o in found if o["kind"] == "PersistentVolume" and "csi" in o["spec"]]
    for name in attached:
        if rng.random() < 0.1:
            found.append({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": f"at-{name}"},
                          "spec": {"attacher": DRIVER, "nodeName": rng.choice(nodes)["metadata"]["name"],
                                   "source": {"persistentVolumeName": name}}})  # fmt: skip
    return found


def _enrich(rng: random.Random, pod: Json) -> None:
    """A sidecar with a host port, resources of the pod as a whole, local storage, huge pages: each now and then."""
    spec, first = pod["spec"], pod["spec"]["containers"][0]
    if rng.random() < 0.5:
        port = {"containerPort": 81, "hostPort": rng.choice((8080, 9090)), "protocol": "TCP"}
        kind = {"restartPolicy": "Always"} if rng.random() < 0.7 else {}
        spec["initContainers"] = [{"name": "beside", "image": "i", "ports": [port], **kind}]
    requests, limits = first["resources"].setdefault("requests", {}), first["resources"].setdefault("limits", {})
    if rng.random() < 0.4:
        requests["ephemeral-storage"] = rng.choice(("1Gi", "4Gi"))
    if rng.random() < 0.3:
        requests.setdefault("cpu", "100m")
        requests["hugepages-2Mi"] = limits["hugepages-2Mi"] = rng.choice(("2Mi", "4Mi"))
    elif rng.random() < 0.3:
        spec["resources"] = {"requests": {"cpu": rng.choice(("4", "6")), "memory": "6Gi"}}


def _claim_for_one(rng: random.Random, nodes: list[Json], bound: list[Json], incoming: Json, found: list[Json]) -> None:
    """A claim that one pod at a time may use, and users of it."""
    _bound_claim(rng, "alone", "default", nodes, found)
    found[-1]["spec"]["accessModes"] = found[-2]["spec"]["accessModes"] = ["ReadWriteOncePod"]
    use = {"name": "alone", "persistentVolumeClaim": {"claimName": "alone"}}
    mine = [pod for pod in bound if pod["metadata"]["namespace"] == "default"]
    users = ([rng.choice(mine)] if mine and rng.random() < 0.5 else []) + ([incoming] if rng.random() < 0.5 else [])
    for pod in users:
        pod["spec"]["volumes"] = [*pod["spec"].get("volumes", ()), use]


def _thin_storage(rng: random.Random, nodes: list[Json], incoming: Json, found: list[Json]) -> None:
    """Claims of the incoming pod that are still to be made, and what their driver says that it can make, and where."""
    if rng.random() < 0.8:  # most of these clusters are about storage alone
        for part in ("nodeSelector", "affinity", "topologySpreadConstraints"):
            incoming["spec"].pop(part, None)
        incoming["spec"]["tolerations"] = [{"operator": "Exists"}]
        incoming["spec"]["containers"] = [{"name": "c0", "image": "i"}]
    claims = [] if rng.random() < 0.8 else [v["persistentVolumeClaim"]["claimName"] for v in incoming["spec"]["volumes"]]
    for i in range(rng.randint(1, 2)):
        claims.append(_claim(f"thin-{i}", "default", rng.choice(("thin", "thin", "thin-zonal")), "", found))
        if rng.random() < 0.1:
            found[-1]["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": rng.choice(nodes)["metadata"]["name"]}
    _use(incoming, claims)
    for i in range(rng.randint(0, 5)):
        capacity: Json = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                          "metadata": {"name": f"capacity-{i}", "namespace": rng.choice(tuple(NAMESPACES))},
                          "storageClassName": rng.choice(("thin", "thin", "thin-zonal", "later"))}  # fmt: skip
        if rng.random() < 0.9:
            capacity["nodeTopology"] = _reach(rng, nodes)
        if rng.random() < 0.9:
            capacity["capacity"] = rng.choice(("0", "2147483647", "2Gi", "2147483649", "100Gi"))
        if rng.random() < 0.3:
            capacity["maximumVolumeSize"] = rng.choice(("1Gi", "2Gi", "3Gi"))
        found.append(capacity)


def _reach(rng: random.Random, nodes: list[Json]) -> Json:
    """The nodes of one capacity, as a label selector."""
    kind = rng.random()
    if kind < 0.1:
        return {}
    if kind < 0.6:
        return {"matchLabels": {ZONE: rng.choice(ZONES)}}
    if kind < 0.8:
        names = [n["metadata"]["name"] for n in nodes]
        return {"matchExpressions": [{"key": HOST, "operator": "In", "values": sorted(rng.sample(names, 2))}]}
    return {"matchExpressions": [{"key": ZONE, "operator": rng.choice(("NotIn", "NotIn", "In")), "values": ["a"]}]}


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


def _bound_claim(rng: random.Random, name: str, space: str, nodes: list[Json], found: list[Json]) -> str:
    volume = f"pv-{space}-{name}"
    found.append(_volume(rng, volume, "later", f"{space}/{name}", nodes))
    return _claim(name, space, "later", volume, found)


def _volume(rng: random.Random, name: str, storage_class: str, claim: str, nodes: list[Json]) -> Json:
    """A volume bound to that claim, or a free local one."""
    spec: Json = {"capacity": {"storage": rng.choice(("1Gi", "2Gi", "5Gi", "5Gi"))}, "accessModes": ["ReadWriteOnce"],
                  "storageClassName": storage_class, "persistentVolumeReclaimPolicy": "Retain"}  # fmt: skip
    meta: Json = {"name": name}
    if claim:
        space, _, key = claim.partition("/")
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": space, "name": key}
    if claim and rng.random() < 0.9:
        spec["csi"] = {"driver": rng.choice((DRIVER, DRIVER, DRIVER, "csi.other.com")), "volumeHandle": name}
    else:
        spec["hostPath"] = {"path": "/x"}
    where = rng.random()
    if not claim or where < 0.2:
        key, values = rng.choice(((ZONE, list(ZONES)), (HOST, [n["metadata"]["name"] for n in nodes])))
        expression = {"key": key, "operator": "In", "values": sorted(rng.sample(values, min(len(values), rng.randint(1, 2))))}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    elif where < 0.35:
        meta["labels"] = {ZONE: rng.choice(("a", "b", "c", "a__b"))}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}
