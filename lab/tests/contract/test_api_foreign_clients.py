"""Behaviour that foreign clients rely on: the options of lists and watches, of logs, and what kinds are refused for."""

from __future__ import annotations

from typing import Any

import pytest
from kit.control_plane import Api, Json

NOT_OLDER = {"resourceVersionMatch": "NotOlderThan"}


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (NOT_OLDER, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, '"exact" is forbidden for resourceVersion "0"'),
        ({"resourceVersionMatch": "Odd", "resourceVersion": "3"},
         'Unsupported value: "Odd": supported values: "Exact", "NotOlderThan", ""'),
        ({"sendInitialEvents": True}, "sendInitialEvents is forbidden for list"),
        ({**NOT_OLDER, "resourceVersion": "3", "continue": "x"}, "is forbidden when continue is provided"),
        ({**NOT_OLDER, "watch": True}, "is forbidden for watch unless sendInitialEvents is provided"),
        ({"sendInitialEvents": True, "watch": True}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ({"continue": "x", "watch": True}, "is forbidden when continue is provided"),
    ],
)  # fmt: skip
def test_options_that_contradict_each_other_are_invalid(api: Api, maps: str, query: Json, why: str) -> None:
    answer = api.call("GET", maps, **query)
    assert (answer.code, why in answer.json["message"]) == (422, True)
    assert (answer.json["details"]["group"], answer.json["details"]["kind"]) == ("meta.k8s.io", "ListOptions")


def test_a_list_goes_on_at_its_own_revision_and_no_other(api: Api, maps: str) -> None:
    for name in "ab":
        api.create(maps, {"metadata": {"name": name}})
    token = api.get(maps, limit=1)["metadata"]["continue"]
    answer = api.call("GET", maps, limit=1, resourceVersion="5", **{"continue": token})
    assert (answer.code, answer.json["message"]) == (
        400, "specifying resource version is not allowed when using continue")  # fmt: skip
    assert api.call("GET", maps, limit=1, resourceVersion="0", **{"continue": token}).code == 200


def test_a_watch_may_begin_with_what_is_there_and_want_no_bookmark(api: Api, maps: str) -> None:
    api.create(maps, {"metadata": {"name": "a"}})
    with api.watch(maps, sendInitialEvents=True, timeoutSeconds=1, **NOT_OLDER) as events:
        names = [(event["type"], event["object"]["metadata"].get("name")) for event in events]
    assert ("ADDED", "a") in names
    assert "BOOKMARK" not in {kind for kind, _ in names}


def test_what_leaves_a_selection_is_shown_as_it_was_in_it(api: Api, maps: str) -> None:
    made = api.create(maps, {"metadata": {"name": "a", "labels": {"color": "red"}}})
    with api.watch(maps, resourceVersion=made["metadata"]["resourceVersion"], labelSelector="color=red") as events:
        left = api.merge(f"{maps}/a", {"metadata": {"labels": {"color": "blue"}}})
        gone = next(event for event in events if event["type"] != "BOOKMARK")
    assert (gone["type"], gone["object"]["metadata"]["labels"]) == ("DELETED", {"color": "red"})
    assert gone["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


def test_the_version_is_found_with_a_slash_behind_it(api: Api) -> None:
    assert api.get("/version/") == api.get("/version")


def test_conflicts_of_an_apply_are_listed_below_whom_they_are_with(api: Api, maps: str) -> None:
    def ask(manager: str, **data: str) -> Any:
        return api.apply(f"{maps}/a", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}, manager)

    ask("me", x="1", y="1")
    ask("you", z="1")
    said = 'conflicts with "me":\n- .data.x\n- .data.y\nconflicts with "you":\n- .data.z'
    assert ask("other", x="2", y="2", z="2").json["message"] == f"Apply failed with 3 conflicts: {said}"


