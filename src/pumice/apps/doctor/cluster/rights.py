"""May the daemons' accounts do what their code does? The API server is asked, right by right, as it asks itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pumice.apps.doctor.cluster import shipped
from pumice.apps.doctor.cluster.facts import ClusterFacts, Workload
from pumice.apps.doctor.cluster.shipped import Daemon, Right
from pumice.ports.cluster import ApiError, Cluster, Json, Resource
from pumice.wire.kubernetes import AUTHENTICATION, AUTHORIZATION
from pumice.wire.programs import Maker

HIS: Final = Resource(AUTHORIZATION, "v1", "subjectaccessreviews", namespaced=False)
MINE: Final = Resource(AUTHORIZATION, "v1", "selfsubjectaccessreviews", namespaced=False)
ME: Final = Resource(AUTHENTICATION, "v1", "selfsubjectreviews", namespaced=False)
AT_ONCE: Final = 16


async def review(cluster: Cluster, facts: ClusterFacts) -> ClusterFacts:
    """With what is denied to each account. Who may ask for nobody else still asks for himself: inside a daemon's pod."""
    questions = sorted({(one.namespace, one.account, right) for one in facts.workloads for right in needed(one)})
    me = await _me(cluster)
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(space: str, account: str, right: Right) -> tuple[str, Right, bool | ApiError]:
        async with slots:
            try:
                return f"{space}/{account}", right, await _allowed(cluster, f"system:serviceaccount:{space}:{account}", right, me)
            except ApiError as error:
                return f"{space}/{account}", right, error

    denied: dict[str, list[str]] = {}
    unreviewed = ""
    for account, right, allowed in await asyncio.gather(*(ask(*question) for question in questions)):
        if isinstance(allowed, ApiError):
            unreviewed = unreviewed or allowed.message
        elif not allowed:
            denied.setdefault(account, []).append(str(right))
    return replace(facts, denied=denied, unreviewed=unreviewed)


def needed(one: Workload) -> Iterator[Right]:
    """What our manifest gives the daemon, in the namespace in which it runs."""
    daemon = _shipped(one)
    if daemon is not None:
        for right in daemon.rights:
            yield replace(right, namespace=one.namespace) if right.namespace == daemon.namespace else right


def _shipped(one: Workload) -> Daemon | None:
    if one.program.maker is not Maker.OURS:
        return None
    alike = [daemon for daemon in shipped.daemons() if daemon.program.word == one.program.word]
    return next((daemon for daemon in alike if daemon.account == one.account), next(iter(alike), None))


async def _me(cluster: Cluster) -> str:
    try:
        answer = await cluster.create(ME, {"apiVersion": f"{AUTHENTICATION}/v1", "kind": "SelfSubjectReview"})
    except ApiError:
        return ""  # Kubernetes before 1.28 does not say
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username", ""))


async def _allowed(cluster: Cluster, user: str, right: Right, me: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    asked = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource, "name": right.name,
             "namespace": right.namespace}  # fmt: skip
    body: Json = {"apiVersion": f"{AUTHORIZATION}/v1", "spec": {"resourceAttributes": {k: v for k, v in asked.items() if v}}}
    if user == me:
        answer = await cluster.create(MINE, body | {"kind": "SelfSubjectAccessReview"})
    else:
        _, _, space, _ = user.split(":")
        body["spec"] |= {"user": user, "groups": ["system:serviceaccounts", f"system:serviceaccounts:{space}",
                                                  "system:authenticated"]}  # fmt: skip
        answer = await cluster.create(HIS, body | {"kind": "SubjectAccessReview"})
    return bool((answer.get("status") or {}).get("allowed"))
