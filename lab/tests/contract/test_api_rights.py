"""RBAC: a user's rights follow roles and bindings, and refusals have the same words."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from kit.control_plane import Answer, Api, Json, until

from pumice_lab.apiserver.bootstrap import component_roles

RBAC = "/apis/rbac.authorization.k8s.io/v1"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


class Guest:
    """A service account of the namespace, and calls as it."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.home = f"/api/v1/namespaces/{namespace}"
        self.name = f"system:serviceaccount:{namespace}:guest"
        api.create(f"{self.home}/serviceaccounts", {"metadata": {"name": "guest"}})
        token = api.create(f"{self.home}/serviceaccounts/guest/token", {"spec": {}})["status"]["token"]
        self.its = replace(api, token=token)

    def role(self, *rules: dict[str, Any]) -> None:
        """A role of the namespace with these rules, bound to the guest."""
        self.api.create(f"{RBAC}/namespaces/{self.namespace}/roles", {"metadata": {"name": "some"}, "rules": list(rules)})
        self.bind("Role", "some")

    def bind(self, kind: str, role: str, subject: dict[str, Any] | None = None) -> None:
        body = {"metadata": {"name": role}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                "subjects": [subject or {"kind": "ServiceAccount", "name": "guest", "namespace": self.namespace}]}
        self.api.create(f"{RBAC}/namespaces/{self.namespace}/rolebindings", body)

    def gets(self, code: int, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        """The answer once it has this code: kube-apiserver learns of roles a moment after they are written."""
        deadline = time.monotonic() + 30
        while (answer := self.its.call(method, path, body, **more)).code != code:
            assert time.monotonic() < deadline, (answer.code, answer.body)
            Event().wait(0.05)
        return answer


@pytest.fixture
def guest(api: Api, namespace: str) -> Guest:
    return Guest(api, namespace)


def test_an_account_without_a_role_may_only_look_round_and_ask_about_itself(api: Api, guest: Guest) -> None:
    answer = guest.gets(403, "GET", f"{guest.home}/pods")
    assert answer.json["reason"] == "Forbidden"
    assert answer.json["details"] == {"kind": "pods"}
    assert answer.json["message"] == (f'pods is forbidden: User "{guest.name}" cannot list resource "pods" in API group "" '
                                      f'in the namespace "{guest.namespace}"')
    answer = guest.gets(403, "DELETE", "/apis/storage.k8s.io/v1/storageclasses/s")
    assert answer.json["details"] == {"name": "s", "group": "storage.k8s.io", "kind": "storageclasses"}
    assert answer.json["message"] == (f'storageclasses.storage.k8s.io "s" is forbidden: User "{guest.name}" cannot delete '
                                      'resource "storageclasses" in API group "storage.k8s.io" at the cluster scope')
    answer = guest.gets(403, "GET", "/metrics")
    assert answer.json["message"] == f'forbidden: User "{guest.name}" cannot get path "/metrics"'
    guest.gets(200, "GET", "/apis")
    guest.gets(200, "GET", "/api/v1")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    asked = guest.gets(201, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert asked.json["status"]["userInfo"]["username"] == guest.name


def test_a_rule_for_one_name_allows_that_name_and_a_list_of_it(api: Api, guest: Guest) -> None:
    guest.role({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["get", "list", "watch"]})
    for name in ("mine", "other"):
        api.create(f"{guest.home}/configmaps", {"metadata": {"name": name}})
    guest.gets(200, "GET", f"{guest.home}/configmaps/mine")
    guest.gets(403, "GET", f"{guest.home}/configmaps/other")
    guest.gets(403, "GET", f"{guest.home}/configmaps")
    listed = guest.gets(200, "GET", f"{guest.home}/configmaps", fieldSelector="metadata.name=mine")
    assert [item["metadata"]["name"] for item in listed.json["items"]] == ["mine"]
    guest.gets(403, "GET", "/api/v1/configmaps", fieldSelector="metadata.name=mine")


ROLES = "rbac.authorization.k8s.io"
BINDING = {"apiGroup": ROLES, "kind": "ClusterRole"}


def test_nobody_writes_a_role_that_gives_more_than_he_has(api: Api, guest: Guest) -> None:
    guest.role({"apiGroups": [ROLES], "resources": ["roles", "rolebindings"], "verbs": ["create", "get", "patch"]},
               {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
               {"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["get"]},
               {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine", "ours"], "verbs": ["get"]})
    roles = f"{RBAC}/namespaces/{guest.namespace}/roles"

    def rule(group: str, resources: list[str], verbs: list[str], *names: str) -> Json:
        return {"apiGroups": [group], "resources": resources, "verbs": verbs, **({"resourceNames": names} if names else {})}

    guest.gets(404, "GET", f"{roles}/none")
    for i, held in enumerate((
            rule("", ["pods"], ["get"]), rule("", ["pods"], ["list"], "a"), rule("apps", ["deployments/scale"], ["get"]),
            rule("", ["secrets"], ["get"], "mine"))):
        guest.gets(201, "POST", roles, {"metadata": {"name": f"held-{i}"}, "rules": [held]})
    for more in (rule("", ["pods"], ["create"]), rule("", ["pods", "services"], ["get"]), rule("", ["secrets"], ["get"]),
                 rule("", ["secrets"], ["get"], "mine", "theirs"), rule("*", ["pods"], ["get"]), rule("", ["*"], ["get"]),
                 rule("", ["pods"], ["*"]), rule("apps", ["deployments"], ["get"])):
        answer = guest.gets(403, "POST", roles, {"metadata": {"name": "more"}, "rules": [more]})
        assert answer.json["message"].startswith(f'roles.{ROLES} "more" is forbidden: user "{guest.name}" (groups=["')
        assert "is attempting to grant RBAC permissions not currently held:\n{APIGroups:[" in answer.json["message"]
    merge = "application/merge-patch+json"
    guest.gets(403, "PATCH", f"{roles}/held-0", {"rules": [rule("", ["nodes"], ["get"])]}, media=merge)
    apply = {"apiVersion": f"{ROLES}/v1", "kind": "Role", "metadata": {"name": "more"}, "rules": [rule("", ["nodes"], ["get"])]}
    guest.gets(403, "PATCH", f"{roles}/more", apply, media="application/apply-patch+yaml", fieldManager="m")
    # of what somebody greater wrote he may change what the garbage collector does
    api.create(roles, {"metadata": {"name": "great"}, "rules": [rule("*", ["*"], ["*"])]})
    guest.gets(403, "PATCH", f"{roles}/great", {"metadata": {"labels": {"a": "b"}}}, media=merge)
    guest.gets(200, "PATCH", f"{roles}/great", {"metadata": {"finalizers": ["a.b/c"]}}, media=merge)
    guest.gets(200, "PATCH", f"{roles}/great", {"metadata": {"finalizers": None}}, media=merge)


def test_nobody_binds_a_role_that_gives_more_than_he_has(api: Api, guest: Guest) -> None:
    guest.role({"apiGroups": [ROLES], "resources": ["roles", "rolebindings"], "verbs": ["create", "get", "patch"]},
               {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    bindings = f"{RBAC}/namespaces/{guest.namespace}/rolebindings"
    small = f"small-{guest.namespace}"
    api.create(f"{RBAC}/clusterroles", {"metadata": {"name": small}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})

    def bound(role: str, name: str = "") -> Json:
        return {"metadata": {"name": name or role}, "roleRef": {**BINDING, "name": role}, "subjects": [
            {"kind": "ServiceAccount", "name": "other", "namespace": guest.namespace}]}

    guest.gets(201, "POST", bindings, bound(small))
    answer = guest.gets(403, "POST", bindings, bound("cluster-admin"))
    assert "is attempting to grant RBAC permissions not currently held:" in answer.json["message"]
    assert guest.gets(404, "POST", bindings, bound("none")).json["message"] == f'rolebindings.{ROLES} "none" not found'
    api.create(bindings, bound("cluster-admin", "great"))
    more = {"subjects": [{"kind": "ServiceAccount", "name": "guest", "namespace": guest.namespace}]}
    guest.gets(403, "PATCH", f"{bindings}/great", more, media="application/merge-patch+json")
    guest.gets(200, "PATCH", f"{bindings}/great", {"metadata": {"finalizers": ["a.b/c"]}}, media="application/merge-patch+json")


def test_the_verbs_escalate_and_bind_let_him(api: Api, guest: Guest) -> None:
    guest.role({"apiGroups": [ROLES], "resources": ["roles", "rolebindings"], "verbs": ["create", "escalate"]},
               {"apiGroups": [ROLES], "resources": ["clusterroles"], "resourceNames": ["cluster-admin"], "verbs": ["bind"]})
    large = f"large-{guest.namespace}"
    api.create(f"{RBAC}/clusterroles", {"metadata": {"name": large}, "rules": [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]})
    space = f"{RBAC}/namespaces/{guest.namespace}"
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    guest.gets(201, "POST", f"{space}/roles", {"metadata": {"name": "all"}, "rules": [rule]})
    body = {"subjects": [{"kind": "User", "name": "somebody"}], "roleRef": {**BINDING, "name": "cluster-admin"}}
    guest.gets(201, "POST", f"{space}/rolebindings", {**body, "metadata": {"name": "v"}})
    guest.gets(403, "POST", f"{space}/rolebindings", {**body, "metadata": {"name": "e"}, "roleRef": {**BINDING, "name": large}})


def test_a_role_that_gathers_others_is_for_who_may_do_everything(api: Api, guest: Guest) -> None:
    name = f"writes-roles-{guest.namespace}"
    api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [
        {"apiGroups": [ROLES], "resources": ["clusterroles"], "verbs": ["*"]}]})
    api.create(f"{RBAC}/clusterroles", {"metadata": {"name": f"{name}-only"}, "rules": [
        {"apiGroups": [ROLES], "resources": ["clusterroles"], "verbs": ["create"]}]})
    api.create(f"{RBAC}/clusterrolebindings", {
        "metadata": {"name": name}, "roleRef": {**BINDING, "name": f"{name}-only"}, "subjects": [
            {"kind": "ServiceAccount", "name": "guest", "namespace": guest.namespace}]})
    gathers = {"metadata": {"name": f"{name}-all"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    answer = guest.gets(403, "POST", f"{RBAC}/clusterroles", gathers)
    assert answer.json["message"].endswith("must have cluster-admin privileges to use the aggregationRule")


def kinds_of(api: Api) -> list[tuple[str, Json]]:
    """Everything that discovery names, with the path of its version."""
    groups = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in api.get("/apis")["groups"]]
    return [(path, kind) for path in ("/api/v1", *groups) for kind in api.get(path)["resources"] if "/" not in kind["name"]]


def test_who_may_do_everything_in_a_namespace_may_do_nothing_beside_it(api: Api, guest: Guest) -> None:
    """The right is asked where the path says, so a kind is served where it lies and nowhere else."""
    guest.role({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})
    guest.gets(404, "GET", f"{guest.home}/pods/none")
    for path, kind in kinds_of(api):
        inside, body = f"{path}/namespaces/{guest.namespace}/{kind['name']}", {"metadata": {"name": "x"}}
        if not kind["namespaced"]:
            one = f"{inside}/x"
            for method, where in (("GET", inside), ("POST", inside), ("DELETE", inside), ("PUT", one), ("GET", one)):
                answer = guest.its.call(method, where, None if method == "GET" else body)
                assert answer.code == 404, (method, where, answer.body)
        elif "list" in kind["verbs"]:
            assert guest.its.call("GET", f"{path}/{kind['name']}").code == 403, kind["name"]
            assert api.call("GET", f"{path}/{kind['name']}/x").code == 404, kind["name"]
            assert api.call("POST", f"{path}/{kind['name']}", body).code == 405, kind["name"]
            assert api.call("DELETE", f"{path}/{kind['name']}", body).code == 405, kind["name"]
        else:
            assert api.call("POST", f"{path}/{kind['name']}", body).code == 404, kind["name"]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    everything = {"metadata": {"name": "all"}, "roleRef": reference, "subjects": [
        {"kind": "ServiceAccount", "name": "guest", "namespace": guest.namespace}]}
    assert guest.its.call("POST", f"{RBAC}/namespaces/{guest.namespace}/clusterrolebindings", everything).code == 404
    guest.gets(403, "GET", "/api/v1/namespaces/kube-system/secrets")


def test_a_right_on_pods_is_none_on_their_status(api: Api, guest: Guest) -> None:
    guest.role({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]})
    api.create(f"{guest.home}/pods", POD)
    merge = "application/merge-patch+json"
    guest.gets(200, "PATCH", f"{guest.home}/pods/p", {"metadata": {"labels": {"a": "b"}}}, media=merge)
    answer = guest.gets(403, "PATCH", f"{guest.home}/pods/p/status", {"status": {"message": "hello"}}, media=merge)
    assert 'cannot patch resource "pods/status" in API group ""' in answer.json["message"]
    guest.gets(403, "POST", f"{guest.home}/pods/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})


def test_a_cluster_role_bound_in_a_namespace_counts_there_only(api: Api, guest: Guest) -> None:
    work = f"work-in-{guest.namespace}"
    api.create(f"{RBAC}/clusterroles", {"metadata": {"name": work}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]})
    guest.bind("ClusterRole", work, {"kind": "Group", "name": f"system:serviceaccounts:{guest.namespace}"})
    guest.gets(201, "POST", f"{guest.home}/pods", POD)
    guest.gets(403, "GET", f"{guest.home}/secrets")
    guest.gets(403, "GET", "/api/v1/namespaces/kube-system/pods")
    guest.gets(403, "GET", "/api/v1/pods")
    api.delete(f"{RBAC}/namespaces/{guest.namespace}/rolebindings/{work}")
    guest.gets(403, "GET", f"{guest.home}/pods/p")


def test_an_apply_that_would_make_the_object_needs_the_right_to_make_it(api: Api, guest: Guest) -> None:
    guest.role({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]})
    api.create(f"{guest.home}/configmaps", {"metadata": {"name": "there"}})

    def apply(name: str, code: int) -> Answer:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}
        return guest.gets(code, "PATCH", f"{guest.home}/configmaps/{name}", body, media="application/apply-patch+yaml",
                          fieldManager="guest")

    apply("there", 200)
    assert 'cannot create resource "configmaps"' in apply("absent", 403).json["message"]


def test_reviews_say_what_a_request_would_meet(api: Api, guest: Guest) -> None:
    guest.role({"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "verbs": ["get", "update"]})
    guest.gets(404, "GET", f"/apis/apps/v1/namespaces/{guest.namespace}/deployments/none")
    reviews = "/apis/authorization.k8s.io/v1"

    def may(verb: str, resource: str, subresource: str = "", **spec: Any) -> tuple[bool, bool]:
        """As it answers the guest itself, and an administrator who asks about it."""
        asked = {"resourceAttributes": {"namespace": guest.namespace, "verb": verb, "group": "apps", "resource": resource,
                                        "subresource": subresource}}
        own = guest.its.create(f"{reviews}/selfsubjectaccessreviews", {"spec": asked})
        his = api.create(f"{reviews}/subjectaccessreviews", {"spec": {**asked, "user": guest.name}})
        return own["status"]["allowed"], his["status"]["allowed"]

    assert may("update", "deployments") == (True, True)
    assert may("update", "deployments", "scale") == (True, True)
    assert may("delete", "deployments") == (False, False)
    assert may("update", "daemonsets") == (False, False)
    rules = guest.its.create(f"{reviews}/selfsubjectrulesreviews", {"spec": {"namespace": guest.namespace}})["status"]
    assert {"verbs": ["get", "update"], "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"]} in (
        rules["resourceRules"])
    guest.gets(403, "POST", f"{reviews}/subjectaccessreviews", {"spec": {"user": "anybody"}})


def test_kubernetes_own_components_have_the_roles_that_it_gives_them(api: Api) -> None:
    def meaning(rules: list[Json]) -> set[tuple[str, ...]]:
        return {(verb, group, resource, name) for rule in rules for verb in rule["verbs"] for group in rule.get("apiGroups") or ()
                for resource in rule.get("resources") or () for name in rule.get("resourceNames") or ("",)} | {
                    (verb, path) for rule in rules for verb in rule["verbs"] for path in rule.get("nonResourceURLs") or ()}

    roles = list(component_roles())
    until(lambda: api.call("GET", f"{RBAC}/clusterrolebindings/{roles[-1][0]}").code == 200)  # made a moment after the start
    given = {item["metadata"]["name"]: item["rules"] for item in api.get(f"{RBAC}/clusterroles")["items"]}
    bound = {item["metadata"]["name"]: item.get("subjects") for item in api.get(f"{RBAC}/clusterrolebindings")["items"]}
    for name, rules, subjects in roles:
        assert meaning(rules) == meaning(given[name]), name
        assert (bound.get(name) or []) == subjects, name


def test_a_review_of_a_namespace_asks_about_that_namespace(api: Api, guest: Guest) -> None:
    reviews = f"/apis/authorization.k8s.io/v1/namespaces/{guest.namespace}/localsubjectaccessreviews"
    head = {"metadata": {"namespace": guest.namespace}}
    for asked, code, why in (
            ({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": guest.namespace}}, 201, ""),
            ({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "kube-system"}}, 422,
             'spec.resourceAttributes.namespace: Invalid value: "kube-system": must match metadata.namespace'),
            ({"nonResourceAttributes": {"verb": "get", "path": "/x"}}, 422, "disallowed on this kind of request")):
        answer = api.call("POST", reviews, {**head, "spec": {"user": "u", **asked}})
        assert answer.code == code, answer.body
        assert not why or answer.json["message"].endswith(why)


@pytest.mark.parametrize(("path", "stays"), [("/api/v1/namespaces/{}/replicationcontrollers", True),
                                             ("/apis/batch/v1/namespaces/{}/jobs", True),
                                             ("/apis/apps/v1/namespaces/{}/replicasets", False)])
def test_what_an_old_kind_owns_stays_when_it_is_deleted_without_a_word(api: Api, namespace: str, path: str, stays: bool) -> None:
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never" if "jobs" in path else "Always"}
    spec: Json = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}
    if "jobs" not in path:
        spec |= {"replicas": 0, "selector": {"matchLabels": {"a": "b"}} if "sets" in path else {"a": "b"}}
    api.create(path.format(namespace), {"metadata": {"name": "x"}, "spec": spec})
    answer = api.call("DELETE", f"{path.format(namespace)}/x")
    assert (answer.json.get("metadata") or {}).get("finalizers") == (["orphan"] if stays else None)
    assert ("child pods are preserved by default" in answer.headers.get("warning", "")) is ("jobs" in path)
