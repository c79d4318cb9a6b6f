"""Forbidden settings of a tenant on the API server: its own policies decide as the pure rules do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.control_plane import Answer, Api
from kit.job_world import job, task
from kit.manifests import manifest
from kit.tenant_cases import CASES, REACHES, VOID, VOID_CASES, env, plain, share

from pumice.wire import names
from pumice.wire.volcano import SCHEDULING_API
from pumice_lab.first_objects import volcano_kinds

POLICIES = "/apis/admissionregistration.k8s.io/v1"
PLACES = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}

ITS_OWN = ("must not contain '..'", "privileged: Forbidden: disallowed by cluster policy")
"""The refusals of this API server before any policy runs."""


def put(api: Api, namespace: str, spec: dict[str, Any], name: str = "", **metadata: Any) -> Answer:
    metadata["name"] = name or f"p-{time.monotonic_ns()}"
    body = {"metadata": metadata, "spec": {"automountServiceAccountToken": False, **spec}}
    return api.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)


def debug(api: Api, namespace: str, pod: str, **container: Any) -> Answer:
    """``kubectl debug``: one more container for looking into a pod."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/ephemeralcontainers"
    body = {"spec": {"ephemeralContainers": [{"name": f"d{time.monotonic_ns()}", "image": "x", **container}]}}
    return api.call("PATCH", path, body, media="application/strategic-merge-patch+json")


def in_force(api: Api, file: str, probe: Callable[[], tuple[bool, ...]]) -> Iterator[None]:
    """The policies of one file, until the test is over; ``probe`` says of each effect whether it is in force.

    A deleted policy is in force for up to a second (the API server compiles them anew on a timer), and a probe of the
    next test would take it for its own: the end waits until none is.
    """
    try:
        for obj in manifest(file):
            answer = api.call("POST", f"{POLICIES}/{PLACES[obj['kind']]}", obj)
            assert answer.code == 201, answer.body
        wait_until(lambda: all(probe()), "the policy does not come into force")
        yield
    finally:
        for obj in manifest(file):
            api.call("DELETE", f"{POLICIES}/{PLACES[obj['kind']]}/{obj['metadata']['name']}")
        wait_until(lambda: not any(probe()), "the deleted policy stays in force")


def wait_until(true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.2)


@pytest.fixture
def limited(api: Api, namespace: str) -> Iterator[None]:
    bad = share({"volcano.sh/vgpu-memory": 1}, **env("CUDA_DISABLE_CONTROL"))

    def both() -> tuple[bool, bool]:
        return put(api, namespace, bad).code != 201, put(api, namespace, share({"volcano.sh/vgpu-memory": 1})).code != 201

    yield from in_force(api, "tenant-limits.yml", both)


def test_the_policies_decide_every_case_as_the_rules_do(api: Api, namespace: str, limited: None) -> None:
    wrong = []
    for case in CASES:
        answer = put(api, namespace, case.spec)
        reported = str(answer.json.get("message", ""))
        if any(words in reported for words in ITS_OWN):
            continue
        if (answer.code == 201) != (not case.refused) or case.refused not in reported:
            wrong.append((case.title, answer.code, reported))
    assert wrong == []


def test_where_pod_security_is_said_to_refuse_host_paths_the_level_baseline_does(api: Api, namespace: str) -> None:
    """As the page of attacks counts on."""
    api.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
    for case in CASES:
        if case.refused == REACHES:
            answer = put(api, namespace, case.spec)
            assert (answer.code, "hostPath volumes" in answer.json["message"] or ITS_OWN[0] in answer.json["message"]) in (
                (403, True), (422, True)), (case.title, answer.body)  # fmt: skip
    privileged = put(api, namespace, plain(securityContext={"privileged": True}))
    assert privileged.code in (403, 422), "without a share"


def test_a_container_for_looking_into_a_pod_is_held_to_the_same(api: Api, namespace: str, limited: None) -> None:
    assert put(api, namespace, share(), "mine").code == 201
    assert debug(api, namespace, "mine", **env("NVIDIA_VISIBLE_DEVICES", "all")).code in (403, 422)
    assert debug(api, namespace, "mine", securityContext={"privileged": True}).code in (403, 422)
    assert debug(api, namespace, "mine").code == 200


def test_whoever_was_bound_can_be_looked_into(api: Api, namespace: str, limited: None) -> None:
    """Settings that a new pod must not name are present in each placed pod."""
    assert put(api, namespace, share(), "mine").code == 201
    bound = {"metadata": {"name": "mine"}, "target": {"kind": "Node", "name": "n1"}}
    assert api.call("POST", f"/api/v1/namespaces/{namespace}/pods/mine/binding", bound).code == 201
    answer = debug(api, namespace, "mine")
    assert answer.code == 200, answer.body


