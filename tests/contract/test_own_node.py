"""A node's plugin writes of its own node and its pods alone, asked of the API server with a token that a pod of that node has."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.control_plane import Answer, Api
from kit.manifests import manifest, token_of

POLICIES = "/apis/admissionregistration.k8s.io/v1"
PLUGIN, MANIFEST = "volcano-device-plugin", "volcano-vgpu-device-plugin.yml"
TOKEN = "/api/v1/namespaces/kube-system/serviceaccounts/{}/token"


def path(obj: dict[str, Any]) -> str:
    plural = obj["kind"].lower().replace("policy", "policies") if obj["kind"].endswith("Policy") else f"{obj['kind'].lower()}s"
    return f"{POLICIES}/{plural}"


@pytest.fixture
def nodes(api: Api, namespace: str) -> Iterator[tuple[str, str]]:
    """Two nodes, each with a pod of its name in the namespace and one of its plugin; the policy is in force."""
    token_of(api, MANIFEST, PLUGIN)  # the account and its rights
    here, there = f"{namespace}-a", f"{namespace}-b"
    made = []
    try:
        for name in (here, there):
            api.create("/api/v1/nodes", {"metadata": {"name": name}})
            made.append(f"/api/v1/nodes/{name}")
            for where, account in ((namespace, "default"), ("kube-system", PLUGIN)):
                spec = {"nodeName": name, "serviceAccountName": account, "automountServiceAccountToken": False,
                        "containers": [{"name": "c", "image": "x"}]}  # fmt: skip
                api.create(f"/api/v1/namespaces/{where}/pods", {"metadata": {"name": name}, "spec": spec})
                made.append(f"/api/v1/namespaces/{where}/pods/{name}")
        for obj in manifest("own-node.yml"):
            api.create(path(obj), obj)
            made.append(f"{path(obj)}/{obj['metadata']['name']}")
        mine = plugin_of(api, here)
        until_refused(lambda: note(mine, f"/api/v1/nodes/{there}"))
        yield here, there
    finally:
        for what in reversed(made):
            api.call("DELETE", what, gracePeriodSeconds=0)


def until_refused(ask: Callable[[], Answer]) -> None:
    """Wait until a policy is in force: the API server learns of each by a watch of its own."""
    deadline = time.monotonic() + 60
    while ask().code in (200, 201):
        assert time.monotonic() < deadline, "the policy does not come into force"
        time.sleep(0.2)


def plugin_of(api: Api, pod: str, account: str = PLUGIN) -> Api:
    """The plugin with the token that its pod of that name has."""
    bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod}}
    return replace(api, token=str(api.create(TOKEN.format(account), {"spec": bound})["status"]["token"]))


def note(who: Api, what: str) -> Answer:
    return who.call("PATCH", what, {"metadata": {"annotations": {"x": str(time.monotonic_ns())}}},
                    media="application/merge-patch+json")  # fmt: skip


def test_the_plugin_of_a_node_writes_of_that_node_and_its_pods_alone(api: Api, namespace: str, nodes: tuple[str, str]) -> None:
    here, there = nodes
    mine = plugin_of(api, here)
    for door in ("", "/status"):
        assert note(mine, f"/api/v1/nodes/{here}{door}").code == 200
        refused = note(mine, f"/api/v1/nodes/{there}{door}")
        assert refused.code == 403
        assert f"the device plugin of node {here} writes of that node and its pods alone, not of {there}".encode() in refused.body
    assert note(mine, f"/api/v1/namespaces/{namespace}/pods/{here}/status").code == 200
    assert note(mine, f"/api/v1/namespaces/{namespace}/pods/{there}/status").code == 403


def test_the_plugin_of_a_node_ends_a_pod_of_it_and_changes_nothing_else_of_what_a_pod_is(
    api: Api, namespace: str, nodes: tuple[str, str]
) -> None:
    here, there = nodes
    mine = plugin_of(api, here)

    def change(pod: str, **what: Any) -> Answer:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        return mine.call("PATCH", path, what, media="application/strategic-merge-patch+json")

    ending = {"metadata": {"annotations": {"why": "not its devices"}}, "spec": {"activeDeadlineSeconds": 1}}
    assert change(here, **ending).code == 200
    assert change(there, **ending).code == 403
    there_already = json.loads(api.call("GET", f"/api/v1/namespaces/{namespace}/pods/{here}").body)["spec"].get("tolerations", [])
    for more in (
        {"spec": {"containers": [{"name": "c", "image": "another"}]}},
        {"spec": {"tolerations": [*there_already, {"key": "more", "operator": "Exists"}]}},
        {"metadata": {"labels": {"app": "another"}}},
        {"metadata": {"finalizers": ["example.com/stays"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "another", "uid": "u"}]}},
    ):
        refused = change(here, **more)
        assert refused.code == 403
        assert b"sets the deadline and the annotations of its pods, and nothing else" in refused.body


def test_a_token_that_names_no_node_writes_of_none_and_everybody_else_is_left_alone(
    api: Api, namespace: str, nodes: tuple[str, str]
) -> None:
    unbound = replace(api, token=token_of(api, MANIFEST, PLUGIN))
    refused = note(unbound, f"/api/v1/nodes/{nodes[0]}")
    assert (refused.code, b"an unnamed node" in refused.body) == (403, True)
    for node in nodes:
        assert note(api, f"/api/v1/nodes/{node}").code == 200
        assert note(api, f"/api/v1/namespaces/{namespace}/pods/{node}").code == 200


def test_the_plugin_of_chips_writes_the_report_of_its_node_and_no_other_config_map(
    api: Api, namespace: str, nodes: tuple[str, str]
) -> None:
    account, (here, there) = "ascend-mindcluster", nodes
    token_of(api, "ascend-mindcluster-plugin.yml", account)  # the account and its rights
    spec = {"nodeName": here, "serviceAccountName": account, "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "x"}]}  # fmt: skip
    pod, reports = f"{here}-chips", "/api/v1/namespaces/kube-system/configmaps"
    api.create("/api/v1/namespaces/kube-system/pods", {"metadata": {"name": pod}, "spec": spec})
    try:
        mine = plugin_of(api, pod, account)
        until_refused(lambda: mine.call("POST", reports, {"metadata": {"name": "coredns"}}, dryRun="All"))
        assert mine.call("POST", reports, {"metadata": {"name": f"mindx-dl-deviceinfo-{here}"}}).code == 201
        assert note(mine, f"{reports}/mindx-dl-deviceinfo-{here}").code == 200
        for name in (f"mindx-dl-deviceinfo-{there}", "coredns"):
            refused = mine.call("POST", reports, {"metadata": {"name": name}})
            assert (refused.code, b"writes the report of that node alone" in refused.body) == (403, True)
        assert note(mine, f"/api/v1/nodes/{there}").code == 403
    finally:
        api.call("DELETE", f"/api/v1/namespaces/kube-system/pods/{pod}", gracePeriodSeconds=0)
        api.call("DELETE", f"{reports}/mindx-dl-deviceinfo-{here}")
