"""The manifests that a cluster applies, as objects, and the API resource of each."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from kit.control_plane import Api
from pumice.ports.cluster import Json, Resource
from pumice.wire.document import safe_load_all

CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PriorityClass", "RuntimeClass",
                "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}  # fmt: skip


@cache
def manifest(name: str) -> list[Json]:
    """The objects of a shipped manifest."""
    return [obj for obj in safe_load_all((files("pumice") / "manifests" / name).read_text("utf-8")) if obj]


def resource_of(obj: Json) -> Resource:
    group, _, version = obj["apiVersion"].rpartition("/")
    plural = re.sub("y$", "ie", re.sub("ss$", "sse", obj["kind"].lower())) + "s"
    return Resource(group, version, plural, obj["kind"] not in CLUSTER_WIDE)


# -- The service accounts of our manifests on an API server, so that a daemon under test may do what its role


PLACES = {"ServiceAccount": "serviceaccounts", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
          "Role": "roles", "RoleBinding": "rolebindings"}  # fmt: skip


def token_of(api: Api, name: str, account: str) -> str:
    """A token of the service account that the manifest ``name`` gives a daemon, with the roles bound to it."""
    for obj in manifest(name):
        if obj["kind"] in PLACES:
            _put(api, f"/{'api' if obj['apiVersion'] == 'v1' else 'apis'}/{obj['apiVersion']}", obj)
    (where,) = [_path("/api/v1", obj) for obj in manifest(name)
                if (obj["kind"], obj["metadata"]["name"]) == ("ServiceAccount", account)]  # fmt: skip
    return str(api.create(f"{where}/{account}/token", {"spec": {}})["status"]["token"])


def _put(api: Api, root: str, obj: dict[str, Any]) -> None:
    namespace = obj["metadata"].get("namespace")
    if namespace:
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    answer = api.call("POST", _path(root, obj), obj)
    assert answer.code in (201, 409), answer.body


def _path(root: str, obj: dict[str, Any]) -> str:
    namespace = obj["metadata"].get("namespace")
    return f"{root}{f'/namespaces/{namespace}' if namespace else ''}/{PLACES[obj['kind']]}"