def test_a_namespace_that_names_its_queues_uses_no_other_teams(api: Api, namespace: str, limited: None) -> None:
    for kind in volcano_kinds():
        api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
    groups, jobs = "/apis/scheduling.volcano.sh/v1beta1", "/apis/batch.volcano.sh/v1alpha1"
    api.until_served(f"{groups}/podgroups", f"{jobs}/jobs")

    def pod(queue: str) -> Answer:
        return put(api, namespace, plain(), annotations={names.QUEUE_NAME: queue} if queue else {})

    def group(queue: str) -> Answer:
        body = {"apiVersion": SCHEDULING_API, "kind": "PodGroup", "metadata": {"generateName": "g-"},
                "spec": {"minMember": 1, **({"queue": queue} if queue else {})}}  # fmt: skip
        return api.call("POST", f"{groups}/namespaces/{namespace}/podgroups", body)

    def volcano_job(queue: str) -> Answer:
        body = job(f"j-{time.monotonic_ns()}", task("a"), namespace=namespace, queue=queue or "default")
        return api.call("POST", f"{jobs}/namespaces/{namespace}/jobs", body)

    makers = (pod, group, volcano_job)
    assert [make("sales").code for make in makers] == [201, 201, 201], "it names none: any will do"
    earlier = pod("sales").json["metadata"]["name"], group("sales").json["metadata"]["name"]
    api.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": {names.NAMESPACE_QUEUES: "research, nightly"}}})
    wait_until(lambda: pod("sales").code != 201, "the annotation does not come into force")
    for make in makers:
        refused = make("sales")
        assert "queue sales is none of this namespace's" in refused.json["message"]
        for own in ("", "default", "research", "nightly"):
            answer = make(own)
            assert answer.code == 201, answer.body
    at = f"/api/v1/namespaces/{namespace}/pods/{pod('nightly').json['metadata']['name']}"
    for door in (at, f"{at}/status"):
        moved = {"metadata": {"annotations": {names.QUEUE_NAME: "sales"}}}
        assert api.call("PATCH", door, moved, media="application/merge-patch+json").code in (403, 422)
    api.merge(f"/api/v1/namespaces/{namespace}/pods/{earlier[0]}", {"metadata": {"labels": {"a": "b"}}})
    api.merge(f"{groups}/namespaces/{namespace}/podgroups/{earlier[1]}", {"status": {"phase": "Running"}})


def test_pods_that_run_the_node_may_say_all_of_it(api: Api, limited: None) -> None:
    answer = put(api, "kube-system", plain(**env("NVIDIA_VISIBLE_DEVICES", "all")))
    assert answer.code == 201, answer.body


def test_who_may_be_privileged_runs_the_node_and_may_say_all_of_it(api: Api, namespace: str, limited: None) -> None:
    """Pod Security's own word for a namespace: monitoring, storage, operators."""
    bad = plain(**env("NVIDIA_VISIBLE_DEVICES", "all"))
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    api.create("/api/v1/namespaces", {"metadata": {"name": f"{namespace}-monitoring", "labels": labels}})
    wait_until(lambda: put(api, f"{namespace}-monitoring", bad).code == 201, "the label does not come into force")
    assert put(api, namespace, bad).code in (403, 422)


@pytest.fixture
def void(api: Api, namespace: str) -> Iterator[None]:
    def seen() -> tuple[bool]:
        return (put(api, namespace, plain()).json["spec"]["containers"][0].get("env") == [VOID],)

    yield from in_force(api, "tenant-void.yml", seen)


def test_containers_that_are_given_no_card_are_made_to_see_none(api: Api, namespace: str, void: None) -> None:
    for case in VOID_CASES:
        for section in ("containers", "initContainers"):
            named = {"image": "x", **case.container}
            spec = {"containers": [{"name": "app", "image": "x", "env": [VOID]}], section: [{"name": "c", **named}]}
            stored = put(api, namespace, spec)
            assert stored.code == 201, (case.title, stored.body)
            reported = stored.json["spec"][section][0].get("env", [])
            own = case.container.get("env", [])
            assert sorted(reported, key=str) == sorted([*own, VOID] if case.void else own, key=str), (case.title, section)


def test_a_container_for_looking_into_a_pod_is_made_to_see_no_card(api: Api, namespace: str, void: None) -> None:
    """It is asked of no plugin, so that neither limits nor the library would come with a card."""
    for name, pod in {"shares": share(), "plain": plain()}.items():
        assert put(api, namespace, pod, name).code == 201
        for own in ({}, env("A", "b"), {"targetContainerName": "c"}):
            answer = debug(api, namespace, name, **own)
            assert answer.code == 200, answer.body
            assert VOID in answer.json["spec"]["ephemeralContainers"][-1]["env"]
        containers = answer.json["spec"]["ephemeralContainers"]
        assert [sum(e == VOID for e in c["env"]) for c in containers] == [1, 1, 1]
