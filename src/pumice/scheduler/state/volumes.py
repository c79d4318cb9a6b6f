"""PersistentVolumeClaims, volumes, storage classes and what a node may attach, as far as placing pods needs them.

Rules: kubernetes.io docs "Persistent Volumes", "Storage Classes" and "Node-specific Volume Limits".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.ports.cluster import Json
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.ledger import Ledger
from pumice.wire import kubernetes
from pumice.wire.objects import Requirement, Requirements, match_all, parse_label_selector, parse_node_term
from pumice.wire.quantity import parse_quantity

ZONE_LABELS = (
    kubernetes.ZONE, kubernetes.REGION, kubernetes.OLD_ZONE, kubernetes.OLD_REGION,
)  # fmt: skip
SELECTED_NODE = kubernetes.SELECTED_NODE
BOUND = kubernetes.BIND_COMPLETED
BY_CONTROLLER = kubernetes.BOUND_BY_CONTROLLER
FOR_ONE_POD = "ReadWriteOncePod"
NO_PROVISIONER = kubernetes.NO_PROVISIONER

Terms = tuple[Requirements | None, ...]
Handle = tuple[str, str]
"""Driver and the name by which it knows the volume: two claims with one handle are one attachment."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. ``volume``: the one to which it is bound, or was by hand; ``bound``: the binding is complete."""

    key: str
    uid: str
    volume: str
    storage_class: str
    bound: bool
    modes: frozenset[str] = frozenset()
    mode: str = "Filesystem"
    size: int = 0
    selector: Requirements | None = ()
    selected_node: str = ""


