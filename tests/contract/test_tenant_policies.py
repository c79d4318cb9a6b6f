"""What a tenant must not say of shared cards, asked of the API server: its own policies decide as the pure rules do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kit.control_plane import Answer, Api
from kit.manifests import manifest
from kit.tenant_cases import CASES, env, plain, share

POLICIES = "/apis/admissionregistration.k8s.io/v1"
PLACES = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}

ITS_OWN = ("must not contain '..'", "privileged: Forbidden: disallowed by cluster policy")
"""What this API server refuses before any policy is asked."""


def put(api: Api, namespace: str, spec: dict[str, Any], name: str = "") -> Answer:
    body = {"metadata": {"name": name or f"p-{time.monotonic_ns()}"}, "spec": {"automountServiceAccountToken": False, **spec}}
    return api.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)


def in_force(api: Api, namespace: str, file: str, probe: Any) -> Iterator[None]:
    """The policies of one file, until the test is over."""
    try:
        for obj in manifest(file):
            answer = api.call("POST", f"{POLICIES}/{PLACES[obj['kind']]}", obj)
            assert answer.code == 201, answer.body
        deadline = time.monotonic() + 60
        while not probe():
            assert time.monotonic() < deadline, "the policy does not come into force"
            time.sleep(0.2)
        yield
    finally:
        for obj in manifest(file):
            api.call("DELETE", f"{POLICIES}/{PLACES[obj['kind']]}/{obj['metadata']['name']}")


@pytest.fixture
def limited(api: Api, namespace: str) -> Iterator[None]:
    bad = share({"volcano.sh/vgpu-memory": 1}, **env("CUDA_DISABLE_CONTROL"))

    def both() -> bool:
        refused = put(api, namespace, bad)
        return refused.code != 201 and put(api, namespace, share({"volcano.sh/vgpu-memory": 1})).code != 201

    yield from in_force(api, namespace, "tenant-limits.yml", both)


def test_the_policies_decide_every_case_as_the_rules_do(api: Api, namespace: str, limited: None) -> None:
    wrong = []
    for case in CASES:
        answer = put(api, namespace, case.spec)
        told = str(answer.json.get("message", ""))
        if any(words in told for words in ITS_OWN):
            continue
        if (answer.code == 201) != (not case.refused) or case.refused not in told:
            wrong.append((case.title, answer.code, told))
    assert wrong == []


def test_a_container_for_looking_into_a_pod_is_held_to_the_same(api: Api, namespace: str, limited: None) -> None:
    assert put(api, namespace, share(), "mine").code == 201
    path = f"/api/v1/namespaces/{namespace}/pods/mine/ephemeralcontainers"

    def debug(**container: Any) -> Answer:
        body = {"spec": {"ephemeralContainers": [{"name": f"d{time.monotonic_ns()}", "image": "x", **container}]}}
        return api.call("PATCH", path, body, media="application/strategic-merge-patch+json")

    assert debug(**env("NVIDIA_VISIBLE_DEVICES", "all")).code in (403, 422)
    assert debug(securityContext={"privileged": True}).code in (403, 422)
    assert debug().code == 200


def test_pods_that_run_the_node_may_say_all_of_it(api: Api, limited: None) -> None:
    answer = put(api, "kube-system", plain(**env("NVIDIA_VISIBLE_DEVICES", "all")))
    assert answer.code == 201, answer.body


def test_containers_without_cards_are_made_to_see_none(api: Api, namespace: str) -> None:
    def seen(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
        stored = put(api, namespace, spec)
        assert stored.code == 201, stored.body
        return [c.get("env", []) for part in ("initContainers", "containers") for c in stored.json["spec"].get(part, ())]

    void = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    for _ in in_force(api, namespace, "tenant-void.yml", lambda: seen(plain()) == [void]):
        assert sorted(e["name"] for e in seen(plain(**env("A", "b")))[0]) == ["A", "NVIDIA_VISIBLE_DEVICES"]
        assert seen(share()) == [[]]
        assert seen(plain(resources={"limits": {"nvidia.com/gpu": 1}})) == [[]]
        assert seen(plain(**env("NVIDIA_VISIBLE_DEVICES", "none")))[0][0]["value"] == "none"
        assert seen({**share(), "initContainers": [{"name": "i", "image": "x"}]}) == [void, []]
