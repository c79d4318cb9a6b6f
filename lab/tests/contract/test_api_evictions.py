"""Evictions: deletions that ask the pod's disruption budget. No controller counts here: the test writes the counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kit.control_plane import Answer, Api, Json

Evict = Callable[..., Answer]


@pytest.fixture
def pod(api: Api, namespace: str) -> str:
    """The path of a pod on node n1."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    api.create(f"{pods}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})
    return f"{pods}/p"


def test_an_eviction_is_a_deletion(api: Api, pod: str) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p"},
        "deleteOptions": {"gracePeriodSeconds": 7},
    }
    assert api.create(f"{pod}/eviction", eviction)["status"] == "Success"
    assert api.get(pod)["metadata"]["deletionGracePeriodSeconds"] == 7


def budget(api: Api, namespace: str, name: str = "b", status: Json | None = None, **spec: object) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"app": "web"}}
    made = api.create(path, {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector, **spec}})
    if status is not None:
        counts = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1}
        api.update(f"{path}/{name}/status", {**made, "status": counts | status})


@pytest.fixture
def evicted(api: Api, pod: str) -> Evict:
    def evict(*, ready: bool = True) -> Answer:
        conditions = [{"type": "Ready", "status": str(ready)}]
        api.strategic(f"{pod}/status", {"status": {"phase": "Running", "conditions": conditions}})
        return api.call("POST", f"{pod}/eviction", {"metadata": {"name": "p"}})

    return evict


@pytest.mark.parametrize(("status", "reported"), [
    ({}, {"message": "The disruption budget b needs 1 healthy pods and has 1 currently"}),
    ({"observedGeneration": 0}, {"message": "The disruption budget b is still being processed by the server.", "after": 10}),
])  # fmt: skip
def test_a_budget_holds_an_eviction_back(api: Api, namespace: str, evicted: Evict, status: Json, reported: Json) -> None:
    budget(api, namespace, status=status)
    answer = evicted()
    assert (answer.code, answer.json["reason"]) == (429, "TooManyRequests")
    assert answer.json["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    after = {"retryAfterSeconds": reported["after"]} if "after" in reported else {}
    assert answer.json["details"] == {"causes": [{"reason": "DisruptionBudget", "message": reported["message"]}], **after}


def test_a_budget_that_allows_one_is_booked_and_allows_no_more(api: Api, namespace: str, evicted: Evict) -> None:
    budget(api, namespace, status={"disruptionsAllowed": 1, "currentHealthy": 2})
    assert evicted().code == 201
    status = api.get(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/b")["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p"])


def test_a_pod_that_is_not_ready_goes_where_its_budget_lets_it(api: Api, namespace: str, evicted: Evict) -> None:
    budget(api, namespace, status={"currentHealthy": 0}, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert evicted(ready=False).code == 201


def test_a_pod_that_is_not_ready_takes_nothing_from_those_who_are(api: Api, namespace: str, evicted: Evict) -> None:
    budget(api, namespace, status={"currentHealthy": 0})
    assert evicted(ready=False).code == 429
    api.merge(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/b/status", {"status": {"currentHealthy": 1}})
    assert evicted(ready=False).code == 201


def test_a_pod_of_two_budgets_is_not_evicted(api: Api, namespace: str, evicted: Evict) -> None:
    for name in ("b", "c"):
        budget(api, namespace, name, {"disruptionsAllowed": 1})
    refused = evicted()
    assert (refused.code, refused.json["message"]) == (
        500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")


@pytest.mark.parametrize("spec", [{"minAvailable": "many"}, {"minAvailable": "101%"}, {"minAvailable": -1}, {"maxUnavailable": 1},
                                  {"unhealthyPodEvictionPolicy": "Never"}])  # fmt: skip
def test_a_budget_that_cannot_be_counted_is_refused(api: Api, namespace: str, spec: Json) -> None:
    with pytest.raises(AssertionError, match=" 422 "):
        budget(api, namespace, **spec)
