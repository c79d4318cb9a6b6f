"""PersistentVolumes and their claims: bound to each other, kept while they are used, reclaimed (Kubernetes "Persistent Volumes",
sections "Binding", "Storage Object in Use Protection" and "Reclaiming"; events and messages as pkg/controller/volume of its
source has them). A volume of a class that waits for its first consumer is chosen by the scheduler, which names the claim on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pumice.effects.vocabulary import Create, Event, Patch, Severity
from pumice.effects.vocabulary import Delete as DeleteObject
from pumice.ports.cluster import Resource
from pumice.wire import kinds
from pumice.wire.kubernetes import SELECTED_NODE
from pumice.wire.objects import selects
from pumice.wire.quantity import parse_quantity
from pumice.wire.times import stamp
from pumice_lab.controllers.common import Action, Json, RemoveFolder, View, is_deleting, status_patch
from pumice_lab.controllers.garbage import Meta

CLAIMS, VOLUMES, CLASSES = kinds.PERSISTENT_VOLUME_CLAIMS, kinds.PERSISTENT_VOLUMES, kinds.STORAGE_CLASSES
KINDS = (CLAIMS, VOLUMES, CLASSES)
_COMPLETED = "pv.kubernetes.io/bind-completed"
_YES = {"pv.kubernetes.io/bound-by-controller": "yes"}
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_CLAIM_KEPT, _VOLUME_KEPT = "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"
_REMOVABLE = re.compile(r"/tmp/.+")


def reconcile_claim(claim: View, volumes: Iterable[View], classes: Iterable[View], pods: Iterable[View],
                    now: float) -> list[Action]:  # fmt: skip
    """``pods``: those of its namespace."""
    meta, spec = claim["metadata"], claim["spec"]
    if is_deleting(claim):
        used = any(pod["spec"].get("nodeName") and meta["name"] in claims_of(pod) for pod in pods)
        return [] if used else _let_go(CLAIMS, claim, _CLAIM_KEPT)
    known = list(volumes)
    if name := spec.get("volumeName"):
        return _named(claim, next((v for v in known if v["metadata"]["name"] == name), None), now)
    class_ = next((c for c in classes if c["metadata"]["name"] == spec.get("storageClassName")), None)
    waits = class_ is not None and class_.get("volumeBindingMode") == "WaitForFirstConsumer"
    found = [v for v in known if _is_for(v, claim) and not _fit_error(v, claim, by_class=False)]
    if not found and not waits:
        found = sorted((v for v in known if _suits(v, claim)), key=lambda v: (_size(v), v["metadata"]["name"]))
    if found:
        return _bind(claim, found[0], now)
    pending: list[Action] = [*status_patch(CLAIMS, claim, {"phase": "Pending"})]
    ours = class_ is not None and class_.get("provisioner") == PROVISIONER
    if class_ is not None and ours and (made := make(claim, class_, _about(claim))):
        return [*pending, *made]
    return [*pending, Event.on(_about(claim), *_why_unbound(str(spec.get("storageClassName") or ""), class_, waits=waits))]


def reconcile_volume(volume: View, claim: View | None, now: float) -> list[Action]:
    """``claim``: the one that the volume names by its uid; None where there is none, or none any more."""
    reference = volume["spec"].get("claimRef") or {}
    if is_deleting(volume) and _phase(volume) != "Bound":
        return _let_go(VOLUMES, volume, _VOLUME_KEPT)
    if not reference.get("uid"):
        return _to_phase(volume, "Available", now)
    if claim is not None:
        chosen = claim["spec"].get("volumeName")
        if chosen and chosen != volume["metadata"]["name"]:
            return [_unbind(volume)]
        return _to_phase(volume, "Bound", now) if chosen else []
    if _phase(volume) == "Failed":
        return []
    policy, released = volume["spec"].get("persistentVolumeReclaimPolicy"), _to_phase(volume, "Released", now)
    if policy == "Recycle" and released:
        return [*released, Event.on(_about(volume), "Warning", "RecycleFailed", "volumes are not recycled in this cluster")]
    return _delete(volume, now) if policy == "Delete" else released


def concerned(resource: Resource, meta: Meta, obj: View | None, claims: Mapping[str, View],
              volumes: Mapping[str, View]) -> Iterator[tuple[Resource, str]]:  # fmt: skip
    """Return the keys to reconcile when a claim, a volume or a class changes, or a pod is gone (``obj`` None: it is gone)."""
    unbound = ((CLAIMS, key) for key, claim in claims.items() if not claim["spec"].get("volumeName"))
    if resource == CLASSES:
        yield from unbound
    elif resource == CLAIMS:
        yield CLAIMS, meta.uid
        yield from ((VOLUMES, key) for key, volume in volumes.items()
                    if (volume["spec"].get("claimRef") or {}).get("uid") == meta.uid)  # fmt: skip
    elif resource == VOLUMES:
        yield VOLUMES, meta.uid
        reference = (obj["spec"].get("claimRef") or {}) if obj else {}
        if reference.get("uid"):
            yield CLAIMS, reference["uid"]
        else:
            yield from unbound
        yield from ((CLAIMS, key) for key, claim in claims.items() if claim["spec"].get("volumeName") == meta.name)
    elif obj is None:
        yield from ((CLAIMS, key) for key, claim in claims.items()
                    if claim["metadata"]["namespace"] == meta.namespace and is_deleting(claim))  # fmt: skip


def claims_of(pod: View) -> set[str]:
    """The claims that a pod names."""
    return {(volume.get("persistentVolumeClaim") or {}).get("claimName", "") for volume in pod["spec"].get("volumes") or ()}


def _about(obj: View) -> Json:
    kind = "PersistentVolumeClaim" if obj["metadata"].get("namespace") else "PersistentVolume"
    return {"apiVersion": "v1", "kind": kind, "metadata": obj["metadata"]}


def _why_unbound(named: str, class_: View | None, *, waits: bool) -> tuple[Severity, str, str]:
    if waits:
        return "Normal", "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
    if not named:
        return "Normal", "FailedBinding", "no persistent volumes available for this claim and no storage class is set"
    if class_ is None:
        return "Warning", "ProvisioningFailed", f'storageclass.storage.k8s.io "{named}" not found'
    provisioner = class_.get("provisioner")
    if provisioner == _NO_PROVISIONER:
        return "Warning", "ProvisioningFailed", f"no volume plugin matched name: {provisioner}"
    return ("Normal", "ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner "
            f"'{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the "
            "provisioner is running and correctly registered.")  # fmt: skip


def _named(claim: View, volume: View | None, now: float) -> list[Action]:
    """The claim says which volume: by its owner's wish, or because they are bound."""
    bound = _COMPLETED in (claim["metadata"].get("annotations") or {})
    fit_error = "" if volume is None or bound else _fit_error(volume, claim)
    free = volume is not None and not volume["spec"].get("claimRef")
    if volume is not None and (_is_for(volume, claim) or (free and not fit_error)):
        return _bind(claim, volume, now)
    if not bound:
        pending: list[Action] = [*status_patch(CLAIMS, claim, {"phase": "Pending"})]
        if volume is None:
            return pending
        name = volume["metadata"]["name"]
        mismatch = ("VolumeMismatch", f'Cannot bind to requested volume "{name}": {fit_error}')
        taken = ("FailedBinding", f'volume "{name}" already bound to a different claim.')
        return [*pending, Event.on(_about(claim), "Warning", *(mismatch if free else taken))]
    if (claim.get("status") or {}).get("phase") == "Lost":
        return []
    why = ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!") if volume is None else \
          ("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")  # fmt: skip
    return [*status_patch(CLAIMS, claim, {"phase": "Lost"}), Event.on(_about(claim), "Warning", *why)]


