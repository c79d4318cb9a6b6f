"""ResourceQuotas: what is refused, in which words, and what is counted. No controller runs here: on the real server the test
writes the first count, as Kubernetes' controller would."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from kit.control_plane import Answer, Api, Json

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def account(api: Api, namespace: str) -> str:
    """A namespace with the account that its pods run under: no controller makes it here."""
    if api.kind == "kube":
        api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    return namespace


def until(ask: Callable[[], Answer], code: int) -> Answer:
    """The real server takes a new quota in after a moment."""
    for _ in range(600):
        answer = ask()
        if answer.code == code:
            return answer
        threading.Event().wait(0.05)
    raise TimeoutError(answer.body)


def quota(api: Api, namespace: str, hard: Json, used: Json | None = None, **spec: object) -> None:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    made = api.create(path, {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}})
    if api.kind == "kube":
        api.update(f"{path}/q/status", {**made, "status": {"hard": hard, "used": dict.fromkeys(hard, "0") | (used or {})}})


def status(api: Api, namespace: str) -> Json:
    found: Json = api.get(f"/api/v1/namespaces/{namespace}/resourcequotas/q")["status"]
    return found


def pod(api: Api, namespace: str, name: str, resources: Json | None = None, *, dry: bool = False, **spec: object) -> Answer:
    body = {"metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": resources or {}}], **spec}}  # fmt: skip
    return api.call("POST", f"/api/v1/namespaces/{namespace}/pods", body, **({"dryRun": "All"} if dry else {}))


ASKS = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi", "example.com/card": "2"}}


def test_a_pod_beyond_a_quota_is_forbidden_and_one_within_is_counted(api: Api, account: str) -> None:
    hard = {"pods": "3", "cpu": "700m", "limits.memory": "3Gi", "requests.example.com/card": "4", "count/pods": "5"}
    quota(api, account, hard)
    large = {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": "1Mi"}}
    until(lambda: pod(api, account, "large", large, dry=True), 403)
    made = pod(api, account, "a", ASKS)
    assert made.code == 201
    assert status(api, account) == {"hard": hard, "used": {
        "pods": "1", "cpu": "500m", "limits.memory": "1Gi", "requests.example.com/card": "2", "count/pods": "1"}}  # fmt: skip
    refused = pod(api, account, "b", {"requests": {"cpu": "500m"}, "limits": {"memory": "5Gi"}})
    assert (refused.code, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: cpu=500m,limits.memory=5Gi, used: cpu=500m,limits.memory=1Gi, '
        "limited: cpu=700m,limits.memory=3Gi")
    assert status(api, account)["used"]["pods"] == "1"


def test_a_pod_has_to_say_what_a_quota_counts(api: Api, account: str) -> None:
    quota(api, account, {"cpu": "2", "limits.memory": "1Gi"})
    refused = until(lambda: pod(api, account, "silent", dry=True), 403)
    assert refused.json["message"] == 'pods "silent" is forbidden: failed quota: q: must specify cpu for: c; limits.memory for: c'


def test_a_quota_with_scopes_counts_who_is_in_all_of_them(api: Api, account: str) -> None:
    name = f"class-of-{account}"
    api.create(CLASSES, {"metadata": {"name": name}, "value": 7})
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [name]}]}
    quota(api, account, {"pods": "1"}, scopes=["NotTerminating"], scopeSelector=selector)
    until(lambda: pod(api, account, "a", priorityClassName=name, dry=True), 201)
    assert [pod(api, account, "other").code, pod(api, account, "ends", priorityClassName=name, activeDeadlineSeconds=9).code] == [
        201, 201]  # fmt: skip
    assert status(api, account)["used"] == {"pods": "0"}
    assert pod(api, account, "a", priorityClassName=name).code == 201
    assert status(api, account)["used"] == {"pods": "1"}
    until(lambda: pod(api, account, "b", priorityClassName=name, dry=True), 403)
    api.delete(f"{CLASSES}/{name}")


def test_objects_are_counted_by_their_kind(api: Api, namespace: str) -> None:
    hard = {"count/deployments.apps": "0", "configmaps": "1", "services.nodeports": "1", "requests.storage": "1Gi"}
    quota(api, namespace, hard)
    until(lambda: api.call("POST", f"/api/v1/namespaces/{namespace}/services", {
        "metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]},
    }, dryRun="All"), 403)  # fmt: skip
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    assert api.call("POST", maps, {"metadata": {"name": "a"}}).code == 201
    assert status(api, namespace)["used"]["configmaps"] == "1"
    refused = until(lambda: api.call("POST", maps, {"metadata": {"name": "b"}}, dryRun="All"), 403)
    assert refused.json["message"].endswith(": q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1")
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    claim = {"metadata": {"name": "c"}, "spec": asked}
    assert api.call("POST", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim).code == 403
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    refused = api.call("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    assert refused.code == 403
    assert "requested: count/deployments.apps=1, used: count/deployments.apps=0" in refused.json["message"]


@pytest.mark.parametrize("spec", [
    {"hard": {"cards": "1"}}, {"hard": {"pods": "1500m"}}, {"hard": {"cpu": "-1"}},
    {"hard": {"pods": "1"}, "scopes": ["Sometimes"]},
    {"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]},
    {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]},
    {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}},
    {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "Terminating", "operator": "DoesNotExist"}]}},
    {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}]}},
])  # fmt: skip
def test_a_quota_that_bounds_nothing_is_refused(api: Api, namespace: str, spec: Json) -> None:
    refused = api.call("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", {"metadata": {"name": "q"}, "spec": spec})
    assert refused.code == 422, refused.body


def test_the_scopes_of_a_quota_stay(api: Api, namespace: str) -> None:
    quota(api, namespace, {"pods": "1"}, scopes=["BestEffort"])
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/q"
    refused = api.call("PATCH", path, {"spec": {"scopes": []}}, media="application/merge-patch+json")
    assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (422, "spec.scopes")
