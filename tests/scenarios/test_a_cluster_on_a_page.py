"""`pumice web` on a cluster of `pumice up`: it shows what `pumice explain` and the objects say."""

from __future__ import annotations

import json
import re
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
from pumice.wire.kinds import NODES, PODS
from pumice.wire.nvidia_vgpu import parse_pod_devices

SMI = "nvidia-smi --query-gpu=uuid,name,memory.total,memory.used --format=csv,noheader,nounits"
IN_THE_POD = f"pumice burn --memory 1000 --kernel-ms 5 --seconds 1000 & while sleep 1; do {SMI}; done"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("browser"), "--nodes", "1", "--cards", "2") as built:

        async def fill(kube: KubeClient) -> None:
            first = vgpu_pod("a", 3000, 30)
            first["spec"]["containers"][0]["command"] = ["sh", "-c", IN_THE_POD]
            for made in (first, vgpu_pod("b", 7000), vgpu_pod("c", 9000), vgpu_pod("late", 6000)):
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


def test_a_cards_and_a_nodes_page_say_what_the_annotations_and_the_nodes_object_say(cluster: LocalCluster, address: str) -> None:
    pods = cluster.ask(lambda kube: kube.list(PODS, "default"))["items"]
    (node,) = cluster.ask(lambda kube: kube.list(NODES))["items"]
    name, notes = node["metadata"]["name"], node["metadata"]["annotations"]
    page = words_of(read(address, f"node?name={name}"))
    held: dict[str, list[tuple[str, int, int]]] = {}
    for pod in pods:
        given = parse_pod_devices(pod["metadata"].get("annotations", {}).get("volcano.sh/vgpu-ids-new", ""))
        for device in (device for container in given.containers for device in container):
            held.setdefault(device.uuid, []).append((pod["metadata"]["name"], device.memory, device.cores))
    registered = [card.split(",") for card in notes["volcano.sh/node-vgpu-register"].split(":") if card]
    assert len(registered) == 2
    for uuid, share_limit, memory, kind, *_ in registered:
        card, on = words_of(read(address, f"card?node={name}&uuid={uuid}")), held.get(uuid, [])
        promised, cores = sum(memory for _, memory, _ in on), sum(cores for *_, cores in on)
        assert f"limit {promised} of {memory} MiB" in card
        assert f"limit {promised} of {memory} MiB" in page
        assert f"limit {cores} of 100 %" in card
        assert f"at most {share_limit} shares" in card
        assert f"Type {kind} UUID {uuid} " in card
        for pod_name, limit, percent in on:
            assert f"default/{pod_name} - {limit} MiB {limit} MiB {percent} %" in card
    assert {pod for on in held.values() for pod, *_ in on} == {"a", "b", "c"}
    for resource, asked in (("volcano.sh/vgpu-number", "3"), ("volcano.sh/vgpu-memory", "19000"), ("pods", "3")):
        assert re.search(rf"{resource} {asked} {node['status']['allocatable'][resource]} ", page), resource
    listed = words_of(read(address, "pods"))
    for pod in pods:
        assert f"default/{pod['metadata']['name']} {pod['status']['phase']}" in listed


def test_a_pods_page_says_what_nvidia_smi_in_the_pod_says(cluster: LocalCluster, address: str) -> None:
    deadline = time.monotonic() + 90
    while True:
        lines = cluster.ask(lambda kube: kube.request("GET", "/api/v1/namespaces/default/pods/a/log")).decode().splitlines()
        said = [line.split(", ") for line in lines if line.startswith("GPU-")]
        words, card = words_of(read(address, "pod?namespace=default&name=a")), ""
        if said and int(said[-1][3]) >= 1000:
            uuid, _, total, used = said[-1]
            card = words_of(read(address, f"card?node={explained(cluster, 'a')['node']}&uuid={uuid}"))
            if f"Used now: {used} MiB" in words:
                break
        assert time.monotonic() < deadline, (said[-1:], words[:600])
        time.sleep(1)
    assert f"{uuid} " in words
    assert f"{total} MiB {total} MiB 30 %" in words
    assert f"default/a - {total} MiB {total} MiB 30 % {used} MiB" in card
    while f"Memory over the last hour, container c on {uuid}" not in words or f" {used} MiB " not in words:
        assert time.monotonic() < deadline, words[-2000:]
        time.sleep(1)
        words = words_of(read(address, "pod?namespace=default&name=a"))
