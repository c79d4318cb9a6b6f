"""Who may write a pod's assignment, asked of the API server with the tokens of those who try: tenants, scheduler, plugin."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.control_plane import Answer, Api
from kit.manifests import manifest, token_of

from pumice.wire import names
from pumice.wire.ascend_hami import (
    BIND_PHASE,
    COMMON_KEYS,
    allocated_key,
    nouse_key,
    runtime_key,
    to_allocate_key,
    use_key,
)
from pumice.wire.mindcluster import KUBELET_DEVICES, NPU_CORE, REAL

POLICIES = "/apis/admissionregistration.k8s.io/v1"
PLACES = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies",
          "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings"}  # fmt: skip
RESERVED = (names.VGPU_NODE, names.VGPU_TIME, names.VGPU_IDS, names.DEVICES_TO_ALLOCATE, names.BIND_PHASE, names.BIND_TIME,
            names.GPU_INDEX, names.PREDICATE_TIME, *COMMON_KEYS, NPU_CORE, KUBELET_DEVICES)  # fmt: skip
OF_NPUS = (allocated_key("Ascend310P"), to_allocate_key("Ascend910B4-1"), allocated_key("Anything"), runtime_key("Ascend310P"),
           REAL)  # fmt: skip
"""Some of those that are reserved by how they begin and end."""
POLICY = "reserved-annotations.yml"


@pytest.fixture
def reserved(api: Api, namespace: str) -> Iterator[None]:
    """The policy in force."""
    for obj in manifest(POLICY):
        answer = api.call("POST", f"{POLICIES}/{PLACES[obj['kind']]}", obj)
        assert answer.code == 201, answer.body
    try:
        mallory, deadline = tenant(api, namespace, "probe"), time.monotonic() + 60
        while put(mallory, namespace, f"probe-{time.monotonic_ns()}", {names.VGPU_IDS: "x"}).code == 201:
            assert time.monotonic() < deadline, "the policy does not come into force"
            time.sleep(0.2)
        yield
    finally:
        for obj in manifest(POLICY):
            api.call("DELETE", f"{POLICIES}/{PLACES[obj['kind']]}/{obj['metadata']['name']}")


def tenant(api: Api, namespace: str, name: str) -> Api:
    """Somebody who may do everything with the pods of one namespace."""
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    pods = {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/binding", "bindings"], "verbs": ["*"]}
    api.create(f"{rbac}/roles", {"metadata": {"name": name}, "rules": [pods]})
    api.create(f"{rbac}/rolebindings", {
        "metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]})  # fmt: skip
    token = api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", {"spec": {}})["status"]["token"]
    return replace(api, token=str(token))


def put(who: Api, namespace: str, name: str, notes: dict[str, str], **spec: Any) -> Answer:
    containers = [{"name": "c", "image": "x"}]
    spec = {"containers": containers, "schedulerName": "volcano", "automountServiceAccountToken": False, **spec}
    body = {"metadata": {"name": name, "annotations": notes}, "spec": spec}
    return who.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)


def note(who: Api, namespace: str, name: str, notes: dict[str, str | None], door: str = "") -> Answer:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}{door}"
    return who.call("PATCH", path, {"metadata": {"annotations": notes}}, media="application/merge-patch+json")


def bind(who: Api, namespace: str, name: str, notes: dict[str, str]) -> Answer:
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": notes},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}  # fmt: skip
    return who.call("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)


def test_tenants_cannot_write_an_assignment_by_any_door_and_may_write_all_else(api: Api, namespace: str, reserved: None) -> None:
    mallory = tenant(api, namespace, "mallory")
    for key in (*RESERVED, *OF_NPUS):
        refused = put(mallory, namespace, "forged", {key: "x"}, nodeName="n1")
        assert (refused.code, b"only the scheduler" in refused.body) == (403, True), refused.body
    assert put(mallory, namespace, "mine", {"team": "a", names.USE_GPU_TYPE: "A100"}).code == 201
    for key in (*RESERVED, *OF_NPUS):
        for door in ("", "/status"):
            assert note(mallory, namespace, "mine", {key: "x"}, door).code == 403
    free = {names.VGPU_MODE: "mig", names.VNPU_MODE: "hami-core", use_key("Ascend310P"): "U1", nouse_key("Ascend310P"): "U2"}
    assert note(mallory, namespace, "mine", {"team": "b", **free}).code == 200
    assert note(mallory, namespace, "mine", {use_key("Ascend310P"): None}).code == 200
    assert bind(mallory, namespace, "mine", {names.VGPU_IDS: "x"}).code == 403


def test_the_scheduler_and_the_plugin_write_it_and_nobody_else_empties_it(api: Api, namespace: str, reserved: None) -> None:
    mallory = tenant(api, namespace, "mallory")
    scheduler = replace(api, token=token_of(api, "volcano.yml", "volcano-scheduler"))
    plugin = replace(api, token=token_of(api, "volcano-vgpu-device-plugin.yml", "volcano-device-plugin"))
    assert put(mallory, namespace, "mine", {}).code == 201
    assert bind(scheduler, namespace, "mine", {names.VGPU_IDS: "GPU-1,NVIDIA,1,1:", names.VGPU_NODE: "n1"}).code == 201
    served: dict[str, str | None] = {names.BIND_PHASE: "success", names.DEVICES_TO_ALLOCATE: ""}
    assert note(plugin, namespace, "mine", served, "/status").code == 200
    assert note(plugin, namespace, "mine", served).code == 200  # of what a pod is own-node.yml lets it set the deadline alone
    for value in ("", None, "GPU-2,NVIDIA,1,1:"):
        assert note(mallory, namespace, "mine", {names.VGPU_IDS: value}).code == 403
    assert note(mallory, namespace, "mine", {"team": "a"}).code == 200
    assert note(api, namespace, "mine", {names.VGPU_IDS: "by hand"}).code == 200  # an administrator


@pytest.mark.parametrize(
    ("file", "account"), [("ascend-device-plugin.yml", "hami-ascend"), ("ascend-mindcluster-plugin.yml", "ascend-mindcluster")]
)
def test_the_plugins_of_npus_write_theirs(api: Api, namespace: str, reserved: None, file: str, account: str) -> None:
    plugin = replace(api, token=token_of(api, file, account))
    assert put(tenant(api, namespace, "mallory"), namespace, "mine", {}).code == 201
    written: dict[str, str | None] = {to_allocate_key("Ascend310P"): ";", BIND_PHASE: "success", REAL: "Ascend310P-2c-100-0_0"}
    assert note(plugin, namespace, "mine", written, "/status").code == 200


def test_every_annotation_that_carries_an_assignment_is_reserved() -> None:
    (policy,) = [obj for obj in manifest(POLICY) if obj["kind"] == "ValidatingAdmissionPolicy"]
    (listed,) = [v["expression"] for v in policy["spec"]["variables"] if v["name"] == "reserved"]
    assert set(listed.split("'")[1::2]) == set(RESERVED)
