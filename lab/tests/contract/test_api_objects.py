"""Create, read, update, patch and delete, as any client meets them."""

from __future__ import annotations

from typing import Any

import pytest
from kit.control_plane import Api

Json = dict[str, Any]


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def test_a_created_object_has_identity_and_is_found_again(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a", x="1"))
    assert made["metadata"]["uid"]
    assert made["metadata"]["creationTimestamp"].endswith("Z")
    assert api.get(f"{maps}/a") == made
    assert [item["metadata"]["name"] for item in api.get(maps)["items"]] == ["a"]


def test_a_second_object_of_the_same_name_is_refused(api: Api, maps: str) -> None:
    api.create(maps, config_map("a"))
    answer = api.call("POST", maps, config_map("a"))
    assert (answer.code, answer.json["reason"]) == (409, "AlreadyExists")
    assert answer.json["message"] == 'configmaps "a" already exists'
    assert answer.json["details"] == {"name": "a", "kind": "configmaps"}


def test_what_is_not_there_is_a_status_with_its_name(api: Api, maps: str) -> None:
    answer = api.call("GET", f"{maps}/nope")
    assert (answer.code, answer.json["kind"], answer.json["reason"]) == (404, "Status", "NotFound")
    assert answer.json["message"] == 'configmaps "nope" not found'


def test_a_generated_name_keeps_its_prefix(api: Api, maps: str) -> None:
    names = {api.create(maps, {"metadata": {"generateName": "job-"}})["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


def test_every_write_has_a_higher_revision(api: Api, maps: str) -> None:
    first = api.create(maps, config_map("a", x="1"))
    second = api.merge(f"{maps}/a", {"data": {"x": "2"}})
    third = api.create(maps, config_map("b"))
    revisions = [int(value["metadata"]["resourceVersion"]) for value in (first, second, third)]
    assert revisions == sorted(set(revisions))


def test_a_write_that_changes_nothing_is_no_write(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a", x="1"))
    same = api.update(f"{maps}/a", config_map("a", x="1"))
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_an_update_of_a_stale_object_conflicts(api: Api, maps: str) -> None:
    stale = api.create(maps, config_map("a", x="1"))
    api.merge(f"{maps}/a", {"data": {"x": "2"}})
    answer = api.call("PUT", f"{maps}/a", {**stale, "data": {"x": "3"}})
    assert (answer.code, answer.json["reason"]) == (409, "Conflict")
    assert "please apply your changes to the latest version" in answer.json["message"]
    assert api.get(f"{maps}/a")["data"] == {"x": "2"}


def test_an_update_for_another_uid_conflicts(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a"))
    made["metadata"] |= {"uid": "00000000-0000-0000-0000-000000000000"}
    assert api.call("PUT", f"{maps}/a", made).code == 409


def test_the_name_in_the_body_is_that_of_the_path(api: Api, maps: str) -> None:
    api.create(maps, config_map("a"))
    answer = api.call("PUT", f"{maps}/a", config_map("b"))
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")


def test_a_merge_patch_removes_what_is_null(api: Api, maps: str) -> None:
    api.create(maps, config_map("a", x="1", y="2"))
    assert api.merge(f"{maps}/a", {"data": {"x": None, "z": "3"}})["data"] == {"y": "2", "z": "3"}


def test_a_json_patch_tests_and_replaces(api: Api, maps: str) -> None:
    api.create(maps, config_map("a", x="1"))
    patch = [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"},
             {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}}]  # fmt: skip
    media = "application/json-patch+json"
    answer = api.call("PATCH", f"{maps}/a", patch, media=media)
    assert answer.json["data"] == {"x": "2"}
    assert answer.json["metadata"]["labels"] == {"a/b": "c"}
    assert api.call("PATCH", f"{maps}/a", patch, media=media).code == 422  # x is no longer 1
    assert api.get(f"{maps}/a")["data"] == {"x": "2"}


def test_a_patch_with_an_old_revision_conflicts(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a", x="1"))
    api.merge(f"{maps}/a", {"data": {"x": "2"}})
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "3"}}
    assert api.call("PATCH", f"{maps}/a", old, media="application/merge-patch+json").code == 409


def test_an_unknown_patch_type_is_refused(api: Api, maps: str) -> None:
    api.create(maps, config_map("a"))
    answer = api.call("PATCH", f"{maps}/a", {}, media="application/json")
    assert (answer.code, answer.json["reason"]) == (415, "UnsupportedMediaType")


def test_a_dry_run_answers_and_writes_nothing(api: Api, maps: str) -> None:
    assert api.create(maps, config_map("a"), dryRun="All")["metadata"]["uid"]
    assert api.call("GET", f"{maps}/a").code == 404


def test_unknown_fields_are_refused_warned_of_or_dropped(api: Api, maps: str) -> None:
    odd = {**config_map("a"), "dat": {"x": "1"}}
    strict = api.call("POST", maps, odd, fieldValidation="Strict")
    assert (strict.code, strict.json["reason"]) == (400, "BadRequest")
    assert 'unknown field "dat"' in strict.json["message"]
    warned = api.call("POST", maps, odd, fieldValidation="Warn", dryRun="All")
    assert warned.code == 201
    assert 'unknown field \\"dat\\"' in warned.headers["warning"]
    assert "dat" not in api.create(maps, odd, fieldValidation="Ignore")


def test_a_value_of_the_wrong_type_is_a_bad_request(api: Api, maps: str) -> None:
    answer = api.call("POST", maps, {**config_map("a"), "data": {"x": 1}})
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")
    assert "cannot unmarshal number into Go struct field" in answer.json["message"]


def test_yaml_is_read_too(api: Api, maps: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {when: '2026-01-01'}\n"
    assert api.create(maps, text, media="application/yaml")["data"] == {"when": "2026-01-01"}


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254, "dot."])
def test_bad_names_are_invalid(api: Api, maps: str, name: str) -> None:
    answer = api.call("POST", maps, config_map(name))
    assert (answer.code, answer.json["reason"]) == (422, "Invalid")
    assert answer.json["details"]["causes"][0]["field"] == "metadata.name"


@pytest.mark.parametrize("labels", [{"a": "not ok!"}, {"bad key!": "a"}, {"a": "x" * 64}, {"/a": "b"}])
def test_bad_labels_are_invalid(api: Api, maps: str, labels: Json) -> None:
    answer = api.call("POST", maps, {"metadata": {"name": "a", "labels": labels}})
    assert answer.code == 422
    assert answer.json["details"]["causes"][0]["field"] == "metadata.labels"


def test_deleting_by_a_wrong_uid_conflicts(api: Api, maps: str) -> None:
    api.create(maps, config_map("a"))
    answer = api.call("DELETE", f"{maps}/a", {"preconditions": {"uid": "someone-else"}})
    assert (answer.code, answer.json["reason"]) == (409, "Conflict")
    done = api.delete(f"{maps}/a")
    assert (done["status"], done["details"]["name"], done["details"]["kind"]) == ("Success", "a", "configmaps")
    assert api.call("DELETE", f"{maps}/a").code == 404


def test_an_object_with_a_finalizer_waits_for_it(api: Api, maps: str) -> None:
    value = config_map("a")
    value["metadata"]["finalizers"] = ["example.com/wait"]
    api.create(maps, value)
    dying = api.delete(f"{maps}/a")
    assert dying["metadata"]["deletionTimestamp"]
    assert api.call("PATCH", f"{maps}/a", {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}},
                    media="application/merge-patch+json").code == 422  # fmt: skip
    api.merge(f"{maps}/a", {"metadata": {"finalizers": None}})
    assert api.call("GET", f"{maps}/a").code == 404


@pytest.mark.parametrize(("policy", "finalizer"), [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")])
def test_propagation_is_written_down_for_the_garbage_collector(
    api: Api, maps: str, policy: str, finalizer: str
) -> None:
    api.create(maps, config_map("a"))
    assert api.delete(f"{maps}/a", propagationPolicy=policy)["metadata"]["finalizers"] == [finalizer]
    api.merge(f"{maps}/a", {"metadata": {"finalizers": None}})


def test_deletecollection_takes_what_is_selected(api: Api, maps: str) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        api.create(maps, {"metadata": {"name": name, "labels": {"color": color}}})
    api.delete(maps, labelSelector="color=red")
    assert [item["metadata"]["name"] for item in api.get(maps)["items"]] == ["b"]


def test_an_immutable_map_stays(api: Api, maps: str) -> None:
    api.create(maps, {**config_map("a", x="1"), "immutable": True})
    answer = api.call("PATCH", f"{maps}/a", {"data": {"x": "2"}}, media="application/merge-patch+json")
    assert (answer.code, answer.json["reason"]) == (422, "Invalid")
    assert "field is immutable when `immutable` is set" in answer.json["message"]


def test_a_namespace_must_be_there(api: Api) -> None:
    answer = api.call("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert (answer.code, answer.json["message"]) == (404, 'namespaces "nowhere" not found')


def test_a_namespace_in_deletion_takes_nothing_new_and_goes_when_its_finalizer_goes(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    dying = api.delete(path)
    assert dying["status"]["phase"] == "Terminating"
    assert dying["spec"]["finalizers"] == ["kubernetes"]
    answer = api.call("POST", f"{path}/configmaps", config_map("late"))
    assert (answer.code, answer.json["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    current = api.get(path)
    current["spec"] = {}
    api.update(f"{path}/finalize", current)
    assert api.call("GET", path).code == 404


def test_secrets_take_plain_text_and_keep_it_encoded(api: Api, namespace: str) -> None:
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    made = api.create(secrets, {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    assert (made["type"], made["data"]) == ("Opaque", {"a": "Yg=="})
    assert "stringData" not in made


def test_a_lease_needs_a_revision_and_may_be_made_by_put(api: Api, namespace: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}}
    assert api.call("PUT", f"{leases}/l", lease).code == 201
    assert api.call("PUT", f"{leases}/l", lease).code == 422
    current = api.get(f"{leases}/l")
    current["spec"]["renewTime"] = "2026-01-02T03:04:05.000006Z"
    assert api.update(f"{leases}/l", current)["spec"]["renewTime"] == "2026-01-02T03:04:05.000006Z"


def test_events_have_two_faces(api: Api, namespace: str) -> None:
    event = {
        "metadata": {"name": "e", "namespace": namespace}, "reason": "Pulled", "message": "hello", "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace}, "source": {"component": "kubelet"},
    }  # fmt: skip
    api.create(f"/api/v1/namespaces/{namespace}/events", event)
    seen = api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/e")
    assert (seen["apiVersion"], seen["note"], seen["regarding"]["name"]) == ("events.k8s.io/v1", "hello", "p")
    assert seen["deprecatedSource"] == {"component": "kubelet"}
    core = f"/api/v1/namespaces/{namespace}/events"
    assert len(api.get(core, fieldSelector="involvedObject.name=p,reason=Pulled")["items"]) == 1
    assert api.get(core, fieldSelector="involvedObject.name=other")["items"] == []


def test_a_service_gets_an_address_of_its_own_unless_headless(api: Api, namespace: str) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"

    def make(name: str, **spec: Any) -> Json:
        return api.create(services, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}})["spec"]

    first, second = make("a"), make("b")
    assert first["clusterIP"].startswith("10.96.")
    assert first["clusterIPs"] == [first["clusterIP"]] != second["clusterIPs"]
    assert first["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (first["type"], first["sessionAffinity"], first["ipFamilies"]) == ("ClusterIP", "None", ["IPv4"])
    assert make("c", clusterIP="None")["clusterIP"] == "None"
    assert 30000 <= make("d", type="NodePort")["ports"][0]["nodePort"] <= 32767
    again = {"metadata": {"name": "e"}, "spec": {"ports": [{"port": 80}], "clusterIP": first["clusterIP"]}}
    assert api.call("POST", services, again).code == 422
    assert api.merge(f"{services}/a", {"spec": {"selector": {"x": "y"}}})["spec"]["clusterIP"] == first["clusterIP"]


def test_zeros_that_mean_nothing_are_not_kept(api: Api, namespace: str) -> None:
    container = {"name": "c", "image": "i:1", "env": [{"name": "A", "value": ""}], "command": [], "stdin": False}
    spec = {"schedulerName": "nobody", "containers": [container], "hostNetwork": False, "automountServiceAccountToken": False,
            "nodeSelector": {}, "terminationGracePeriodSeconds": 0}  # fmt: skip
    body = {"metadata": {"name": "p", "labels": {}, "annotations": {}}, "spec": spec}
    made = api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    assert {"labels", "annotations"}.isdisjoint(made["metadata"])
    assert {"hostNetwork", "nodeSelector"}.isdisjoint(made["spec"])
    assert made["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["terminationGracePeriodSeconds"] == 0
    assert made["spec"]["containers"][0]["env"] == [{"name": "A"}]
    assert {"command", "stdin"}.isdisjoint(made["spec"]["containers"][0])


def test_an_address_is_named_as_it_is_written(api: Api) -> None:
    addresses = "/apis/networking.k8s.io/v1/ipaddresses"
    parent = {"parentRef": {"group": "example.com", "resource": "things", "name": "one"}}
    api.create(addresses, {"metadata": {"name": "fe80::42:1dff:fe84:f9e2"}, "spec": parent})
    api.delete(f"{addresses}/fe80::42:1dff:fe84:f9e2")
    for name in ("fe80:0::1", "10.0.0.256", "name"):
        assert api.call("POST", addresses, {"metadata": {"name": name}, "spec": parent}).code == 422, name


def test_the_addresses_of_services_have_their_range(api: Api) -> None:
    assert api.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes")["spec"]["cidrs"]


def test_a_status_that_nobody_has_written_can_be_patched(api: Api, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    api.create(path, {"metadata": {"name": "r"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
    assert isinstance(api.get(f"{path}/r")["status"], dict)
    patched = api.call("PATCH", f"{path}/r/status", [{"op": "add", "path": "/status/observedGeneration", "value": 1}],
                       media="application/json-patch+json")  # fmt: skip
    assert (patched.code, patched.json["status"]["observedGeneration"]) == (200, 1)


def test_ownership_is_written_with_the_item_itself_first(api: Api, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    text = api.apply(f"/api/v1/namespaces/{namespace}/services/s", body, "me").body.decode()
    assert '"k:{\\"port\\":80,\\"protocol\\":\\"TCP\\"}":{".":{},"f:port":{}}' in text.replace(" ", "")
