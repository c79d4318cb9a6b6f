"""Volumes that are made when a pod needs them: folders of the node that its scheduler has chosen. Pure.

What a local-path provisioner does elsewhere, step by step as in Kubernetes "Storage Classes", section "Volume binding mode".
"""

from __future__ import annotations

from pumice.effects.vocabulary import Create, Event
from pumice.wire import kinds
from pumice.wire.kubernetes import SELECTED_NODE
from pumice_lab.controllers.actions import Action, Json, View

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