@dataclass(frozen=True, slots=True)
class Volume:
    """One PersistentVolume. ``affinity`` None: any node. ``claim`` is the key of the claim that it is meant for."""

    name: str
    affinity: Terms | None
    zones: tuple[tuple[str, frozenset[str]], ...]
    handle: Handle | None
    storage_class: str
    claim: str
    available: bool
    modes: frozenset[str]
    mode: str
    size: int
    labels: tuple[tuple[str, str], ...]

    def suits(self, claim: VolumeClaim) -> bool:
        """Return whether it could be given to that claim, wherever the pod runs."""
        if self.claim:
            return self.claim == claim.key
        return (
            self.available and self.storage_class == claim.storage_class and self.mode == claim.mode
            and claim.modes <= self.modes and self.size >= claim.size and match_all(claim.selector, dict(self.labels))
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass. ``topologies`` are where its provisioner makes volumes; None: everywhere."""

    provisioner: str
    immediate: bool
    topologies: Terms | None = None

    @property
    def provisions(self) -> bool:
        return self.provisioner not in ("", NO_PROVISIONER)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity that a driver can still make of one class on the nodes that ``nodes`` selects (None: on none). ``largest`` is
    the size in bytes up to which a single volume can be made; None: not said, and then nothing can. ``total`` is all of it."""

    storage_class: str
    nodes: Requirements | None
    largest: int | None
    total: int | None = None


@dataclass(slots=True)
class Volumes:
    """The known storage. Everything is optional: a claim that is not known refuses its pod, nothing else."""

    claims: dict[str, VolumeClaim] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    classes: dict[str, StorageClass] = field(default_factory=dict)
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node to driver to how many volumes may be attached there."""
    attached: dict[str, dict[str, str]] = field(default_factory=dict)
    """Node to VolumeAttachment to the volume that is attached, whether a pod uses it or not."""
    frugal: dict[str, bool] = field(default_factory=dict)
    """Return whether a driver wants its capacity to be looked at (CSIDriver's storageCapacity)."""
    capacities: dict[str, Capacity] = field(default_factory=dict)
    """CSIStorageCapacity objects by namespace/name."""
    assumed: dict[str, str] = field(default_factory=dict)
    """Free volumes that were chosen for a claim (its key), until the API server shows it."""
    version: int = 0
    """Raised when anything of this has changed: pods with claims may fit elsewhere now."""
    _node_of: dict[str, str] = field(default_factory=dict)

    def candidates(self, claim: VolumeClaim) -> list[Volume]:
        """Volumes that the claim could be given, the smallest first."""
        if claim.selected_node:
            return []  # one is being made
        found = [v for v in self.volumes.values() if v.suits(claim) and self.assumed.get(v.name, claim.key) == claim.key]
        return sorted(found, key=lambda volume: (volume.size, volume.name))

    def assume(self, choices: Mapping[str, str]) -> None:
        """Keep the chosen volumes (claim to volume) from other claims."""
        chosen = {volume: claim for claim, volume in choices.items() if volume}
        if chosen:
            self.assumed.update(chosen)
            self.version += 1

    def forget_assumed(self, keys: Iterable[str]) -> None:
        """The pod of these claims did not get its node."""
        for volume in [v for v, claim in self.assumed.items() if claim in set(keys)]:
            del self.assumed[volume]
            self.version += 1

    def handle(self, key: str) -> Handle | None:
        """Return what attaching that claim's volume means; None when no driver with limits is concerned."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        volume = self.volumes.get(claim.volume)
        if volume is not None:
            return volume.handle
        made_by = self.classes.get(claim.storage_class)
        return None if made_by is None or not made_by.provisions else (made_by.provisioner, f"claim {key}")

    def handles(self, keys: Iterable[str]) -> set[Handle]:
        return {handle for key in keys if (handle := self.handle(key)) is not None}

    def attached_to(self, node: str) -> set[Handle]:
        """Return what is attached to the node by VolumeAttachments."""
        named = (self.volumes.get(name) for name in self.attached.get(node, {}).values())
        return {volume.handle for volume in named if volume is not None and volume.handle is not None}

    def for_one_pod(self, keys: Iterable[str]) -> list[str]:
        """Those of these claims that a single pod at a time may use."""
        return [key for key in keys if (claim := self.claims.get(key)) is not None and FOR_ONE_POD in claim.modes]

    def room(self, claim: VolumeClaim) -> list[Requirements | None] | None:
        """The nodes, as selectors, for which the claim's driver says that it can make a volume of that size; None where it need
        not say so."""
        made_by = self.classes.get(claim.storage_class)
        if made_by is None or not self.frugal.get(made_by.provisioner) or not claim.size:
            return None
        known = (c for c in self.capacities.values() if c.storage_class == claim.storage_class)
        return [c.nodes for c in known if c.largest is not None and c.largest >= claim.size]

    # -- what the API server shows ------------------------------------------------------------------------------------

    def put(self, kind: str, obj: Json) -> None:
        """An object of storage was seen. Raises LookupError, TypeError, ValueError or AttributeError where it cannot be read."""
        if kind == ATTACHMENT:
            self._detach(obj)
            spec = obj.get("spec", {})
            node = self._node_of[_name(obj)] = str(spec.get("nodeName", ""))
            volume = str((spec.get("source") or {}).get("persistentVolumeName") or "")
            self.attached.setdefault(node, {})[_name(obj)] = volume
        else:
            table, name_of, read = _READ[kind]
            getattr(self, table)[name_of(obj)] = read(obj)
            if kind == "PersistentVolume" and obj.get("spec", {}).get("claimRef"):
                self.assumed.pop(_name(obj), None)
        self.version += 1

    def drop(self, kind: str, obj: Json) -> None:
        """It is gone."""
        if kind == ATTACHMENT:
            self._detach(obj)
        else:
            table, name_of, _ = _READ[kind]
            getattr(self, table).pop(name_of(obj), None)
        self.version += 1

    def _detach(self, obj: Json) -> None:
        self.attached.get(self._node_of.pop(_name(obj), ""), {}).pop(_name(obj), None)


def _name(obj: Json) -> str:
    return str(obj.get("metadata", {}).get("name", ""))


def _key(obj: Json) -> str:
    meta = obj.get("metadata", {})
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}"


def _claim(obj: Json) -> VolumeClaim:
    meta, spec = obj.get("metadata", {}), obj.get("spec", {})
    annotations, volume = meta.get("annotations") or {}, str(spec.get("volumeName") or "")
    bound = bool(volume) and (BOUND in annotations or obj.get("status", {}).get("phase") == "Bound")
    return VolumeClaim(
        _key(obj), str(meta.get("uid", "")), volume, str(spec.get("storageClassName") or ""), bound,
        frozenset(spec.get("accessModes") or ()), str(spec.get("volumeMode") or "Filesystem"),
        _size((spec.get("resources") or {}).get("requests")),
        parse_label_selector(spec["selector"]) if spec.get("selector") else (), str(annotations.get(SELECTED_NODE, "")),
    )  # fmt: skip


def _volume(obj: Json) -> Volume:
    spec = obj.get("spec", {})
    required: Any = (spec.get("nodeAffinity") or {}).get("required")
    labels = {str(k): str(v) for k, v in (obj.get("metadata", {}).get("labels") or {}).items()}
    csi, claim = spec.get("csi"), spec.get("claimRef") or {}
    return Volume(
        _name(obj),
        tuple(parse_node_term(t) for t in required.get("nodeSelectorTerms") or ()) if required else None,
        tuple((key, frozenset(labels[key].split("__"))) for key in ZONE_LABELS if key in labels),
        (str(csi.get("driver", "")), str(csi.get("volumeHandle", ""))) if csi else None,
        str(spec.get("storageClassName") or ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        obj.get("status", {}).get("phase", "Available") == "Available",
        frozenset(spec.get("accessModes") or ()), str(spec.get("volumeMode") or "Filesystem"),
        _size(spec.get("capacity")), tuple(sorted(labels.items())),
    )  # fmt: skip


def _class(obj: Json) -> StorageClass:
    return StorageClass(
        str(obj.get("provisioner", "")), obj.get("volumeBindingMode", "Immediate") != "WaitForFirstConsumer",
        tuple(_topology(term) for term in obj.get("allowedTopologies") or ()) or None,
    )  # fmt: skip


def _limits(obj: Json) -> dict[str, int]:
    drivers = obj.get("spec", {}).get("drivers") or ()
    counts = {str(d.get("name", "")): (d.get("allocatable") or {}).get("count") for d in drivers}
    return {name: int(count) for name, count in counts.items() if count is not None}


def _capacity(obj: Json) -> Capacity:
    said = obj.get("maximumVolumeSize") or obj.get("capacity")
    return Capacity(
        str(obj.get("storageClassName", "")), parse_label_selector(obj.get("nodeTopology")),
        _size({"storage": said}) if said is not None else None,
        _size({"storage": obj["capacity"]}) if obj.get("capacity") is not None else None,
    )  # fmt: skip


def _size(amounts: Any) -> int:
    """Bytes; what cannot be read counts as 0."""
    try:
        return int(parse_quantity((amounts or {}).get("storage", "0")))
    except ValueError:
        return 0


def _topology(term: Any) -> Requirements:
    found = (term or {}).get("matchLabelExpressions") or ()
    return tuple(Requirement(str(e.get("key", "")), "In", tuple(str(v) for v in e.get("values") or ())) for e in found)


ATTACHMENT = "VolumeAttachment"
_READ: Mapping[str, tuple[str, Callable[[Json], str], Callable[[Json], Any]]] = {
    "PersistentVolumeClaim": ("claims", _key, _claim),
    "PersistentVolume": ("volumes", _name, _volume),
    "StorageClass": ("classes", _name, _class),
    "CSINode": ("limits", _name, _limits),
    "CSIDriver": ("frugal", _name, lambda obj: bool((obj.get("spec") or {}).get("storageCapacity"))),
    "CSIStorageCapacity": ("capacities", _key, _capacity),
}
"""By kind the table of ``Volumes``, the name under which an object is known there, and what is read of it."""


# -- volumes that the claims of a pod would get on a node --------------------------------------------------------------


Mask = NDArray[np.bool_]


class VolumeOptions:
    """For some unbound claims, the free volumes (smallest first) with the rows they may be used on, and the rows on which one
    can be made."""

    def __init__(self, ledger: Ledger, volumes: Volumes, claims: list[VolumeClaim], *, by_room: bool) -> None:
        labels, capacity = ledger.terms.labels, ledger.table.capacity
        self.claims = sorted(claims, key=lambda claim: claim.size)
        self.made = {claim.key: _provisioned(ledger, volumes, claim, by_room=by_room) for claim in claims}
        self.free = {
            claim.key: [
                (v.name, np.ones(capacity, bool) if v.affinity is None else labels.match_any(v.affinity)[:capacity])
                for v in volumes.candidates(claim)
            ]
            for claim in claims
        }  # fmt: skip

    def at(self, row: int) -> dict[str, str] | None:
        """VolumeClaim to volume on one row; None where some claim finds nothing."""
        taken: dict[str, str] = {}
        for claim in self.claims:
            mine = next((name for name, fits in self.free[claim.key] if fits[row] and name not in taken.values()), "")
            if not mine and not self.made[claim.key][row]:
                return None
            taken[claim.key] = mine
        return taken


def _provisioned(ledger: Ledger, volumes: Volumes, claim: VolumeClaim, *, by_room: bool) -> Mask:
    """Rows for which the claim's class makes volumes; ``by_room``: of that size."""
    labels, capacity = ledger.terms.labels, ledger.table.capacity
    made_by = volumes.classes.get(claim.storage_class)
    if made_by is None or not made_by.provisions:
        return np.zeros(capacity, bool)
    rows = np.ones(capacity, bool)
    if made_by.topologies is not None:
        rows &= labels.match_any(made_by.topologies)[:capacity]
    if claim.selected_node:  # its volume is being made for that node
        at = np.zeros(capacity, bool)
        row = ledger.table.row_of.get(claim.selected_node)
        if row is not None:
            at[row] = True
        rows &= at
    if by_room and (room := volumes.room(claim)) is not None:
        rows &= labels.match_any(room)[:capacity]
    return rows


def volumes_for(ledger: Ledger, volumes: Volumes, cls: PodClass, node: str) -> dict[str, str]:
    """Return which volume each unbound claim of the pod gets on that node; empty: one is made there."""
    known = [volumes.claims.get(key) for key in cls.constraints.claim_keys]
    claims = [claim for claim in known if claim is not None and not claim.bound]
    row = ledger.table.row_of.get(node)
    if not claims or row is None:
        return {}
    return VolumeOptions(ledger, volumes, claims, by_room=True).at(row) or {}
