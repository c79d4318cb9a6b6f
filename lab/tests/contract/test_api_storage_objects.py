"""PersistentVolumes and their claims as the API server takes them; who binds them is a controller's part."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from kit.control_plane import Api, Json, until

VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_count = itertools.count(1)
TERM = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}


def volume(**spec: Any) -> Json:
    whole = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "mine",
             "hostPath": {"path": "/data"}, **spec}  # fmt: skip
    return {"metadata": {"name": f"pv-{next(_count)}"}, "spec": {key: value for key, value in whole.items() if value is not None}}


def claim(name: str = "c", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "mine", **spec}}


def test_a_volume_begins_pending_and_is_protected(api: Api) -> None:
    made = api.create(VOLUMES, volume())
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert made["status"]["phase"] == "Pending"
    assert made["spec"] | {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain",
                           "hostPath": {"path": "/data", "type": ""}} == made["spec"]  # fmt: skip


@pytest.mark.parametrize(("spec", "causes"), [
    ({"hostPath": None}, ["spec: Required value: must specify a volume type"]),
    ({"accessModes": None}, ["spec.accessModes: Required value"]),
    ({"accessModes": ["A"]}, ['spec.accessModes: Unsupported value: "A"']),
    ({"capacity": {"storage": "0"}}, ["spec.capacity[storage]: Invalid value", "must be greater than zero"]),
    ({"local": {"path": "/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [TERM]}}},
     ["spec.local: Forbidden: may not specify more than 1 volume type"]),
    ({"hostPath": None, "local": {"path": "/x"}}, ["spec.nodeAffinity: Required value: Local volume requires node affinity"]),
    ({"hostPath": {"path": "/a/../b"}}, ["spec.hostPath.path: Invalid value", "must not contain '..'"]),
    ({"hostPath": {"path": ""}}, ["spec.hostPath.path: Required value"]),
    ({"persistentVolumeReclaimPolicy": "Nope"}, ['"Delete", "Recycle", "Retain"']),
    ({"volumeMode": "A"}, ['"Block", "Filesystem"']),
    ({"nodeAffinity": {}}, ["spec.nodeAffinity.required: Required value: must specify required node constraints"]),
    ({"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}, ["must have at least one node selector term"]),
])  # fmt: skip
def test_a_volume_that_says_not_where_it_is_or_how_large_is_refused(api: Api, spec: Json, causes: list[str]) -> None:
    answer = api.call("POST", VOLUMES, volume(**spec))
    assert answer.code == 422
    for cause in causes:
        assert cause in answer.json["message"]


def test_a_volumes_place_stays_and_the_rest_may_change(api: Api) -> None:
    made = api.create(VOLUMES, volume())
    path = f"{VOLUMES}/{made['metadata']['name']}"
    answer = api.call("PATCH", path, {"spec": {"hostPath": {"path": "/other"}}}, media="application/merge-patch+json")
    assert answer.code == 422
    assert "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable" in answer.json["message"]
    changed = api.merge(path, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    assert changed["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


def test_a_claim_is_protected_and_names_its_volume_once(api: Api, namespace: str) -> None:
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    made = api.create(claims, claim())
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert api.merge(f"{claims}/c", {"spec": {"volumeName": "somewhere"}})["spec"]["volumeName"] == "somewhere"
    for spec in ({"volumeName": "elsewhere"}, {"accessModes": ["ReadWriteMany"]}, {"storageClassName": "other"}):
        answer = api.call("PATCH", f"{claims}/c", {"spec": spec}, media="application/merge-patch+json")
        assert answer.code == 422
        assert "spec: Forbidden: spec is immutable after creation except resources.requests" in answer.json["message"]
    api.delete(f"{claims}/c")
    assert api.get(f"{claims}/c")["metadata"]["deletionTimestamp"]


def test_a_claim_that_names_no_class_gets_the_default_one(api: Api, namespace: str) -> None:
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    bare = claim("before")
    del bare["spec"]["storageClassName"]
    assert "storageClassName" not in api.create(claims, bare)["spec"]
    api.create(CLASSES, {"metadata": {"name": "usual", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                         "provisioner": "kubernetes.io/no-provisioner"})
    try:
        # The class is known to admission by a watch of its own; kube-apiserver is asked until it has come.
        probe = {**bare, "metadata": {"name": "probe"}}
        until(lambda: "storageClassName" in api.call("POST", f"{claims}?dryRun=All", probe).json["spec"])
        for name, asked, given in (("none", None, "usual"), ("empty", "", ""), ("own", "mine", "mine")):
            body = claim(name, storageClassName=asked)
            found = api.create(claims, body)["spec"].get("storageClassName")
            assert found == given
    finally:
        api.delete(f"{CLASSES}/usual")
