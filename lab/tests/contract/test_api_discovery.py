"""The documents that kubectl reads first: discovery, OpenAPI, version, health, Tables, reviews."""

from __future__ import annotations

import pytest
import yaml
from kit.control_plane import Api, Json

from pumice_lab.apiserver.schema.protobuf import message_fields

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_it_says_that_it_is_well(api: Api, path: str) -> None:
    assert api.call("GET", path).body == b"ok"


def test_it_says_its_version(api: Api) -> None:
    version = api.get("/version")
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")


def test_a_token_that_is_not_known_is_unauthorized(api: Api) -> None:
    stranger = Api(api.url, "wrong", api.ca, api.kind)
    answer = stranger.call("GET", "/api/v1/pods")
    assert (answer.code, answer.json["reason"]) == (401, "Unauthorized")


def test_groups_and_resources_are_listed_one_by_one(api: Api) -> None:
    assert api.get("/api")["versions"] == ["v1"]
    groups = {g["name"]: g for g in api.get("/apis")["groups"]}
    assert {"apps", "batch", "events.k8s.io", "coordination.k8s.io", "apiextensions.k8s.io", "policy"} <= groups.keys()
    assert groups["apps"]["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
    core = {r["name"]: r for r in api.get("/api/v1")["resources"]}
    pods = core["pods"]
    assert (pods["kind"], pods["shortNames"], pods["categories"], pods["namespaced"]) == ("Pod", ["po"], ["all"], True)
    assert set(pods["verbs"]) == {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert {"pods/binding", "pods/log", "pods/exec", "pods/eviction", "pods/status"} <= core.keys()
    assert core["pods/eviction"]["group"] == "policy"


def test_aggregated_discovery_says_the_same_in_one_answer(api: Api) -> None:
    answer = api.call("GET", "/apis", accept=AGGREGATED)
    assert answer.json["kind"] == "APIGroupDiscoveryList"
    assert "as=APIGroupDiscoveryList" in answer.headers["content-type"]
    apps = next(item for item in answer.json["items"] if item["metadata"]["name"] == "apps")
    deployment = next(r for r in apps["versions"][0]["resources"] if r["resource"] == "deployments")
    assert (deployment["responseKind"]["kind"], deployment["scope"], deployment["shortNames"]) == (
        "Deployment",
        "Namespaced",
        ["deploy"],
    )
    assert {s["subresource"] for s in deployment["subresources"]} == {"scale", "status"}


def test_short_names_are_those_that_users_type(api: Api) -> None:
    core = {r["name"]: r.get("shortNames", []) for r in api.get("/api/v1")["resources"]}
    wanted = {"configmaps": ["cm"], "nodes": ["no"], "services": ["svc"], "namespaces": ["ns"], "events": ["ev"],
              "persistentvolumeclaims": ["pvc"], "serviceaccounts": ["sa"], "secrets": []}  # fmt: skip
    assert {name: core[name] for name in wanted} == wanted


def test_a_path_that_is_not_served_is_not_found(api: Api) -> None:
    for path in ("/apis/nowhere.io/v1/things", "/api/v1/nothings", "/api/v2/pods"):
        assert api.call("GET", path).code == 404
    assert api.call("POST", "/api/v1/namespaces/default/pods/x/log", {}).code in (404, 405)


def test_open_api_tells_how_lists_merge(api: Api) -> None:
    paths = api.get("/openapi/v3")["paths"]
    assert {"api/v1", "apis/apps/v1"} <= paths.keys()
    document = api.get(paths["api/v1"]["serverRelativeURL"])
    schemas = document["components"]["schemas"]
    pod = schemas["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-list-type"] == "map"
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    assert "fieldValidation" in {p["name"] for p in patch["parameters"] if "name" in p}


def test_an_admin_may_do_everything(api: Api) -> None:
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
              "spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}  # fmt: skip
    assert api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"] is True
    self_review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", self_review)["status"]["userInfo"]
    assert "system:masters" in user["groups"]


def table(api: Api, path: str) -> tuple[list[str], list[list[object]]]:
    value = api.call("GET", path, accept=TABLE).json
    assert value["kind"] == "Table"
    wide = [c["name"] for c in value["columnDefinitions"] if c["priority"]]
    assert all(isinstance(c["name"], str) for c in value["columnDefinitions"])
    return [c["name"] for c in value["columnDefinitions"] if c["name"] not in wide], [
        row["cells"] for row in value["rows"]
    ]


def test_a_table_of_pods(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, {"metadata": {"name": "p"}, "spec": {"schedulerName": "nobody", "containers": [
        {"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1"}]}})  # fmt: skip
    columns, rows = table(api, pods)
    assert columns == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert rows[0][:4] == ["p", "0/2", "Pending", "0"]
    statuses = [{"name": "c", "ready": True, "restartCount": 1, "image": "i", "imageID": "", "state": {"running": {}}},
                {"name": "d", "ready": False, "restartCount": 2, "image": "i", "imageID": "",
                 "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]  # fmt: skip
    api.strategic(
        f"{pods}/p/status", {"status": {"phase": "Running", "containerStatuses": statuses, "podIP": "10.0.0.1"}}
    )
    assert table(api, pods)[1][0][:4] == ["p", "1/2", "CrashLoopBackOff", "3"]
    full = api.call("GET", f"{pods}/p", accept=TABLE).json
    assert [c["name"] for c in full["columnDefinitions"]][5:] == ["IP", "Node", "Nominated Node", "Readiness Gates"]
    assert full["rows"][0]["cells"][5:] == ["10.0.0.1", "<none>", "<none>", "<none>"]
    assert full["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = api.call("GET", f"{pods}/p", accept=TABLE, includeObject="Object").json
    assert whole["rows"][0]["object"]["kind"] == "Pod"


def test_a_watch_of_tables_sends_the_columns_once(api: Api, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    api.create(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    with api.watch(maps, accept=TABLE) as events:
        first = next(events)["object"]
        api.create(maps, {"metadata": {"name": "b"}})
        second = next(events)["object"]
    assert [c["name"] for c in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert first["rows"][0]["cells"][:2] == ["a", 1]
    assert second["columnDefinitions"] is None
    assert second["rows"][0]["cells"][:2] == ["b", 0]


COLUMNS = {
    "/api/v1/nodes": ["Name", "Status", "Roles", "Age", "Version"],
    "/api/v1/namespaces": ["Name", "Status", "Age"],
    "/api/v1/services": ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"],
    "/api/v1/secrets": ["Name", "Type", "Data", "Age"],
    "/api/v1/serviceaccounts": ["Name", "Age"],
    "/api/v1/persistentvolumeclaims": ["Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass",
                                       "VolumeAttributesClass", "Age"],
    "/api/v1/persistentvolumes": ["Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass",
                                  "VolumeAttributesClass", "Reason", "Age"],
    "/apis/apps/v1/deployments": ["Name", "Ready", "Up-to-date", "Available", "Age"],
    "/apis/apps/v1/replicasets": ["Name", "Desired", "Current", "Ready", "Age"],
    "/apis/apps/v1/daemonsets": ["Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age"],
    "/apis/apps/v1/statefulsets": ["Name", "Ready", "Age"],
    "/apis/apps/v1/controllerrevisions": ["Name", "Controller", "Revision", "Age"],
    "/apis/batch/v1/jobs": ["Name", "Status", "Completions", "Duration", "Age"],
    "/apis/batch/v1/cronjobs": ["Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age"],
    "/apis/scheduling.k8s.io/v1/priorityclasses": ["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"],
    "/apis/coordination.k8s.io/v1/leases": ["Name", "Holder", "Age"],
    "/apis/policy/v1/poddisruptionbudgets": ["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"],
    "/apis/storage.k8s.io/v1/storageclasses": ["Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode",
                                              "AllowVolumeExpansion", "Age"],
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": ["Name", "Created At"],
    "/apis/rbac.authorization.k8s.io/v1/rolebindings": ["Name", "Role", "Age"],
    "/apis/node.k8s.io/v1/runtimeclasses": ["Name", "Handler", "Age"],
    "/apis/networking.k8s.io/v1/networkpolicies": ["Name", "Pod-Selector", "Age"],
    "/apis/networking.k8s.io/v1/ingresses": ["Name", "Class", "Hosts", "Address", "Ports", "Age"],
    "/apis/networking.k8s.io/v1/ingressclasses": ["Name", "Controller", "Parameters", "Age"],
    "/apis/discovery.k8s.io/v1/endpointslices": ["Name", "AddressType", "Ports", "Endpoints", "Age"],
    "/api/v1/resourcequotas": ["Name", "Request", "Limit", "Age"],
    "/apis/autoscaling/v2/horizontalpodautoscalers": ["Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"],
    "/apis/storage.k8s.io/v1/csinodes": ["Name", "Drivers", "Age"],
    "/apis/storage.k8s.io/v1/csidrivers": ["Name", "AttachRequired", "PodInfoOnMount", "StorageCapacity", "TokenRequests",
                                           "RequiresRepublish", "Modes", "Age"],
}  # fmt: skip


@pytest.mark.parametrize("path", COLUMNS)
def test_the_columns_are_those_that_users_know(api: Api, path: str) -> None:
    assert table(api, path)[0] == COLUMNS[path]


def test_a_table_of_events(api: Api, namespace: str) -> None:
    events = f"/api/v1/namespaces/{namespace}/events"
    event: Json = {
        "metadata": {"name": "e"}, "reason": "FailedScheduling", "message": "0/2 nodes", "type": "Warning", "count": 3,
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace}, "source": {"component": "volcano"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    api.create(events, event)
    columns, rows = table(api, events)
    assert columns == ["Last Seen", "Type", "Reason", "Object", "Message"]
    assert rows[0][1:4] == ["Warning", "FailedScheduling", "pod/p"]
    assert rows[0][6] == "0/2 nodes"


def test_probes_find_the_checks_that_they_ask_for(api: Api) -> None:
    reported = api.call("GET", "/readyz?verbose", accept="text/plain").body.decode().splitlines()
    for check in ("ping", "log", "etcd", "informer-sync", "poststarthook/crd-informer-synced", "autoregister-completion"):
        assert f"[+]{check} ok" in reported
    page = api.call("GET", "/metrics/slis", accept="text/plain").body.decode()
    assert 'kubernetes_healthcheck{name="ping",type="readyz"} 1' in page.splitlines()


def test_a_review_is_no_table(api: Api) -> None:
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    path, table = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/json;as=Table;v=v1;g=meta.k8s.io"
    assert api.call("POST", path, review, accept=table).code == 406
    assert api.call("POST", path, review, accept=f"{table},application/json").code == 201


def test_every_served_version_of_a_group_has_an_api_service(api: Api) -> None:
    services = "/apis/apiregistration.k8s.io/v1/apiservices"
    found = {item["metadata"]["name"] for item in api.get(services)["items"]}
    assert {"v1.", "v1.apps", "v1.apiextensions.k8s.io"} <= found
    one = api.get(f"{services}/v1.apps")
    assert (one["kind"], one["spec"]["group"], one["status"]["conditions"][0]["status"]) == ("APIService", "apps", "True")
    assert api.call("GET", f"{services}/v1.nonsense").code == 404


def test_the_fields_of_every_object_are_explained(api: Api) -> None:
    schemas = api.get("/openapi/v3/api/v1")["components"]["schemas"]
    metadata = schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]
    assert all(metadata[field]["description"] for field in ("name", "labels", "creationTimestamp"))


def fields(data: bytes) -> dict[int, list[bytes]]:
    """A protobuf message: its strings and messages by number."""
    found: dict[int, list[bytes]] = {}
    for number, value in message_fields(memoryview(data)):
        if not isinstance(value, int):
            found.setdefault(number, []).append(bytes(value))
    return found


def test_the_second_openapi_document_is_told_in_protobuf_as_in_json(api: Api) -> None:
    """client-go reads no other form: kubectl's validation of older versions, and programs that look types up."""
    media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    answer = api.call("GET", "/openapi/v2", accept=f"{media},application/json;q=0.8")
    assert (answer.code, answer.headers["content-type"].replace("@", ".")) == (200, media)
    document = fields(answer.body)
    assert document[1] == [b"2.0"]
    named = {each[1][0].decode(): fields(each[2][0]) for raw in fields(document[9][0])[1] for each in [fields(raw)]}
    reported = api.get("/openapi/v2")["definitions"]
    assert named.keys() == reported.keys()
    pod = named["io.k8s.api.core.v1.Pod"]
    properties = {each[1][0].decode(): fields(each[2][0]) for raw in fields(pod[25][0])[1] for each in [fields(raw)]}
    assert properties.keys() == reported["io.k8s.api.core.v1.Pod"]["properties"].keys()
    assert properties["spec"][1] == [b"#/definitions/io.k8s.api.core.v1.PodSpec"]
    assert b"string" in properties["kind"][22][0]
    extensions = {each[1][0].decode(): fields(each[2][0])[2][0].decode() for raw in pod[31] for each in [fields(raw)]}
    assert yaml.safe_load(extensions["x-kubernetes-group-version-kind"]) == [{"group": "", "kind": "Pod", "version": "v1"}]
