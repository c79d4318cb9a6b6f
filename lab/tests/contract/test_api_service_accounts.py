"""A service account's additions to a pod, where controllers create one in each namespace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.control_plane import KINDS, Api, Json, control_plane, until

PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module", params=KINDS)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with control_plane(request.param, tmp_path_factory.mktemp(request.param), service_accounts=True) as running:
        yield running


@pytest.fixture
def pods(api: Api, namespace: str) -> str:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    for name, more in (("default", {}), ("shy", {"automountServiceAccountToken": False}),
                       ("puller", {"imagePullSecrets": [{"name": "registry"}]})):  # fmt: skip
        api.create(accounts, {"metadata": {"name": name}, **more})
    return f"/api/v1/namespaces/{namespace}/pods"


def spec_of(api: Api, pods: str, spec: Json, **metadata: Json) -> Json:
    containers = [{"name": "c", "image": "i", **spec.pop("container", {})}, {"name": "d", "image": "i"}]
    return api.create(pods, {"metadata": {"name": "p", **metadata}, "spec": {"containers": containers, **spec}})["spec"]


def test_every_container_finds_a_token_the_authority_and_the_namespace(api: Api, pods: str) -> None:
    spec = spec_of(api, pods, {"initContainers": [{"name": "first", "image": "i"}]})
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert volume["projected"] == {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}  # fmt: skip
    mount = {"name": volume["name"], "readOnly": True, "mountPath": PLACE}
    assert [c["volumeMounts"] for c in (*spec["initContainers"], *spec["containers"])] == [[mount]] * 3
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")


@pytest.mark.parametrize(("spec", "mounted"), [
    ({"automountServiceAccountToken": False}, False), ({"serviceAccountName": "shy"}, False),
    ({"serviceAccountName": "shy", "automountServiceAccountToken": True}, True),
])  # fmt: skip
def test_the_pod_says_whether_it_wants_one_and_else_its_account(api: Api, pods: str, spec: Json, mounted: bool) -> None:
    assert ("volumes" in spec_of(api, pods, spec)) is mounted


def test_what_a_container_has_mounted_there_stays(api: Api, pods: str) -> None:
    mount = {"name": "v", "mountPath": PLACE}
    spec = spec_of(api, pods, {"volumes": [{"name": "v", "emptyDir": {}}], "container": {"volumeMounts": [mount]}})
    assert spec["containers"][0]["volumeMounts"] == [mount]
    assert [v["name"][:16] for v in spec["volumes"]] == ["v", "kube-api-access-"]
    assert spec["containers"][1]["volumeMounts"][0]["name"] == spec["volumes"][1]["name"]


def test_a_volume_that_is_named_as_the_servers_own_is_taken(api: Api, pods: str) -> None:
    """As in a pod that was copied with all that was added to it."""
    spec = spec_of(api, pods, {"volumes": [{"name": "kube-api-access-mine", "emptyDir": {}}]})
    assert [v["name"] for v in spec["volumes"]] == ["kube-api-access-mine"]
    assert spec["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-mine"


def test_an_accounts_pull_secrets_are_those_of_a_pod_that_names_none(api: Api, pods: str) -> None:
    assert spec_of(api, pods, {"serviceAccountName": "puller"})["imagePullSecrets"] == [{"name": "registry"}]
    api.delete(f"{pods}/p", gracePeriodSeconds=0)
    own = {"serviceAccountName": "puller", "imagePullSecrets": [{"name": "mine"}]}
    assert spec_of(api, pods, own)["imagePullSecrets"] == [{"name": "mine"}]


def test_an_account_that_is_not_there_is_named(api: Api, pods: str) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"serviceAccountName": "nobody", "containers": [{"name": "c", "image": "i"}]}}
    answer = api.call("POST", pods, body)
    assert (answer.code, answer.json["reason"]) == (403, "Forbidden")
    assert 'serviceaccount "nobody" not found' in answer.json["message"]


def test_a_token_that_is_bound_to_a_pod_tells_of_it_and_ends_with_it(api: Api, pods: str) -> None:
    spec_of(api, pods, {"nodeName": "somewhere"})
    uid = api.get(f"{pods}/p")["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
    account = pods.replace("/pods", "/serviceaccounts/default")
    token = api.create(f"{account}/token", request)["status"]["token"]

    def review() -> Json:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        return api.create("/apis/authentication.k8s.io/v1/tokenreviews", body)["status"]

    extra = review()["user"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [uid]
    assert extra["authentication.kubernetes.io/node-name"] == ["somewhere"]
    api.delete(f"{pods}/p", gracePeriodSeconds=0)
    until(lambda: not review().get("authenticated"))  # kube-apiserver keeps what it found for some seconds


def test_a_token_is_bound_to_no_pod_of_another_account(api: Api, pods: str) -> None:
    """It would tell of that pod's node, by which policies know who a node's own daemons are."""
    spec_of(api, pods, {"serviceAccountName": "shy"})
    spec = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = api.call("POST", pods.replace("/pods", "/serviceaccounts/puller/token"), request)
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")
    assert answer.json["message"] == (
        'cannot bind token for serviceaccount "puller" to pod running with different serviceaccount name.')


def test_a_review_names_of_the_audiences_that_it_asks_for_those_that_the_token_is_meant_for(api: Api, pods: str) -> None:
    account = pods.replace("/pods", "/serviceaccounts/default")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a", "b"]}}
    token = api.create(f"{account}/token", request)["status"]["token"]
    spec = {"token": token, "audiences": ["b", "another"]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    status = api.create("/apis/authentication.k8s.io/v1/tokenreviews", body)["status"]
    assert (status["authenticated"], status["audiences"]) == (True, ["b"])
