"""Authorization of the scheduler's pod page, reviewed by the API server with the scheduler's role alone."""

from __future__ import annotations

import asyncio
import ssl

from kit.control_plane import Api
from kit.manifests import token_of

from pumice.adapters.kube import Access, KubeClient
from pumice.apps.service.reviewed import Reviewed
from tests.contract.test_reserved_annotations import tenant


def test_who_may_get_the_pod_may_ask_about_it_and_nobody_else(api: Api, namespace: str) -> None:
    friend = tenant(api, namespace, "friend")
    scheduler = token_of(api, "volcano.yml", "volcano-scheduler")

    async def ask(token: str, where: str) -> int:
        access = Access(api.url, ssl=ssl.create_default_context(cafile=str(api.ca)), token=lambda: scheduler)
        async with KubeClient(access, connections=2, user_agent="contract") as kube:
            denied = await Reviewed(kube).may_get_pod(f"Bearer {token}", where, "some-pod")
            return denied.status if denied else 200

    requested = [(friend.token, namespace), (friend.token, "kube-system"), ("no.such.token", namespace)]
    assert [asyncio.run(ask(token, where)) for token, where in requested] == [200, 403, 401]
