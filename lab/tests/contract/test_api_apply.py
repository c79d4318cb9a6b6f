"""Strategic merge patches and server-side apply."""

from __future__ import annotations

from typing import Any

import pytest
from kit.control_plane import Api, Json

SSA = "application/apply-patch+yaml"


def deployment(image: str = "i:1", replicas: int | None = 2, env: dict[str, str] | None = None, **labels: str) -> Json:
    container = {"name": "c", "image": image, "env": [{"name": k, "value": v} for k, v in (env or {}).items()]}
    spec: Json = {"selector": {"matchLabels": {"app": "x"}},
                  "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}}  # fmt: skip
    metadata = {"name": "d"} | ({"labels": labels} if labels else {})
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@pytest.fixture
def d(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/d"


def env_of(value: Json) -> dict[str, str]:
    return {e["name"]: e["value"] for e in value["spec"]["template"]["spec"]["containers"][0].get("env", [])}


def managers(value: Json) -> list[tuple[str, str]]:
    return sorted((m["manager"], m["operation"]) for m in value["metadata"]["managedFields"])


def owned(value: Json, manager: str, operation: str = "Apply") -> Json:
    entry = next(
        m for m in value["metadata"]["managedFields"] if (m["manager"], m["operation"]) == (manager, operation)
    )
    return entry["fieldsV1"]


def conflicts(answer_json: Json) -> dict[str, str]:
    return {cause["field"]: cause["message"] for cause in answer_json["details"]["causes"]}


# -- strategic merge ---------------------------------------------------------------------------------------------------


def test_lists_with_keys_are_merged_item_by_item(api: Api, d: str) -> None:
    api.create(d.removesuffix("/d"), deployment(env={"A": "1", "B": "2"}))
    container = {"name": "c", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}
    seen = api.strategic(
        d, {"spec": {"template": {"spec": {"containers": [container, {"name": "side", "image": "s:1"}]}}}}
    )
    assert env_of(seen) == {"A": "1", "B": "3", "C": "4"}
    assert [c["name"] for c in seen["spec"]["template"]["spec"]["containers"]] == ["c", "side"]


def test_directives_delete_replace_and_order(api: Api, d: str) -> None:
    api.create(d.removesuffix("/d"), deployment(env={"A": "1", "B": "2", "C": "3"}))

    def patch(container: Json) -> Json:
        return api.strategic(d, {"spec": {"template": {"spec": {"containers": [{"name": "c", **container}]}}}})

    gone = patch({"env": [{"name": "A", "$patch": "delete"}]})
    assert list(env_of(gone)) == ["B", "C"]
    ordered = patch({"$setElementOrder/env": [{"name": "C"}, {"name": "B"}]})
    assert list(env_of(ordered)) == ["C", "B"]
    replaced = patch({"env": [{"name": "X", "value": "9"}, {"$patch": "replace"}]})
    assert env_of(replaced) == {"X": "9"}


def test_retain_keys_drops_the_other_union_member(api: Api, d: str) -> None:
    api.create(d.removesuffix("/d"), deployment())
    strategy = {"$retainKeys": ["type"], "type": "Recreate"}
    assert api.strategic(d, {"spec": {"strategy": strategy}})["spec"]["strategy"] == {"type": "Recreate"}


def test_finalizers_merge_and_leave_by_name(api: Api, d: str) -> None:
    api.create(d.removesuffix("/d"), deployment())
    api.strategic(d, {"metadata": {"finalizers": ["a.io/x"]}})
    both = api.strategic(d, {"metadata": {"finalizers": ["a.io/y"]}})
    assert sorted(both["metadata"]["finalizers"]) == ["a.io/x", "a.io/y"]
    left = api.strategic(d, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.io/x"]}})
    assert left["metadata"]["finalizers"] == ["a.io/y"]


# -- server-side apply -------------------------------------------------------------------------------------------------


def test_apply_creates_and_owns_what_it_names(api: Api, d: str) -> None:
    made = api.apply(d, deployment(env={"A": "1"}), "me")
    assert made.code == 201
    assert managers(made.json) == [("me", "Apply")]
    fields = owned(made.json, "me")
    assert fields["f:spec"]["f:replicas"] == {}
    env = fields["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"c"}']["f:env"]
    assert env == {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}}
    assert "f:strategy" not in fields["f:spec"]  # a default belongs to nobody
    again = api.apply(d, deployment(env={"A": "1"}), "me")
    assert again.code == 200
    assert again.json["metadata"]["resourceVersion"] == made.json["metadata"]["resourceVersion"]


def test_what_is_applied_no_longer_goes(api: Api, d: str) -> None:
    api.apply(d, deployment(env={"A": "1", "B": "2"}, gone="soon", stays="here"), "me")
    seen = api.apply(d, deployment(env={"B": "2"}, stays="here"), "me").json
    assert env_of(seen) == {"B": "2"}
    assert seen["metadata"]["labels"] == {"stays": "here"}


def test_a_struct_that_nobody_holds_anything_of_goes_with_its_defaults(api: Api, d: str) -> None:
    plain, full = deployment(), deployment()
    pod = full["spec"]["template"]["spec"]
    term = {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
    pod["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    pod["containers"][0]["livenessProbe"] = {"httpGet": {"port": 80}}
    api.apply(d, full, "me")
    seen = api.apply(d, plain, "me").json["spec"]["template"]["spec"]
    assert ("affinity" in seen, "livenessProbe" in seen["containers"][0]) == (False, False)


def test_an_object_keeps_its_metadata_when_all_that_was_applied_there_is_given_up(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/m"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    for metadata in ({"finalizers": ["example.com/f"]}, {"labels": {"l": "1"}}, {}):
        found = api.call("PATCH", f"{path}?fieldManager=me", {**body, "metadata": {"name": "m", **metadata}}, media=SSA)
        assert found.code in (200, 201), found.json
        assert found.json["metadata"]["name"] == "m"
        assert found.json["metadata"].get("finalizers") == metadata.get("finalizers")


NAMELESS = "the name of the object (m based on URL) was undeterminable: name must be provided"


@pytest.mark.parametrize("metadata", [None, {}, {"labels": {"l": "1"}}, {"name": ""}])
def test_what_is_made_by_an_apply_names_itself(api: Api, namespace: str, metadata: object) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", **({} if metadata is None else {"metadata": metadata})}
    found = api.call("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/m?fieldManager=me", body, media=SSA)
    assert (found.code, found.json["message"]) == (400, NAMELESS)


@pytest.mark.parametrize(("before", "metadata", "taken"), [
    ({}, None, True), ({}, {}, True), ({"labels": {"l": "1"}}, {}, True), ({"labels": {"l": "1"}}, {"labels": {"z": "1"}}, True),
    ({"labels": {"l": "1"}}, None, False),  # all that it held there goes, and the name with it
    ({"finalizers": ["example.com/f"]}, None, False), ({}, {"name": None}, False), ({}, {"name": ""}, False),
])  # fmt: skip
def test_a_later_apply_may_leave_out_the_name_and_not_take_it_away(
        api: Api, namespace: str, before: dict[str, object], metadata: object, taken: bool) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/m?fieldManager=me"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    assert api.call("PATCH", path, {**body, "metadata": {"name": "m", **before}}, media=SSA).code == 201
    found = api.call("PATCH", path, body if metadata is None else {**body, "metadata": metadata}, media=SSA)
    assert (found.code, found.json.get("message")) == ((200, None) if taken else (400, NAMELESS))


@pytest.mark.parametrize(("method", "body", "media"), [
    ("PUT", {"apiVersion": "v1", "kind": "ConfigMap"}, "application/json"),
    ("PATCH", {"metadata": {"name": None}}, "application/merge-patch+json"),
    ("PATCH", {"metadata": {"name": None}}, "application/strategic-merge-patch+json"),
    ("PATCH", [{"op": "remove", "path": "/metadata/name"}], "application/json-patch+json"),
])  # fmt: skip
def test_what_replaces_an_object_names_itself(api: Api, namespace: str, method: str, body: Any, media: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.create(path, {"metadata": {"name": "m"}})
    found = api.call(method, f"{path}/m", body, media=media)
    assert (found.code, found.json["message"]) == (400, NAMELESS)


def test_what_somebody_else_owns_too_stays(api: Api, d: str) -> None:
    api.apply(d, deployment(shared="yes"), "me")
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"shared": "yes"}}}
    assert api.apply(d, other, "other").code == 200
    seen = api.apply(d, deployment(), "me").json
    assert seen["metadata"]["labels"] == {"shared": "yes"}


def test_taking_over_a_field_is_a_conflict_unless_forced(api: Api, d: str) -> None:
    api.apply(d, deployment(replicas=2), "me")
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 3}}
    answer = api.apply(d, other, "other")
    assert (answer.code, answer.json["reason"]) == (409, "Conflict")
    assert conflicts(answer.json) == {".spec.replicas": 'conflict with "me"'}
    assert answer.json["message"] == 'Apply failed with 1 conflict: conflict with "me": .spec.replicas'
    forced = api.apply(d, other, "other", force=True).json
    assert forced["spec"]["replicas"] == 3
    assert "f:replicas" not in owned(forced, "me")["f:spec"]
    assert owned(forced, "other") == {"f:spec": {"f:replicas": {}}}


def test_an_update_takes_the_fields_that_it_changes(api: Api, d: str) -> None:
    api.apply(d, deployment(replicas=2), "me")
    changed = api.call(
        "PATCH", d, {"spec": {"replicas": 5}}, media="application/merge-patch+json", fieldManager="scaler"
    ).json
    assert owned(changed, "scaler", "Update") == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in owned(changed, "me")["f:spec"]
    answer = api.apply(d, deployment(replicas=2), "me")
    assert conflicts(answer.json) == {".spec.replicas": 'conflict with "scaler" using apps/v1'}
    without = api.apply(d, deployment(replicas=None), "me")
    assert without.json["spec"]["replicas"] == 5


def test_agreeing_is_no_conflict(api: Api, d: str) -> None:
    api.apply(d, deployment(env={"A": "1"}), "me")
    assert api.apply(d, deployment(env={"A": "1"}), "other").code == 200


def test_status_is_owned_apart(api: Api, d: str) -> None:
    api.apply(d, deployment(), "me")
    status = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "status": {"readyReplicas": 1, "replicas": 1},
    }
    seen = api.call("PATCH", f"{d}/status", status, media=SSA, fieldManager="controller").json
    entry = next(m for m in seen["metadata"]["managedFields"] if m["manager"] == "controller")
    assert (entry["subresource"], entry["fieldsV1"]) == (
        "status",
        {"f:status": {"f:readyReplicas": {}, "f:replicas": {}}},
    )


def test_apply_needs_a_manager_and_a_kind(api: Api, d: str) -> None:
    assert api.call("PATCH", d, deployment(), media=SSA).code == 422
    assert api.apply(d, {"metadata": {"name": "d"}}, "me").code == 400


def test_a_creator_owns_what_it_set(api: Api, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    made = api.create(maps, {"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}}, fieldManager="maker")
    assert managers(made) == [("maker", "Update")]
    assert owned(made, "maker", "Update")["f:data"]["f:k"] == {}
    answer = api.apply(f"{maps}/a", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "w"}}, "me")
    assert conflicts(answer.json) == {".data.k": 'conflict with "maker" using v1'}
