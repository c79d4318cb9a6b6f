"""Defaults of a new pod from its namespace and the cluster's classes: LimitRanges, RuntimeClasses, the kernel's names."""

from __future__ import annotations

import pytest
from kit.control_plane import Answer, Api, Json

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture
def account(api: Api, namespace: str) -> str:
    """A namespace with the account that its pods run under: no controller makes it here."""
    if api.kind == "kube":
        api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    return namespace


def limits(api: Api, namespace: str, *rows: Json, **query: object) -> Answer:
    body = {"metadata": {"name": f"limits-{len(rows)}"}, "spec": {"limits": list(rows)}}
    return api.call("POST", f"/api/v1/namespaces/{namespace}/limitranges", body, **query)


def pod(api: Api, namespace: str, resources: Json | None = None, **spec: object) -> Answer:
    body = {"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": resources or {}}], **spec}}  # fmt: skip
    return api.call("POST", f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")


def test_a_bound_without_a_default_is_one(api: Api, namespace: str) -> None:
    row = limits(api, namespace, {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}}).json["spec"][
        "limits"
    ][0]
    assert row["default"] == {"cpu": "2"}
    assert row["defaultRequest"] == {"cpu": "2", "memory": "1Gi"}


@pytest.mark.parametrize("row", [
    {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
    {"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}},
    {"type": "Container", "defaultRequest": {"example.com/card": "1"}, "default": {"example.com/card": "2"}},
    {"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}},
    {"type": "Pod", "default": {"cpu": "1"}},
    {"type": "PersistentVolumeClaim"},
    {"max": {"cpu": "1"}},
])  # fmt: skip
def test_a_limit_range_that_contradicts_itself_is_refused(api: Api, namespace: str, row: Json) -> None:
    assert limits(api, namespace, row).code == 422


def test_a_pod_gets_the_defaults_of_its_namespace(api: Api, account: str) -> None:
    row = {"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "200Mi"}, "default": {"cpu": "500m"}}
    assert limits(api, account, row).code == 201
    made = pod(api, account, {"requests": {"memory": "1Gi"}}).json
    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "500m"}}
    assert made["status"]["qosClass"] == "Burstable"
    note = "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == note


@pytest.mark.parametrize(("row", "resources", "why"), [
    ({"type": "Container", "max": {"cpu": "1"}}, {"limits": {"cpu": "2"}},
     "maximum cpu usage per Container is 1, but limit is 2"),
    ({"type": "Pod", "max": {"cpu": "1"}}, {}, "maximum cpu usage per Pod is 1.  No limit is specified"),
    ({"type": "Pod", "min": {"memory": "1Gi"}}, {"requests": {"memory": "512Mi"}},
     "minimum memory usage per Pod is 1Gi, but request is 512Mi"),
    ({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
     "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"),
])  # fmt: skip
def test_a_pod_beyond_a_bound_is_forbidden(api: Api, account: str, row: Json, resources: Json, why: str) -> None:
    assert limits(api, account, row).code == 201
    refused = pod(api, account, resources)
    assert (refused.code, refused.json["message"]) == (403, f'pods "p" is forbidden: {why}')


def test_a_claim_is_held_to_its_bounds(api: Api, namespace: str) -> None:
    assert limits(api, namespace, {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}).code == 201
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    body = {
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
    }
    refused = api.call("POST", claims, body)
    assert refused.code == 403
    assert refused.json["message"].endswith(
        "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
    )


def test_a_pod_of_a_runtime_class_costs_what_that_says_and_goes_where_it_says(api: Api, account: str) -> None:
    name = f"class-of-{account}"
    api.create(
        CLASSES,
        {
            "metadata": {"name": name},
            "handler": "runc",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"kind": "a"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
        },
    )
    spec = pod(api, account, runtimeClassName=name, nodeSelector={"zone": "z"}).json["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "250m"}, {"kind": "a", "zone": "z"})
    assert {"key": "k", "operator": "Exists"} in spec["tolerations"]
    refused = pod(api, account, runtimeClassName=name, nodeSelector={"kind": "b"})
    assert refused.code == 403
    assert (
        "conflict: runtimeClass.scheduling.nodeSelector[kind] = a; pod.spec.nodeSelector[kind] = b"
        in refused.json["message"]
    )
    api.delete(f"{CLASSES}/{name}")
    gone = pod(api, account, runtimeClassName=name)
    assert (gone.code, f'pod rejected: RuntimeClass "{name}" not found' in gone.json["message"]) == (403, True)
    assert pod(api, account, overhead={"cpu": "1"}).code == 403


def test_names_that_no_kernel_knows_are_no_sysctls(api: Api, account: str) -> None:
    names = ["foo-", "kernel.shmmax", "safe-and-unsafe", "bar..", "net/ipv4.conf", ""]
    refused = pod(api, account, securityContext={"sysctls": [{"name": name, "value": "1"} for name in names]})
    fields = [cause["field"] for cause in refused.json["details"]["causes"]]
    assert (refused.code, fields) == (422, [f"spec.securityContext.sysctls[{i}].name" for i in (0, 3, 5)])
