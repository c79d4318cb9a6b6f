"""A cluster snapshot: everything a scheduling decision looks at, in one JSON document (``pumice dump``).

Pods and nodes are cut down to the fields that the scheduler reads, so neither environment variables nor images' secrets get
into a bug report. ``pumice explain --from`` and ``pumice replay`` work from the file alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pumice.effects.vocabulary import Bind, PodCondition
from pumice.model.errors import BadInput, nearest
from pumice.ports.cluster import Resource
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import KINDS, put_first_queues
from pumice.scheduler.state.state import State
from pumice.wire import kinds, names, volcano
from pumice.wire.device_config import DeviceConfig
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.objects import Pod, convert, is_read
from pumice.wire.scheduler_conf import DEFAULT_CONF, parse_scheduler_conf
from pumice.wire.times import seconds

KIND = "PumiceCase"
VERSION = 1
REPORTS = "deviceReports"
KINDS_KEPT: Mapping[str, tuple[Resource, str]] = {
    "namespaces": (kinds.NAMESPACES, "Namespace"),
    "nodes": (kinds.NODES, "Node"),
    "queues": (volcano.QUEUES, "Queue"),
    "resourceQuotas": (kinds.RESOURCE_QUOTAS, "ResourceQuota"),
    "hyperNodes": (volcano.HYPER_NODES, "HyperNode"),
    "disruptionBudgets": (kinds.DISRUPTION_BUDGETS, "PodDisruptionBudget"),
    "services": (kinds.SERVICES, "Service"),
    "replicationControllers": (kinds.REPLICATION_CONTROLLERS, "ReplicationController"),
    "replicaSets": (kinds.REPLICA_SETS, "ReplicaSet"),
    "statefulSets": (kinds.STATEFUL_SETS, "StatefulSet"),
    "priorityClasses": (kinds.PRIORITY_CLASSES, "PriorityClass"),
    "podGroups": (volcano.POD_GROUPS, "PodGroup"),
    "claims": (kinds.PERSISTENT_VOLUME_CLAIMS, "PersistentVolumeClaim"),
    "volumes": (kinds.PERSISTENT_VOLUMES, "PersistentVolume"),
    "storageClasses": (kinds.STORAGE_CLASSES, "StorageClass"),
    "csiNodes": (kinds.CSI_NODES, "CSINode"),
    "csiDrivers": (kinds.CSI_DRIVERS, "CSIDriver"),
    "csiStorageCapacities": (kinds.CSI_STORAGE_CAPACITIES, "CSIStorageCapacity"),
    "volumeAttachments": (kinds.VOLUME_ATTACHMENTS, "VolumeAttachment"),
    "deviceClasses": (kinds.DEVICE_CLASSES, "DeviceClass"),
    "resourceSlices": (kinds.RESOURCE_SLICES, "ResourceSlice"),
    "resourceClaimTemplates": (kinds.RESOURCE_CLAIM_TEMPLATES, "ResourceClaimTemplate"),
    "resourceClaims": (kinds.RESOURCE_CLAIMS, "ResourceClaim"),
    REPORTS: (kinds.CONFIGMAPS, "ConfigMap"),
    "pods": (kinds.PODS, "Pod"),
}
"""Key in the file to resource and kind; an engine is told of those in ``scheduler.inputs.KINDS``, and of pods."""
SLICES: Mapping[str, type[Any] | None] = {
    key: Pod if kind == "Pod" else KINDS[kind].slice_ if kind in KINDS and kind != "Namespace" else None
    for key, (_, kind) in KINDS_KEPT.items()
}
"""Key in the file to the slice that is kept (None: the whole object, it is small)."""


@dataclass(slots=True)
class ClusterSnapshot:
    """A snapshot of a cluster. ``decisions`` is what an engine decided on it when it was written; ``now`` is that time."""

    now: float = 0.0
    scheduler_conf: str = DEFAULT_CONF
    device_config: str = ""
    scheduler_names: list[str] = field(default_factory=lambda: [names.SCHEDULER_NAME])
    objects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    """Run times of pods, in lines as the record of share-hours has them (``wire.share_hours``)."""
    remarks: list[str] = field(default_factory=list)
    """A remark on the configuration: that another one stands there and is refused."""

    @property
    def templates(self) -> set[str] | None:
        """The ResourceClaimTemplates, as namespace/name; None where they could not be read."""
        key = "resourceClaimTemplates"
        metas = [one.get("metadata", {}) for one in self.objects.get(key, ())]
        unread = key not in self.objects or any(kinds.RESOURCE_CLAIM_TEMPLATES.plural in text for text in self.remarks)
        return None if unread else {f"{meta.get('namespace', 'default')}/{meta.get('name')}" for meta in metas}

    def pod(self, namespace: str, name: str) -> Pod:
        """Raises BadInput when the snapshot has no such pod."""
        for item in self.objects.get("pods", ()):
            meta = item.get("metadata", {})
            if meta.get("name") == name and meta.get("namespace", "default") == namespace:
                return convert(Pod, item)
        metas = [p.get("metadata", {}) for p in self.objects.get("pods", ())]
        places = {(meta.get("namespace", "default"), str(meta.get("name"))) for meta in metas}
        elsewhere = min((space for space, known in places if known == name), default="")
        beside = sorted(known for space, known in places if space == namespace)
        hint = f"; there is {elsewhere}/{name}" if elsewhere else nearest(name, beside)
        raise BadInput(f"no pod {namespace}/{name}{hint}")


def engine_of(snapshot: ClusterSnapshot) -> Engine:
    """An engine that holds the snapshot. Raises BadInput when one of the configurations cannot be used."""
    conf = parse_scheduler_conf(snapshot.scheduler_conf)
    try:
        devices = parse_device_config(snapshot.device_config) if snapshot.device_config else DeviceConfig()
    except BadInput as error:
        raise BadInput(f"{names.DEVICE_CONFIG_KEY} {error}") from None
    engine = Engine(conf, devices, State(scheduler_names=frozenset(snapshot.scheduler_names)))
    put_first_queues(engine)
    for key in sorted(KINDS_KEPT, key=lambda key: key != REPORTS):
        for number, item in enumerate(snapshot.objects.get(key, ())):
            try:
                _put(engine, KINDS_KEPT[key][1], item, snapshot.now)
            except UNREADABLE[SLICES[key] is None] as error:
                raise BadInput(f"objects.{key}[{number}]: {type(error).__name__}: {error}") from None
    return engine


def _put(engine: Engine, kind: str, obj: dict[str, Any], now: float) -> None:
    """A pod that waits has been known since it was created: for a PodGroup that is on its way nobody waits any more."""
    if kind == "Pod":
        pod = convert(Pod, obj)
        since = now if pod.metadata.deletion_timestamp else min(now, seconds(pod.metadata.creation_timestamp))
        engine.state.pods.put(pod, since)
    elif kind in KINDS:
        slice_, put, _ = KINDS[kind]
        put(engine, obj if slice_ is None else convert(slice_, obj))


UNREADABLE: Mapping[bool, tuple[type[Exception], ...]] = {
    False: (msgspec.ValidationError,),
    True: (AttributeError, KeyError, TypeError, ValueError),
}
"""The end of the sentence about an object that no API server would show, by whether it is kept as it is."""


def decisions_of(snapshot: ClusterSnapshot) -> list[dict[str, Any]]:
    """Return the decisions of one cycle on the snapshot, in order; the same snapshot always gives the same list."""
    engine = engine_of(snapshot)
    tell = (
        names.VGPU_IDS,
        *(device_type.allocation_keys[0] for device_type in engine.device_types if device_type.allocation_keys),
    )
    plan = engine.cycle(snapshot.now, random.Random(0))
    found: list[dict[str, Any]] = []
    for effect in plan.effects:
        if isinstance(effect, Bind):
            where = {"pod": f"{effect.namespace}/{effect.name}", "node": effect.node}
            devices = next((effect.annotations[key] for key in tell if key in effect.annotations), "")
            claimed = [text for one in effect.device_claims if one.allocation for text in _claimed(one.name, one.allocation)]
            found.append({**where, "devices": "; ".join(filter(None, (devices, *claimed)))})
        elif isinstance(effect, PodCondition):
            found.append({"pod": f"{effect.namespace}/{effect.name}", "waits": effect.message})
    return found


def _claimed(claim: str, allocation: Mapping[str, Any]) -> Iterator[str]:
    """A text for each device that a claim gets. Shares have names by chance, so none stands there."""
    for one in (allocation.get("devices") or {}).get("results") or ():
        amounts = ", ".join(f"{key} {amount}" for key, amount in sorted((one.get("consumedCapacity") or {}).items()))
        where = "/".join((one["driver"], one["pool"], one["device"]))
        yield f"claim {claim} {one['request']}: {where}{f' ({amounts})' if amounts else ''}"


# -- the file -----------------------------------------------------------------------------------------------------


def save(snapshot: ClusterSnapshot) -> str:
    """The document as text, without the key of run times where none are known."""
    document = {"kind": KIND, "version": VERSION, **asdict(snapshot)}
    if not snapshot.runs:
        del document["runs"]
    return json.dumps(document, indent=1)


def load(path: Path) -> ClusterSnapshot:
    """Read a file. Raises BadInput with the reason."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{path}: no JSON: {error}") from None
    if not isinstance(document, dict) or document.pop("kind", None) != KIND:
        raise BadInput(f"{path}: not written by `pumice dump` (kind {KIND} expected)")
    version = document.pop("version", VERSION)
    if version != VERSION:
        raise BadInput(f"{path}: written in form {version!r}, this pumice reads form {VERSION}; use the one that wrote it")
    try:
        snapshot = msgspec.convert(document, ClusterSnapshot)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {error}") from None
    for kind in snapshot.objects:
        if kind not in SLICES:
            raise BadInput(f"{path}: objects.{kind}: nothing reads this{nearest(kind, SLICES)}")
    return snapshot


def trimmed(obj: dict[str, Any], kind: type[Any] | None) -> dict[str, Any]:
    """Only what the scheduler reads, without empty fields."""
    if kind is None:
        meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
        allowed = (obj.get("status") or {}).get("disruptionsAllowed")  # of a PodDisruptionBudget
        kept = {} if allowed is None else {"status": {"disruptionsAllowed": allowed}}
        if (obj.get("status") or {}).get("allocation"):  # of a ResourceClaim
            kept = {"status": {key: obj["status"][key] for key in ("allocation", "reservedFor") if key in obj["status"]}}
        return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": meta, **kept}
    slim: dict[str, Any] = _full(msgspec.to_builtins(convert(kind, obj)))
    notes = slim.get("metadata", {}).get("annotations")
    if notes:
        slim["metadata"]["annotations"] = {key: value for key, value in notes.items() if is_read(key)}
    return slim


def _full(value: Any) -> Any:
    """Without empty values; an annotation or label may be empty and stays."""
    if isinstance(value, dict):
        kept = {k: v if k in ("annotations", "labels") else _full(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v not in (None, "", [], {}, False)}
    return [_full(item) for item in value] if isinstance(value, list) else value
