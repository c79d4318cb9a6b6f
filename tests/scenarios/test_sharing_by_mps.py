"""Cards shared by MPS under `pumice up`: the emulated driver and daemon hold a pod to its share. No real card has run this."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from typing import Any

import pytest
from kit.local_cluster import LocalCluster, local_cluster, log_with, vgpu_pod

from pumice.wire import names
from pumice.wire.kinds import NODES, PODS

BURN = f"{sys.executable} -m pumice.cli.burn"
MIB = 1 << 20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("mps")
    (folder / "cluster.yaml").write_text("nodes:\n- {name: n1, cards: 2, model: A100-SXM4-40GB, sharing: mps}\n")
    with local_cluster(folder / "d", "--config", str(folder / "cluster.yaml")) as cluster:
        yield cluster


def burner(name: str, memory: int, cores: int, script: str, **env: str) -> dict[str, Any]:
    pod = vgpu_pod(name, memory, cores)
    container = pod["spec"]["containers"][0]
    container["command"] = ["sh", "-c", f"({script}) 2>&1; echo; echo over; sleep 1000"]
    container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return pod


def said(cluster: LocalCluster, pod: dict[str, Any]) -> str:
    cluster.ask(lambda kube: kube.create(PODS, pod))
    return str(cluster.wait(lambda kube: log_with(kube, pod["metadata"]["name"], "over")))


def test_a_pod_gets_its_memory_and_no_more_and_its_portion_of_the_card(shared: LocalCluster) -> None:
    script = f"env | grep ^CUDA_; {BURN} --memory 9000 -o json; {BURN} --kernels 400 --kernel-ms 1 -o json"
    text = said(shared, burner("bound", 3000, 50, script))
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=3000M" in text
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in text
    assert "CUDA_DEVICE_MEMORY" not in text
    decoder, found, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = text.find("{", end)
    memory, busy = found
    assert memory["error"]["name"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert 2000 * MIB < memory["granted_bytes"] <= 3000 * MIB
    assert 0.3 < busy["busy_share"] < 0.56, "no more, and less only where the machine is busy"
    gone(shared, "bound")


def test_schedulers_read_of_cards_as_ever(shared: LocalCluster) -> None:
    node = shared.ask(lambda kube: kube.get(NODES, "n1"))
    assert "hami-core" in node["metadata"]["annotations"]["volcano.sh/node-vgpu-register"]
    assert "mps" not in node["metadata"]["annotations"]["volcano.sh/node-vgpu-register"]


def gone(cluster: LocalCluster, *pods: str) -> None:
    for name in pods:
        cluster.ask(lambda kube, name=name: kube.delete(PODS, name, "default"))

    async def all_gone(kube: Any) -> bool:
        names = {pod["metadata"]["name"] for pod in (await kube.list(PODS, "default"))["items"]}
        return not names & set(pods)

    cluster.wait(all_gone)


def test_pods_of_one_user_share_a_card_and_one_of_another_user_is_refused_in_words(shared: LocalCluster) -> None:
    """Both cards are made busy: each pod takes more than half of one."""
    texts = [said(shared, burner(name, 21000, 30, f"{BURN} --memory 20000 -o json")) for name in ("first", "second")]
    assert all('"error": null' in text for text in texts)
    stranger = burner("stranger", 3000, 10, "true")
    stranger["spec"]["containers"][0]["securityContext"] = {"runAsUser": 1000}
    shared.ask(lambda kube: kube.create(PODS, stranger))

    async def refusal(kube: Any) -> str:
        pod = await kube.get(PODS, "stranger", "default")
        return str(pod["metadata"]["annotations"][names.DEVICES_REFUSED]) if pod["status"].get("phase") == "Failed" else ""

    message = shared.wait(refusal)
    assert "runs as user 1000" in message
    assert "an MPS server takes the programs of one user" in message
    gone(shared, "first", "second", "stranger")


def daemons(cluster: LocalCluster) -> set[int]:
    texts = [path.read_text() for path in (cluster.data.node("n1") / "vgpu" / "mps").glob("*/pipe/*.pid")]
    return {int(text) for text in texts if text.strip()}


def test_a_killed_daemon_comes_back_and_pods_after_it_are_served_and_held(shared: LocalCluster) -> None:
    before = daemons(shared)
    assert len(before) == 2
    for pid in before:
        os.kill(pid, signal.SIGKILL)

    async def served_again(kube: Any) -> bool:
        node = await kube.get(NODES, "n1")
        return len(daemons(shared) - before) == 2 and str(node["status"]["allocatable"]["volcano.sh/vgpu-number"]) == "20"

    shared.wait(served_again)
    text = said(shared, burner("after", 2000, 25, f"{BURN} --memory 4000 -o json; {BURN} --kernels 200 --kernel-ms 1 -o json"))
    assert "CUDA_ERROR_OUT_OF_MEMORY" in text
    share = float(text.rpartition('"busy_share": ')[2].partition(",")[0])
    assert 0.15 < share < 0.31
    gone(shared, "after")


async def nothing_granted(cluster: LocalCluster) -> bool:
    """Return whether the daemons count nothing any more of pods that have gone."""
    node = cluster.data.node("n1")
    pipes = [path.parent for path in (node / "vgpu" / "mps").glob("*/pipe/control")]
    said = [await asyncio.to_thread(
        subprocess.check_output, [node / "machine" / "bin" / "nvidia-cuda-mps-control"], text=True, timeout=10,
        input="get_default_device_pinned_mem_limit 0\n", env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe)},
    ) for pipe in pipes]  # fmt: skip
    return [text.strip() for text in said] == ["1M", "1M"]


def test_a_pod_that_clears_its_variables_is_held_to_the_widest_share_of_its_card(shared: LocalCluster) -> None:
    shared.wait(lambda kube: nothing_granted(shared))
    clear = "unset CUDA_MPS_PINNED_DEVICE_MEM_LIMIT CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    loads = f"{BURN} --memory 9000 -o json; {BURN} --kernels 200 --kernel-ms 1 -o json"
    text = said(shared, burner("bold", 2500, 40, f"{clear}; {loads}"))
    granted = int(text.partition('"granted_bytes": ')[2].partition(",")[0])
    assert granted <= 2500 * MIB
    assert float(text.rpartition('"busy_share": ')[2].partition(",")[0]) < 0.46
    gone(shared, "bold")


def test_the_monitor_tells_what_such_a_pod_was_given_and_complains_of_nothing(shared: LocalCluster) -> None:
    said(shared, burner("watched", 3000, 50, f"{BURN} --memory 1000"))
    address = (shared.data.facts() or {})["monitors"]["n1"]
    deadline = time.monotonic() + 30
    while 'podname="watched"' not in (page := urllib.request.urlopen(f"http://{address}/metrics").read().decode()):
        assert time.monotonic() < deadline, page
        time.sleep(0.3)
    limits = [line for line in page.splitlines() if line.startswith("vGPU_device_memory_limit_in_bytes{") and "watched" in line]
    assert [line.rpartition(" ")[2] for line in limits] == [str(3000 * MIB)]
    assert "pumice_region_suspect{" not in page
    assert "pumice_card_unaccounted_bytes{" not in page
    gone(shared, "watched")


def test_when_the_cluster_is_down_no_daemon_is_left(shared: LocalCluster) -> None:
    """The last of them: who is served keeps his daemon, and nobody is any more."""
    shared.down()
    folder = shared.data.node("n1") / "vgpu" / "mps"
    assert len(list(folder.glob("*/pipe"))) == 2
    assert not daemons(shared)
    assert not list(folder.glob("*/card"))
