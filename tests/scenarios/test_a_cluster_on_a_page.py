"""`pumice web` on a cluster of `pumice up`: it shows what `pumice explain` and the objects say."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from kit.local_cluster import PUMICE, LocalCluster, local_cluster, phase, pumice, vgpu_pod

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

from kit.web_page import words_of

from pumice.adapters.kube import KubeClient
from pumice.wire.kinds import PODS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("browser"), "--nodes", "1", "--cards", "2") as built:

        async def fill(kube: KubeClient) -> None:
            for made in (vgpu_pod("a", 3000, 30), vgpu_pod("b", 7000), vgpu_pod("c", 9000), vgpu_pod("late", 6000)):
                await kube.create(PODS, made, "default")

        async def stands(kube: KubeClient) -> bool:
            late = await kube.get(PODS, "late", "default")
            told = any(c["type"] == "PodScheduled" for c in late["status"].get("conditions", ()))
            return told and all([await phase(kube, name) == "Running" for name in "abc"])

        built.ask(fill)
        built.wait(stands)
        yield built


@pytest.fixture(scope="module")
def address(cluster: LocalCluster) -> Iterator[str]:
    """As the command prints it, with the token."""
    command = [*PUMICE, "web", "--kubeconfig", str(cluster.data.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        try:
            found = next(word for word in page.stdout.readline().split() if word.startswith("http://"))
            deadline = time.monotonic() + 60
            while "Not complete yet" in read(found, "") and time.monotonic() < deadline:
                time.sleep(0.1)
            yield found
        finally:
            page.terminate()
            assert page.wait(60) == 0


def read(address: str, path: str) -> str:
    base, _, token = address.partition("?token=")
    asked = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60) as answer:
        return str(answer.read().decode())


def explained(cluster: LocalCluster, name: str) -> Any:
    done = pumice("explain", "pod", name, "-o", "json", "--kubeconfig", str(cluster.data.kubeconfig))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_pods_page_says_what_explain_and_its_object_say(cluster: LocalCluster, address: str, name: str) -> None:
    words, told = words_of(read(address, f"pod?namespace=default&name={name}")), explained(cluster, name)
    obj = cluster.ask(lambda kube: kube.get(PODS, name, "default"))
    assert told["summary"] in words
    for card in told["cards"]:
        assert f"{card['uuid']} " in words
        assert f"{card['asked']} MiB {card['memory']} MiB {card['cores']} %" in words
    for change in told["changes"]:
        assert change["text"] in words
    for misfit in told["misfits"]:
        assert all(part in words for part in (misfit["node"], misfit["text"], *(card["detail"] for card in misfit["cards"])))
    assert f"Status {obj['status']['phase']}" in words
    assert f"Node {obj['spec'].get('nodeName', 'none')}" in words
    for condition in obj["status"]["conditions"]:
        assert " ".join(filter(None, (condition.get(k, "") for k in ("type", "status", "reason")))) in words
        assert " ".join(condition.get("message", "").split()) in words
    for resource, amount in obj["spec"]["containers"][0]["resources"]["limits"].items():
        assert f"{resource} {amount}" in words
