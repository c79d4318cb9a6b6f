"""CustomResourceDefinitions, with Volcano's own as the example."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kit.control_plane import Api, Json

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MANIFESTS = sorted(Path(__file__).parents[3].glob("deploy/manifests/crds/*.yaml"))


def wait_until_served(api: Api, name: str) -> None:
    """The real server needs a moment; ours is ready when the create returns."""
    group = name.partition(".")[2]
    for _ in range(600):
        conditions = api.get(f"{CRDS}/{name}").get("status", {}).get("conditions") or []  # null at first
        if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            version = api.get(f"{CRDS}/{name}")["spec"]["versions"][0]["name"]
            if api.call("GET", f"/apis/{group}/{version}/{name.partition('.')[0]}").code == 200:
                return
        threading.Event().wait(0.1)
    raise TimeoutError(name)


@pytest.fixture(scope="module")
def volcano(api: Api) -> Iterator[None]:
    names = []
    for path in MANIFESTS:
        value = yaml.safe_load(path.read_text())
        names.append(value["metadata"]["name"])
        answer = api.call("POST", CRDS, value, fieldValidation="Strict")
        assert answer.code == 201, (path.name, answer.body)
        assert "warning" not in answer.headers, answer.headers
    for name in names:
        wait_until_served(api, name)
    yield
    for name in names:
        api.call("DELETE", f"{CRDS}/{name}")


QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
pytestmark = pytest.mark.usefixtures("volcano")


def queue(name: str, **spec: object) -> Json:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def test_a_queue_gets_its_defaults_and_loses_what_is_unknown(api: Api) -> None:
    made = api.create(QUEUES, queue("q1", capability={"cpu": 4}, nonsense=1), fieldValidation="Ignore")
    assert made["spec"] == {"weight": 1, "dequeueStrategy": "traverse", "capability": {"cpu": 4}}
    assert made["metadata"]["generation"] == 1
    strict = api.call("POST", QUEUES, queue("q2", nonsense=1), fieldValidation="Strict")
    assert (strict.code, strict.json["reason"]) == (400, "BadRequest")
    assert 'unknown field "spec.nonsense"' in strict.json["message"]
    api.delete(f"{QUEUES}/q1")


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        ({"weight": 0}, "spec.weight", "should be greater than or equal to 1"),
        ({"weight": 65536}, "spec.weight", "should be less than or equal to 65535"),
        ({"weight": "many"}, "spec.weight", 'must be of type integer: "string"'),
        ({"dequeueStrategy": "lifo"}, "spec.dequeueStrategy", 'supported values: "fifo", "traverse"'),
        ({"capability": {"cpu": "many"}}, "spec.capability.cpu", "should match"),
        ({"capability": {"cpu": True}}, "spec.capability.cpu", "must be of type"),
        ({"affinity": []}, "spec.affinity", 'must be of type object: "array"'),
    ],
)
def test_a_queue_is_held_to_its_schema(api: Api, spec: Json, field: str, text: str) -> None:
    answer = api.call("POST", QUEUES, queue("bad", **spec))
    assert (answer.code, answer.json["reason"]) == (422, "Invalid"), answer.body
    causes = {cause["field"]: cause["message"] for cause in answer.json["details"]["causes"]}
    assert text in causes[field]


def test_required_fields_of_a_command(api: Api, namespace: str) -> None:
    commands = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands"
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j"}
    value = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": "j-abort-"},
        "target": target,
    }
    answer = api.call("POST", commands, value)
    assert answer.code == 422
    assert answer.json["details"]["causes"][0]["field"] == "target.uid"
    value["target"]["uid"] = "u"
    assert api.create(commands, value)["metadata"]["name"].startswith("j-abort-")


def test_the_status_subresource_is_a_wall_in_both_directions(api: Api) -> None:
    made = api.create(QUEUES, {**queue("q3"), "status": {"state": "Open"}})
    assert "status" not in made
    seen = api.merge(f"{QUEUES}/q3/status", {"spec": {"weight": 9}, "status": {"state": "Closed"}})
    assert (seen["spec"]["weight"], seen["status"]) == (1, {"state": "Closed"})
    assert seen["metadata"]["generation"] == 1
    later = api.merge(f"{QUEUES}/q3", {"spec": {"weight": 9}, "status": {"state": "Open"}})
    assert (later["spec"]["weight"], later["status"], later["metadata"]["generation"]) == (9, {"state": "Closed"}, 2)
    api.delete(f"{QUEUES}/q3")


# by Volcano's scheduler, whose informers never come to rest while one is missing (Volcano pkg/scheduler/cache, volcano.sh/apis
# batch/v1alpha1)
WAITED_FOR = {
    "/apis/scheduling.volcano.sh/v1beta1/podgroups": None, QUEUES: None, "/apis/topology.volcano.sh/v1alpha1/hypernodes": None,
    "/apis/nodeinfo.volcano.sh/v1alpha1/numatopologies": {"kind": "Numatopology", "spec": {
        "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "best-effort"}, "resReserved": {"cpu": "0"},
        "numares": {"cpu": {"allocatable": "0-7", "capacity": 8}},
        "cpuDetail": {"0": {"numa": 0, "socket": 0, "core": 0}, "1": {"numa": 1, "socket": 1, "core": 1}}}},
    "/apis/shard.volcano.sh/v1alpha1/nodeshards": {"kind": "NodeShard", "spec": {"nodesDesired": ["n1"]}},
    "/apis/config.volcano.sh/v1alpha1/namespaces/default/colocationconfigurations": {
        "kind": "ColocationConfiguration", "spec": {"memoryQos": {"highRatio": 80, "lowRatio": 0, "minRatio": 0},
                                                    "selector": {"matchLabels": {"a": "b"}}}},
}  # fmt: skip


@pytest.mark.parametrize("path", WAITED_FOR)
def test_volcanos_own_scheduler_finds_every_kind_that_it_waits_for_and_its_objects_keep_all_their_fields(
    api: Api, path: str
) -> None:
    assert api.call("GET", path).code == 200
    if reported := WAITED_FOR[path]:
        kind, version = reported["kind"], path.removeprefix("/apis/").partition("/v1alpha1")[0] + "/v1alpha1"
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": "n1"}, "spec": reported["spec"]}
        answer = api.call("POST", path, body, fieldValidation="Strict")
        assert answer.code == 201, answer.body
        assert answer.json["spec"] == reported["spec"]
        api.delete(f"{path}/n1")


def test_a_pod_group_has_no_status_subresource(api: Api, namespace: str) -> None:
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"
    value = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"},
             "spec": {"minMember": 2}, "status": {"phase": "Pending"}}  # fmt: skip
    made = api.create(groups, value)
    assert (made["spec"]["queue"], made["status"]["phase"]) == ("default", "Pending")
    assert api.call("GET", f"{groups}/g/status").code == 404


def test_state_is_written_by_server_side_apply(api: Api) -> None:
    api.create(QUEUES, queue("q4"))
    status = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "q4"},
        "status": {"state": "Open"},
    }
    answer = api.apply(f"{QUEUES}/q4/status", status, "controller", force=True)
    assert answer.json["status"] == {"state": "Open"}
    api.delete(f"{QUEUES}/q4")


def test_an_update_of_a_custom_object_needs_a_revision(api: Api) -> None:
    api.create(QUEUES, queue("q5"))
    answer = api.call("PUT", f"{QUEUES}/q5", queue("q5", weight=2))
    assert (answer.code, answer.json["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")
    strategic = api.call("PATCH", f"{QUEUES}/q5", {}, media="application/strategic-merge-patch+json")
    assert strategic.code == 415
    api.delete(f"{QUEUES}/q5")


def test_printer_columns_make_the_table(api: Api, namespace: str) -> None:
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"
    api.create(groups, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"},
                        "spec": {"minMember": 2}, "status": {"phase": "Inqueue"}})  # fmt: skip
    table = api.call("GET", groups, accept="application/json;as=Table;v=v1;g=meta.k8s.io").json
    assert [c["name"] for c in table["columnDefinitions"]] == [
        "Name",
        "STATUS",
        "minMember",
        "RUNNINGS",
        "AGE",
        "QUEUE",
    ]
    assert [c["priority"] for c in table["columnDefinitions"]] == [0, 0, 0, 0, 0, 1]
    cells = table["rows"][0]["cells"]
    assert (cells[:4], cells[5]) == (["g", "Inqueue", 2, None], "default")


def test_definitions_have_a_table(api: Api) -> None:
    table = api.call("GET", CRDS, accept="application/json;as=Table;v=v1;g=meta.k8s.io").json
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Created At"]
    assert "queues.scheduling.volcano.sh" in {row["cells"][0] for row in table["rows"]}


def test_custom_kinds_are_discovered(api: Api) -> None:
    found = {r["name"]: r for r in api.get("/apis/scheduling.volcano.sh/v1beta1")["resources"]}
    assert found["queues"]["shortNames"] == ["q", "queue-v1beta1"]
    assert found["queues"]["namespaced"] is False
    assert {"queues/status", "podgroups"} <= found.keys()
    assert "podgroups/status" not in found


def test_a_definition_that_is_wrong_is_refused(api: Api) -> None:
    value = yaml.safe_load(MANIFESTS[0].read_text())
    value["metadata"]["name"] = "other.example.com"
    answer = api.call("POST", CRDS, value)
    assert (answer.code, answer.json["details"]["causes"][0]["field"]) == (422, "metadata.name")


def test_a_definition_takes_its_objects_along(api: Api) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"plural": "toys", "kind": "Toy"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    api.create(CRDS, {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                      "metadata": {"name": "toys.example.com"},
                      "spec": {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}})  # fmt: skip
    wait_until_served(api, "toys.example.com")
    toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "t"}, "spec": {"any": {"thing": [1]}}}
    assert api.create("/apis/example.com/v1/toys", toy)["spec"] == {"any": {"thing": [1]}}
    api.delete(f"{CRDS}/toys.example.com")
    for _ in range(600):
        if api.call("GET", "/apis/example.com/v1/toys/t").code == 404:
            break
        threading.Event().wait(0.1)
    assert api.call("GET", "/apis/example.com/v1/toys/t").code == 404
