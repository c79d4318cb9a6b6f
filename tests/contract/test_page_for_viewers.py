"""The page in the cluster before an API server: it reads by its own account's role, and shows each viewer what his role lists."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace

import pytest
from kit.control_plane import Api
from kit.manifests import token_of
from kit.objects import node

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

from kit.web_page import open_for_viewers

from pumice.adapters.kube import Access, KubeClient
from pumice.web import rights
from tests.contract.test_reserved_annotations import put, tenant


def test_two_viewers_of_different_rights_see_what_each_may_list_until_they_may_not(
    api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(rights, "TOKEN_KEPT", 0.2)
    monkeypatch.setattr(rights, "RIGHTS_KEPT", 0.2)
    friend = tenant(api, namespace, "viewer")
    elsewhere, on = f"{namespace}-hidden", f"{namespace}-node"
    api.create("/api/v1/namespaces", {"metadata": {"name": elsewhere}})
    api.call("POST", f"/api/v1/namespaces/{elsewhere}/serviceaccounts", {"metadata": {"name": "default"}})
    card = node(on, cards=1)
    api.create("/api/v1/nodes", {"metadata": {"name": on, "annotations": card["metadata"]["annotations"]}})
    assert put(api, namespace, "open-pod", {}).code == 201
    assert put(api, elsewhere, "hidden-pod", {}).code == 201
    page_token = token_of(api, "pumice-web.yml", "pumice-web")

    async def at() -> None:
        access = Access(api.url, ssl=ssl.create_default_context(cafile=str(api.ca)), token=lambda: page_token)
        async with KubeClient(access, connections=20, user_agent="contract") as kube, open_for_viewers(kube) as (page, viewers):
            refused = {name for name, answer in viewers.whole.site.following.lacking.items() if answer.startswith("403")}
            assert refused == set(), "the account's role lacks a list"
            whole = await page.get("pods", token=api.token)
            assert f"{namespace}/open-pod" in whole.words
            assert f"{elsewhere}/hidden-pod" in whole.words
            assert on in (await page.get(f"search?q={on}", token=api.token)).text
            async with asyncio.timeout(60):
                while f"{namespace}/open-pod" not in (mine := await page.get("pods", token=friend.token)).words:
                    assert mine.status == 200
                    await asyncio.sleep(0.1)
            for path in ("", "pods", f"node?name={on}", f"pod?namespace={elsewhere}&name=hidden-pod", "waiting", "changes"):
                answer = await page.get(path, token=None, X_Pumice_Token=friend.token)
                if "hidden-pod" in path:  # the name was asked for; whether there is such a pod is not told
                    assert f"could not be read: 403 Forbidden: you may not list pods in {elsewhere}" in answer.words
                    assert answer.status == 404
                else:
                    assert "hidden-pod" not in answer.words, path
            assert "nodes could not be listed" in mine.words
            assert (await page.get("", token="no.such.token")).status == 401
            assert (await page.get("pod?namespace=" + namespace + "&name=open-pod", token=friend.token)).status == 200
            api.delete(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/viewer")
            async with asyncio.timeout(60):
                while f"{namespace}/open-pod" in (await page.get("pods", token=friend.token)).words:
                    await asyncio.sleep(0.2)
            api.delete(f"/api/v1/namespaces/{namespace}/serviceaccounts/viewer")
            async with asyncio.timeout(60):
                while (await page.get("pods", token=friend.token)).status != 401:
                    await asyncio.sleep(0.2)

    try:
        asyncio.run(asyncio.wait_for(at(), 240))
    finally:
        api.delete(f"/api/v1/nodes/{on}")


def test_the_pages_account_may_neither_write_nor_read_secrets(api: Api, namespace: str) -> None:
    page = replace(api, token=token_of(api, "pumice-web.yml", "pumice-web"))
    assert page.call("GET", "/api/v1/pods").code == 200
    for path in ("/api/v1/secrets", "/api/v1/configmaps", "/api/v1/namespaces/kube-system/pods/x/proxy/metrics"):
        assert page.call("GET", path).code == 403, path
    assert put(page, namespace, "p", {}).code == 403
