"""Volumes and claims: who is given to whom, what is kept while it is used, and what becomes of a volume whose claim is gone.

What is expected here was seen of kube-controller-manager 1.36 with the same objects.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from lab.tests.unit.controllers.conftest import Cluster, template

from pumice.ports.cluster import Json, Resource
from pumice.wire.kinds import EVENTS, PODS
from pumice.wire.kubernetes import SELECTED_NODE
from pumice_lab.controllers.caches import Caches
from pumice_lab.controllers.manager import _remove
from pumice_lab.controllers.storage import CLAIMS, CLASSES, VOLUMES, standard_class

With = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]


async def volume(cluster: Cluster, name: str, size: str = "1Gi", class_: str = "", **spec: Any) -> None:
    source = {} if "local" in spec else {"hostPath": {"path": f"/tmp/{name}"}}
    await cluster.make(VOLUMES, "PersistentVolume", name, {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
                                                           "storageClassName": class_, **source, **spec})


async def claim(cluster: Cluster, name: str, class_: str = "", **spec: Any) -> None:
    await cluster.make(CLAIMS, "PersistentVolumeClaim", name, {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "500Mi"}}, "storageClassName": class_, **spec})


async def storage_class(cluster: Cluster, name: str, provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> None:
    await cluster.kube.create(CLASSES, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                                        "provisioner": provisioner, **more})


async def see(cluster: Cluster, resource: Resource, name: str) -> Json:
    found = await cluster.get(resource, name)
    assert found is not None
    return found


async def reported(cluster: Cluster, name: str) -> list[tuple[str, str, str]]:
    events = (await cluster.kube.list(EVENTS, "default"))["items"]
    return [(e["type"], e["reason"], e["message"]) for e in events if e["involvedObject"]["name"] == name]


def test_a_claim_is_given_the_smallest_volume_that_holds_it(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        for name, size in (("large", "5Gi"), ("fits", "1Gi"), ("small", "100Mi")):
            await volume(cluster, name, size)
        await volume(cluster, "shared-only", "600Mi", accessModes=["ReadOnlyMany"])
        await volume(cluster, "of-another-class", "600Mi", "other")
        await cluster.settle()
        assert (await see(cluster, VOLUMES, "fits"))["status"]["phase"] == "Available"
        await claim(cluster, "c")
        await cluster.settle()
        mine, its = await see(cluster, CLAIMS, "c"), await see(cluster, VOLUMES, "fits")
        assert mine["spec"]["volumeName"] == "fits"
        assert mine["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
        assert mine["metadata"]["annotations"] == {
            "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        assert its["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        assert its["spec"]["claimRef"]["uid"] == mine["metadata"]["uid"]
        assert its["status"]["phase"] == "Bound"

    with_controllers(work)


def test_many_claims_at_once_get_a_volume_each(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        for number in range(8):
            await claim(cluster, f"c{number}")
        for number in range(8):
            await volume(cluster, f"v{number}")
        await cluster.settle(5)
        given = {(await see(cluster, CLAIMS, f"c{number}"))["spec"].get("volumeName") for number in range(8)}
        assert given == {f"v{number}" for number in range(8)}
        phases = [(await see(cluster, VOLUMES, f"v{number}"))["status"]["phase"] for number in range(8)]
        assert phases == ["Bound"] * 8

    with_controllers(work)


def test_a_claim_waits_for_its_first_consumer_where_its_class_says_so(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await storage_class(cluster, "wait", volumeBindingMode="WaitForFirstConsumer")
        await volume(cluster, "v", class_="wait")
        await claim(cluster, "c", "wait")
        await cluster.settle()
        assert (await see(cluster, CLAIMS, "c"))["status"]["phase"] == "Pending"
        assert ("Normal", "WaitForFirstConsumer", "waiting for first consumer to be created before binding") in await reported(
            cluster, "c")
        uid = (await see(cluster, CLAIMS, "c"))["metadata"]["uid"]  # the scheduler names the claim on the volume
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": uid}
        await cluster.kube.patch(VOLUMES, "v", {"spec": {"claimRef": reference}})
        await cluster.settle()
        assert (await see(cluster, CLAIMS, "c"))["status"]["phase"] == "Bound"
        assert (await see(cluster, VOLUMES, "v"))["status"]["phase"] == "Bound"

    with_controllers(work)


@pytest.mark.parametrize(("class_", "event"), [
    ("", ("Normal", "FailedBinding", "no persistent volumes available for this claim and no storage class is set")),
    ("missing", ("Warning", "ProvisioningFailed", 'storageclass.storage.k8s.io "missing" not found')),
    ("none", ("Warning", "ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner")),
    ("csi", ("Normal", "ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner "
             "'example.com/csi' or manually by the system administrator. If volume creation is delayed, please verify that the "
             "provisioner is running and correctly registered.")),
])  # fmt: skip
def test_a_claim_without_a_volume_says_why(with_controllers: With, class_: str, event: tuple[str, str, str]) -> None:
    async def work(cluster: Cluster) -> None:
        await storage_class(cluster, "none")
        await storage_class(cluster, "csi", "example.com/csi")
        await claim(cluster, "c", class_)
        await cluster.settle(3)
        assert event in await reported(cluster, "c")
        await volume(cluster, "v", class_=class_)
        await cluster.settle()
        assert (await see(cluster, CLAIMS, "c"))["status"]["phase"] == "Bound"

    with_controllers(work)


def test_a_claim_that_a_pod_uses_goes_with_the_pod_and_its_volume_is_kept(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await volume(cluster, "v")
        await claim(cluster, "c")
        spec = template(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])["spec"]
        await cluster.make(PODS, "Pod", "p", spec)
        await cluster.settle()
        await cluster.kube.delete(CLAIMS, "c", "default")
        await cluster.kube.delete(VOLUMES, "v")
        await cluster.settle()
        assert (await see(cluster, CLAIMS, "c"))["metadata"]["deletionTimestamp"]
        await cluster.kube.delete(PODS, "p", "default")
        await cluster.settle(40)
        assert await cluster.get(CLAIMS, "c") is None
        assert await cluster.get(VOLUMES, "v") is None

    with_controllers(work)


ON_N1 = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}


@pytest.mark.parametrize(("spec", "phase", "message"), [
    ({}, "Released", None),
    ({"persistentVolumeReclaimPolicy": "Delete"}, "", None),
    ({"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/mnt/p"}}, "Failed",
     "host_path deleter only supports /tmp/.+ but received provided /mnt/p"),
    ({"persistentVolumeReclaimPolicy": "Delete", "local": {"path": "/mnt/l"}, "nodeAffinity": ON_N1}, "Failed",
     'error getting deleter volume plugin for volume "v": no volume plugin matched'),
])  # fmt: skip
def test_what_becomes_of_a_volume_is_its_policys(with_controllers: With, spec: Json, phase: str, message: str | None) -> None:
    async def work(cluster: Cluster) -> None:
        await volume(cluster, "v", **spec)
        await claim(cluster, "c")
        await cluster.settle()
        await cluster.kube.delete(CLAIMS, "c", "default")
        await cluster.settle(3)
        left = await cluster.get(VOLUMES, "v")
        assert (left["status"]["phase"] if left else "") == phase
        if left:
            assert left["status"].get("message") == message
        if message:
            assert ("Warning", "VolumeFailedDelete", message) in await reported(cluster, "v")
        await claim(cluster, "c")  # another one of the same name
        await cluster.settle()
        assert (await see(cluster, CLAIMS, "c"))["status"]["phase"] == "Pending"

    with_controllers(work)


@pytest.mark.parametrize(("wanted", "taken_by", "event"), [
    ({"class_": "other"}, None, ("VolumeMismatch", 'Cannot bind to requested volume "v": storageClassName does not match')),
    ({"accessModes": ["ReadWriteMany"]}, None,
     ("VolumeMismatch", 'Cannot bind to requested volume "v": incompatible accessMode')),
    ({"volumeMode": "Block"}, None, ("VolumeMismatch", 'Cannot bind to requested volume "v": incompatible volumeMode')),
    ({"resources": {"requests": {"storage": "2Gi"}}}, None,
     ("VolumeMismatch", 'Cannot bind to requested volume "v": requested PV is too small')),
    ({}, {"namespace": "default", "name": "another"},
     ("FailedBinding", 'volume "v" already bound to a different claim.')),
])  # fmt: skip
def test_a_claim_that_names_a_volume_gets_none_that_it_would_not_be_given(
        with_controllers: With, wanted: Json, taken_by: Json | None, event: tuple[str, str]) -> None:
    async def work(cluster: Cluster) -> None:
        await volume(cluster, "v", **({"claimRef": taken_by} if taken_by else {}))
        await claim(cluster, "c", volumeName="v", **wanted)
        await cluster.settle(3)
        assert (await see(cluster, CLAIMS, "c"))["status"]["phase"] == "Pending"
        assert (await see(cluster, VOLUMES, "v"))["spec"].get("claimRef") == taken_by
        assert ("Warning", *event) in await reported(cluster, "c")

    with_controllers(work)


@pytest.mark.parametrize(("kept", "asked", "phase"), [
    ({"size": "100Mi"}, {}, "Pending"),
    ({}, {"accessModes": ["ReadWriteMany"]}, "Pending"),
    ({"volumeMode": "Block"}, {}, "Pending"),
    ({"class_": "other"}, {}, "Bound"),
    ({}, {"selector": {"matchLabels": {"a": "b"}}}, "Bound"),
    ({"size": "100Mi"}, {"volumeName": "v"}, "Bound"),
])  # fmt: skip
def test_a_volume_that_names_a_claim_is_its_only_where_it_is_what_was_asked_for_or_both_name_each_other(
        with_controllers: With, kept: Json, asked: Json, phase: str) -> None:
    async def work(cluster: Cluster) -> None:
        await volume(cluster, "v", claimRef={"namespace": "default", "name": "c"}, **kept)
        await claim(cluster, "c", **asked)
        await cluster.settle(3)
        assert (await see(cluster, CLAIMS, "c"))["status"]["phase"] == phase
        assert ("uid" in (await see(cluster, VOLUMES, "v"))["spec"]["claimRef"]) == (phase == "Bound")

    with_controllers(work)


def test_a_volume_whose_claim_got_another_one_is_free_again_or_kept_for_whom_it_was_kept(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await volume(cluster, "v")
        await claim(cluster, "c")
        await cluster.settle()
        uid = (await see(cluster, CLAIMS, "c"))["metadata"]["uid"]
        for name, notes in (("ours", {"pv.kubernetes.io/bound-by-controller": "yes"}), ("kept", {})):
            reference = {"namespace": "default", "name": "c", "uid": uid}
            await cluster.make(VOLUMES, "PersistentVolume", name, {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "two",
                "hostPath": {"path": f"/tmp/{name}"}, "claimRef": reference}, annotations=notes)
        await cluster.settle(3)
        assert "claimRef" not in (await see(cluster, VOLUMES, "ours"))["spec"]
        assert (await see(cluster, VOLUMES, "kept"))["spec"]["claimRef"] == {"namespace": "default", "name": "c"}
        await claim(cluster, "d", class_="two")
        await cluster.settle(3)
        assert (await see(cluster, CLAIMS, "d"))["spec"]["volumeName"] == "ours"

    with_controllers(work)


def test_a_volume_whose_claim_is_not_seen_yet_is_kept(with_controllers: With, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(cluster: Cluster) -> None:
        await claim(cluster, "c")
        await cluster.settle()
        seen = Caches.get
        monkeypatch.setattr(Caches, "get", lambda self, kind, uid: None if kind == CLAIMS else seen(self, kind, uid))
        uid = (await see(cluster, CLAIMS, "c"))["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": uid}
        await volume(cluster, "v", claimRef=reference, persistentVolumeReclaimPolicy="Delete")
        await cluster.settle(3)
        assert await cluster.get(VOLUMES, "v") is not None

    with_controllers(work)


def test_a_claim_whose_volume_is_gone_is_lost(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await volume(cluster, "v")
        await claim(cluster, "c")
        await cluster.settle()
        await cluster.kube.delete(VOLUMES, "v")
        await cluster.kube.patch(VOLUMES, "v", {"metadata": {"finalizers": None}})
        await cluster.settle()
        assert (await see(cluster, CLAIMS, "c"))["status"]["phase"] == "Lost"
        assert [event[1] for event in await reported(cluster, "c")] == ["ClaimLost"]

    with_controllers(work)


def test_only_what_pods_made_in_the_data_dir_is_removed(tmp_path: Path) -> None:
    ours, machines = tmp_path / "nodes" / "n1" / "root", tmp_path / "tmp" / "v"
    for place in (ours / "tmp" / "v", machines):
        place.mkdir(parents=True)
    (ours / "tmp" / "out").symlink_to(tmp_path / "tmp")
    (ours / "var" / "kept").mkdir(parents=True)
    (ours / "tmp" / "in").symlink_to(ours / "var")
    for path in ("/tmp/v", "/tmp/out/v", "/tmp/in/kept", "/tmp/none/v"):
        _remove([tmp_path / "nodes" / "n0" / "root", ours], path)
    assert not (ours / "tmp" / "v").exists()
    assert machines.is_dir()
    assert (ours / "var" / "kept").is_dir()


def test_a_folder_that_is_exchanged_for_a_link_while_it_is_removed_leads_nowhere(tmp_path: Path,
                                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """At the worst moment: whatever was looked at first is looked at, and now the pod strikes."""
    root, machines = tmp_path / "root", tmp_path / "machine" / "v"
    machines.mkdir(parents=True)
    (root / "tmp" / "a" / "v").mkdir(parents=True)
    remove = shutil.rmtree

    def struck(*args: Any, **options: Any) -> None:
        (root / "tmp" / "a").rename(root / "tmp" / "b")
        (root / "tmp" / "a").symlink_to(tmp_path / "machine")
        remove(*args, **options)

    monkeypatch.setattr(shutil, "rmtree", struck)
    _remove([root], "/tmp/a/v")
    assert machines.is_dir()
    assert not (root / "tmp" / "b" / "v").exists()


async def _chosen(cluster: Cluster, name: str, node: str = "n1") -> None:
    await cluster.kube.patch(CLAIMS, name, {"metadata": {"annotations": {SELECTED_NODE: node}}}, "default")
    await cluster.settle()


def test_a_folder_is_made_for_a_claim_once_its_node_is_chosen_and_goes_with_it(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.kube.create(CLASSES, standard_class())
        await cluster.make(CLAIMS, "PersistentVolumeClaim", "c", {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})  # fmt: skip
        await cluster.settle()
        assert await cluster.names(VOLUMES, "") == []
        assert [reason for _, reason, _ in await reported(cluster, "c")] == ["WaitForFirstConsumer"]
        await _chosen(cluster, "c")
        mine = await see(cluster, CLAIMS, "c")
        assert (mine["status"]["phase"], mine["spec"]["storageClassName"]) == ("Bound", "standard")
        spec = (await see(cluster, VOLUMES, mine["spec"]["volumeName"]))["spec"]
        assert spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["n1"]
        assert spec["hostPath"]["path"] == f"/tmp/pumice-volumes/pvc-{mine['metadata']['uid']}"
        await cluster.kube.delete(CLAIMS, "c", "default")
        await cluster.settle()
        assert await cluster.names(VOLUMES, "") == []

    with_controllers(work)


@pytest.mark.parametrize(("class_", "spec", "why"), [
    ({"volumeBindingMode": "Immediate"}, {}, "must have volumeBindingMode WaitForFirstConsumer"),
    ({}, {"volumeMode": "Block"}, "no block devices"),
    ({}, {"selector": {"matchLabels": {"a": "b"}}}, "a selector is for volumes that are there"),
])  # fmt: skip
def test_what_is_no_folder_is_not_made_and_the_claim_says_why(with_controllers: With, class_: Json, spec: Json, why: str) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.kube.create(CLASSES, standard_class() | class_)
        await claim(cluster, "c", "standard", **spec)
        await _chosen(cluster, "c")
        assert await cluster.names(VOLUMES, "") == []
        assert any(reason == "ProvisioningFailed" and why in text for _, reason, text in await reported(cluster, "c"))

    with_controllers(work)
