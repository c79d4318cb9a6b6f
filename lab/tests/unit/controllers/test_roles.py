"""Cluster roles that are put together of others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from lab.tests.unit.controllers.conftest import Cluster

from pumice.ports.cluster import Json
from pumice.wire.kinds import CLUSTER_ROLES

With = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]
QUEUES = {"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}


async def rules(cluster: Cluster, name: str) -> list[Json]:
    found: list[Json] = (await cluster.kube.get(CLUSTER_ROLES, name)).get("rules") or []
    return found


def test_a_role_has_what_roles_with_its_label_have_and_passes_it_on(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.settle()
        before = {name: await rules(cluster, name) for name in ("view", "edit", "admin")}
        assert before["view"]
        labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
        await cluster.kube.create(CLUSTER_ROLES, {"metadata": {"name": "things", "labels": labels}, "rules": [QUEUES]})
        await cluster.settle()
        for name, had in before.items():
            found = await rules(cluster, name)
            assert QUEUES in found
            assert all(rule in found for rule in had)
        await cluster.kube.delete(CLUSTER_ROLES, "things")
        await cluster.settle()
        assert [QUEUES in await rules(cluster, name) for name in before] == [False] * 3

    with_controllers(work)