def _bind(claim: View, volume: View, now: float) -> list[Action]:
    """One write at a time, the volume first: what another claim took meanwhile is a conflict there, and seen anew."""
    meta, spec, held = claim["metadata"], claim["spec"], volume["metadata"]
    reference = volume["spec"].get("claimRef") or {}
    if reference.get("uid") != meta["uid"]:
        mine = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"], "name": meta["name"],
                "uid": meta["uid"]}  # fmt: skip
        seen = {"resourceVersion": held["resourceVersion"], **({} if reference else {"annotations": _YES})}
        body: Json = {"metadata": seen, "spec": {"claimRef": mine}}
        return [Patch(VOLUMES, "", held["name"], body, held["uid"])]
    noted = meta.get("annotations") or {}
    if not spec.get("volumeName") or _COMPLETED not in noted:
        chosen = {} if spec.get("volumeName") else _YES
        body = {"metadata": {"annotations": {_COMPLETED: "yes", **chosen}}, "spec": {"volumeName": held["name"]}}
        return [Patch(CLAIMS, meta["namespace"], meta["name"], body, meta["uid"])]
    status = {"phase": "Bound", "accessModes": volume["spec"].get("accessModes"), "capacity": volume["spec"].get("capacity")}
    return [*status_patch(CLAIMS, claim, status), *_to_phase(volume, "Bound", now)]


def _unbind(volume: View) -> Patch:
    """Its claim got another one. What we wrote on it goes; whom somebody else kept it for stays written, without the uid."""
    meta, ours = volume["metadata"], list(_YES.keys() & (volume["metadata"].get("annotations") or {}).keys())
    seen = {"resourceVersion": meta["resourceVersion"], "annotations": dict.fromkeys(ours)}
    body: Json = {"metadata": seen, "spec": {"claimRef": None if ours else {"uid": None}}}
    return Patch(VOLUMES, "", meta["name"], body, meta["uid"])


def _delete(volume: View, now: float) -> list[Action]:
    meta, source = volume["metadata"], volume["spec"].get("hostPath")
    path = str((source or {}).get("path", ""))
    if source and _REMOVABLE.fullmatch(path):
        return [RemoveFolder(path), DeleteObject(VOLUMES, "", meta["name"], meta["uid"]), *_to_phase(volume, "Released", now)]
    why = (f"host_path deleter only supports /tmp/.+ but received provided {path}" if source else
           f'error getting deleter volume plugin for volume "{meta["name"]}": no volume plugin matched')  # fmt: skip
    return [*_to_phase(volume, "Failed", now, why), Event.on(_about(volume), "Warning", "VolumeFailedDelete", why)]