def test_a_json_patch_of_an_unknown_operation_cannot_be_carried_out(api: Api, maps: str) -> None:
    api.create(maps, {"metadata": {"name": "a"}})
    answer = api.call("PATCH", f"{maps}/a", [{"op": "frob", "path": "/data", "value": {}}], media="application/json-patch+json")
    assert (answer.code, answer.json["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    ("query", "field"),
    [({"tailLines": -1}, "tailLines"), ({"limitBytes": 0}, "limitBytes"), ({"sinceSeconds": 0}, "sinceSeconds"),
     ({"sinceSeconds": 1, "sinceTime": "2026-01-01T00:00:00Z"}, "[]")],
)  # fmt: skip
def test_a_log_is_not_asked_for_in_impossible_lengths(api: Api, namespace: str, query: Json, field: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    answer = api.call("GET", f"{pods}/p/log", **query)
    assert (answer.code, answer.json["details"]["kind"]) == (422, "PodLogOptions")
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == [field]


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("kubernetes.io/basic-auth", ["data[username]", "data[password]"]),
        ("kubernetes.io/dockercfg", ["data[.dockercfg]"]),
        ("kubernetes.io/dockerconfigjson", ["data[.dockerconfigjson]"]),
        ("kubernetes.io/service-account-token", ["metadata.annotations[kubernetes.io/service-account.name]"]),
        ("kubernetes.io/ssh-auth", ["data[ssh-privatekey]"]),
        ("kubernetes.io/tls", ["data[tls.crt]", "data[tls.key]"]),
    ],
)
def test_a_secret_holds_what_its_type_promises(api: Api, namespace: str, kind: str, missing: list[str]) -> None:
    answer = api.call("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "s"}, "type": kind})
    assert (answer.code, [cause["field"] for cause in answer.json["details"]["causes"]]) == (422, missing)
    assert {cause["reason"] for cause in answer.json["details"]["causes"]} == {"FieldValueRequired"}


def test_one_of_user_and_password_is_enough(api: Api, namespace: str) -> None:
    body = {"metadata": {"name": "s"}, "type": "kubernetes.io/basic-auth", "stringData": {"password": "p"}}
    assert api.create(f"/api/v1/namespaces/{namespace}/secrets", body)["type"] == "kubernetes.io/basic-auth"


@pytest.mark.parametrize("schedule", ["x y z", "* * * * * *", "61 * * * *", "* * * 13 *"])
def test_a_schedule_that_no_clock_reads_is_refused(api: Api, namespace: str, schedule: str) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec = {"schedule": schedule, "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    answer = api.call("POST", f"/apis/batch/v1/namespaces/{namespace}/cronjobs", {"metadata": {"name": "c"}, "spec": spec})
    assert (answer.code, [cause["field"] for cause in answer.json["details"]["causes"]]) == (422, ["spec.schedule"])


def test_a_probe_says_what_it_asks(api: Api, namespace: str) -> None:
    container = {"name": "c", "image": "i", "livenessProbe": {"periodSeconds": 1}}
    body = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    answer = api.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    assert answer.code == 422
    assert "spec.containers[0].livenessProbe: Required value: must specify a handler type" in answer.json["message"]


def test_a_service_may_be_named_by_a_number_first(api: Api, namespace: str) -> None:
    body = {"metadata": {"name": "1st"}, "spec": {"ports": [{"port": 80}]}}
    assert api.create(f"/api/v1/namespaces/{namespace}/services", body)["metadata"]["name"] == "1st"


def test_pods_of_a_stateful_set_mount_the_claims_that_it_makes_for_them(api: Api, namespace: str) -> None:
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    spec = {
        "serviceName": "s", "selector": {"matchLabels": {"app": "s"}},
        "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [container]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
    }  # fmt: skip
    made = api.create(f"/apis/apps/v1/namespaces/{namespace}/statefulsets", {"metadata": {"name": "s"}, "spec": spec})
    assert made["spec"]["template"]["spec"].get("volumes") is None
