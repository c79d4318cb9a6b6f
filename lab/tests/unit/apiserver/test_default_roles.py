"""The roles that a new cluster has let people look, work, or rule their namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lab.tests.unit.apiserver.conftest import InProcess

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
LOOK, WORK, RULE = ("list", "", "pods"), ("create", "apps", "deployments"), ("create", "rbac.authorization.k8s.io", "roles")
LOGS, SHELL, SECRETS = ("get", "", "pods/log"), ("create", "", "pods/exec"), ("get", "", "secrets")
NODES = ("delete", "", "nodes")


@pytest.mark.parametrize(("role", "may"), [
    ("view", {LOOK, LOGS}),
    ("edit", {LOOK, LOGS, WORK, SHELL, SECRETS}),
    ("admin", {LOOK, LOGS, WORK, SHELL, SECRETS, RULE}),
    ("cluster-admin", {LOOK, LOGS, WORK, SHELL, SECRETS, RULE, NODES}),
])  # fmt: skip
def test_a_default_role_allows_what_its_name_says(with_api: Callable[..., Any], role: str, may: set[Any]) -> None:
    async def work(api: InProcess) -> set[Any]:
        await api.create(f"{RBAC}/namespaces/default/rolebindings", {
            "metadata": {"name": "ada"}, "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "ada"}]})  # fmt: skip
        return {act for act in (LOOK, LOGS, WORK, SHELL, SECRETS, RULE, NODES) if await allowed(api, act)}

    assert with_api(work) == may


async def allowed(api: InProcess, act: tuple[str, str, str]) -> bool:
    verb, group, resource = act
    plural, _, subresource = resource.partition("/")
    asked = {"namespace": "default", "verb": verb, "group": group, "resource": plural, "subresource": subresource}
    review = await api.create(REVIEWS, {"spec": {"user": "ada", "resourceAttributes": asked}})
    return bool(review["status"]["allowed"])


def test_rights_are_those_of_the_moment_and_outlive_a_restart(with_api: Callable[..., Any]) -> None:
    async def grant(api: InProcess) -> list[bool]:
        before = await allowed(api, LOOK)
        await api.create(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "look"}, "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]})  # fmt: skip
        await api.create(f"{RBAC}/namespaces/default/rolebindings", {
            "metadata": {"name": "ada"}, "roleRef": {"kind": "Role", "name": "look"},
            "subjects": [{"kind": "User", "name": "ada"}]})  # fmt: skip
        return [before, await allowed(api, LOOK)]

    async def take_back(api: InProcess) -> list[bool]:
        before = await allowed(api, LOOK)
        await api.call("DELETE", f"{RBAC}/namespaces/default/roles/look")
        return [before, await allowed(api, LOOK)]

    assert with_api(grant) == [False, True]
    assert with_api(take_back) == [True, False]
