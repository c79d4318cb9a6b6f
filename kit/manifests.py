"""The manifests that a cluster applies, as objects, and the API resource of each."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from pumice.ports.cluster import Json, Resource
from pumice.wire.yaml_text import safe_load_all

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