def _to_phase(volume: View, phase: str, now: float, message: str | None = None) -> list[Action]:
    if _phase(volume) == phase:
        return []
    status = {"phase": phase, "message": message, "lastPhaseTransitionTime": stamp(now)}
    return [*status_patch(VOLUMES, volume, status)]


def _let_go(resource: Resource, obj: View, finalizer: str) -> list[Action]:
    meta = obj["metadata"]
    if finalizer not in (meta.get("finalizers") or ()):
        return []
    left = [name for name in meta["finalizers"] if name != finalizer]
    body: Json = {"metadata": {"finalizers": left, "resourceVersion": meta["resourceVersion"]}}
    return [Patch(resource, meta.get("namespace", ""), meta["name"], body, meta["uid"])]


def _is_for(volume: View, claim: View) -> bool:
    """It names the claim, whoever wrote that."""
    reference, meta = volume["spec"].get("claimRef") or {}, claim["metadata"]
    named = (reference.get("namespace"), reference.get("name")) == (meta["namespace"], meta["name"])
    return named and reference.get("uid", meta["uid"]) == meta["uid"]


def _suits(volume: View, claim: View) -> bool:
    """A free one that the claim may be given."""
    selector = claim["spec"].get("selector")
    selected = not selector or selects(selector, volume["metadata"].get("labels") or {})
    return selected and not volume["spec"].get("claimRef") and not _fit_error(volume, claim)


def _fit_error(volume: View, claim: View, *, by_class: bool = True) -> str:
    """Return why the claim may not have it, whoever chose it (checkVolumeSatisfyClaim); empty where it may. A volume that is
    kept for it may be of another class."""
    mine, its = claim["spec"], volume["spec"]
    if is_deleting(volume):
        return f'the volume is marked for deletion "{volume["metadata"]["name"]}"'
    if _size(volume) < parse_quantity(mine.get("resources", {}).get("requests", {}).get("storage", "0")):
        return "requested PV is too small"
    if by_class and (its.get("storageClassName") or "") != (mine.get("storageClassName") or ""):
        return "storageClassName does not match"
    if its.get("volumeMode", "Filesystem") != mine.get("volumeMode", "Filesystem"):
        return "incompatible volumeMode"
    return "" if set(mine.get("accessModes") or ()) <= set(its.get("accessModes") or ()) else "incompatible accessMode"


def _size(volume: View) -> int:
    return int(parse_quantity((volume["spec"].get("capacity") or {}).get("storage", "0")))


def _phase(volume: View) -> str:
    return str((volume.get("status") or {}).get("phase", ""))


# -- Volumes that are made when a pod needs them: folders of the node that its scheduler has chosen. Pure ------------

# What a local-path provisioner does elsewhere, step by step as in Kubernetes "Storage Classes", section "Volume
# binding mode".

PROVISIONER = "pumice.volcano.sh/folder"
_PLACE = "/tmp/pumice-volumes"
"""Below /tmp, for what lies there may be removed with its volume; a path that the machine lacks is a folder of the data dir."""


def standard_class() -> Json:
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": PROVISIONER, "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer",
            "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}  # fmt: skip


def make(claim: View, class_: View, about: Json) -> list[Action]:
    """The volume for a claim of a class of ours. Nothing while no node is chosen; otherwise an event says why none is made."""
    meta, spec = claim["metadata"], claim["spec"]
    node = (meta.get("annotations") or {}).get(SELECTED_NODE)
    if why := _refusal(spec, class_):
        return [Event.on(about, "Warning", "ProvisioningFailed", f'failed to provision volume with StorageClass "'
                     f'{class_["metadata"]["name"]}": {why}')]  # fmt: skip
    if not node:
        return []
    name = f"pvc-{meta['uid']}"
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    owner = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"], "name": meta["name"],
             "uid": meta["uid"]}  # fmt: skip
    return [Create(kinds.PERSISTENT_VOLUMES, {
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {"capacity": {"storage": spec["resources"]["requests"]["storage"]}, "accessModes": spec["accessModes"],
                 "persistentVolumeReclaimPolicy": class_.get("reclaimPolicy", "Delete"), "claimRef": owner,
                 "storageClassName": class_["metadata"]["name"], "volumeMode": "Filesystem",
                 "hostPath": {"path": f"{_PLACE}/{name}", "type": "DirectoryOrCreate"},
                 "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}}),
            Event.on(about, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}")]  # fmt: skip


def _refusal(spec: View, class_: View) -> str:
    if class_.get("volumeBindingMode") != "WaitForFirstConsumer":
        return "a folder is made on the node of its first pod: the class must have volumeBindingMode WaitForFirstConsumer"
    if spec.get("volumeMode", "Filesystem") != "Filesystem":
        return "folders are no block devices"
    if spec.get("selector"):
        return "a claim with a selector is for volumes that are there already"
    return ""
