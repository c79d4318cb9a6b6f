"""Builders of storage objects for scheduling tests: claims, volumes, classes, and what drivers say."""

from __future__ import annotations

from typing import Any

from kit.engine_world import World
from kit.objects import pod

Json = dict[str, Any]
DRIVER, THIN = "csi.example.com", "csi.thin.example.com"
ZONE = "topology.kubernetes.io/zone"


def claim(name: str, *, volume: str = "", kind: str = "later", size: str = "1Gi", selected: str = "") -> Json:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    if selected:
        annotations["volume.kubernetes.io/selected-node"] = selected
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"volumeName": volume, "storageClassName": kind, "accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": size}}}}  # fmt: skip


def volume(name: str, *, kind: str = "later", claimed: str = "", nodes: tuple[str, ...] = (), zone: str = "",
           size: str = "1Gi", driver: str = DRIVER) -> Json:  # fmt: skip
    spec: Json = {"storageClassName": kind, "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}
    if driver:
        spec["csi"] = {"driver": driver, "volumeHandle": name}
    if claimed:
        spec["claimRef"] = {"namespace": "default", "name": claimed}
    if nodes:
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    labels = {ZONE: zone} if zone else {}
    return {"kind": "PersistentVolume", "metadata": {"name": name, "labels": labels}, "spec": spec}


def storage_class(name: str, provisioner: str = DRIVER, *, immediate: bool = False, zones: tuple[str, ...] = ()) -> Json:
    made: Json = {"kind": "StorageClass", "metadata": {"name": name}, "provisioner": provisioner,
                  "volumeBindingMode": "Immediate" if immediate else "WaitForFirstConsumer"}  # fmt: skip
    if zones:
        made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]
    return made


def limit(name: str, count: int) -> Json:
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": [
        {"name": DRIVER, "allocatable": {"count": count}}]}}  # fmt: skip


def using(name: str, *claims: str, **shape: Any) -> Json:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return pod(name, cpu="1", volumes=volumes, **shape)


def store(world: World, *objects: Json) -> None:
    for obj in objects:
        world.engine.state.volumes.put(obj["kind"], obj)


def driver(name: str = THIN) -> Json:
    """A CSI driver that wants its capacity to be looked at."""
    return {"kind": "CSIDriver", "metadata": {"name": name}, "spec": {"storageCapacity": True}}


def capacity(name: str, kind: str, said: str, *, zone: str | None = None, largest: str = "") -> Json:
    """Return the remaining count of a class: in one zone, or (None) on every node."""
    made: Json = {"kind": "CSIStorageCapacity", "metadata": {"name": name, "namespace": "kube-system"},
                  "storageClassName": kind, "nodeTopology": {} if zone is None else {"matchLabels": {ZONE: zone}}}  # fmt: skip
    if said:
        made["capacity"] = said
    if largest:
        made["maximumVolumeSize"] = largest
    return made
