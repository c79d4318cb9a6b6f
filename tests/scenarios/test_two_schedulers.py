"""Two scheduler processes of one cluster: who leads when the other is killed, frozen or stopped."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.control_plane import KINDS, Api, control_plane
from kit.objects import group, node, pod, priority_class
from kit.room_worlds import room_conf
from kit.scheduler_daemon import CONF

from pumice.audit.auditor import audit
from pumice_lab.free_ports import free_port

LEASE = "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases/volcano"
PODS = "/api/v1/namespaces/default/pods"
DURATION, RETRY = 6.0, 0.3
CRDS = Path(__file__).parents[2] / "deploy" / "manifests" / "crds"


@pytest.fixture(params=KINDS)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with control_plane(request.param, tmp_path) as found:
        for path in sorted(CRDS.glob("*.yaml")):
            for obj in filter(None, yaml.safe_load_all(path.read_text())):
                found.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", obj)
        found.create("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}})
        body = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": CONF}}
        found.create("/api/v1/namespaces/volcano-system/configmaps", body)
        body = node("n1", cards=8)
        status = {"status": body.pop("status")}
        found.create("/api/v1/nodes", body)
        found.merge("/api/v1/nodes/n1/status", status)
        yield found


@contextmanager
def schedulers(
    api: Api, directory: Path, duration: float = DURATION, deadline: float = 5.0, pages: tuple[int, int] = (0, 0)
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes, the one that leads first. ``pages``: the ports of their pages."""
    command = [*as_user(api, directory), *elected(duration, deadline)]
    logs = [directory / f"scheduler-{i}.log" for i in range(2)]
    running = [
        subprocess.Popen([*command, "--listen-address", f"127.0.0.1:{port}"], stderr=log.open("wb"))
        for log, port in zip(logs, pages, strict=True)
    ]
    try:
        until(lambda: holder(api) != "")
        yield running if holder(api) in leads(logs[0]) else running[::-1]
    finally:
        for process in running:
            process.kill()
            process.wait(60)
    for log in logs:
        lines = [line for line in log.read_text().splitlines() if not line.startswith("pumice: ")]  # why it ended, for people
        assert all(json.loads(line)["message"] for line in lines), "each line is one JSON object"


def as_user(api: Api, directory: Path) -> list[str]:
    """Return the command of a scheduler that may do everything at this API server."""
    config = directory / "kubeconfig"
    config.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": api.url, "certificate-authority": str(api.ca)}}],
        "users": [{"name": "u", "user": {"token": api.token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }))  # fmt: skip
    return [sys.executable, "-m", "pumice", "scheduler", "--kubeconfig", str(config), "--log-format=json"]


def elected(duration: float = DURATION, deadline: float = 5.0) -> list[str]:
    return [
        "--leader-elect", f"--leader-elect-lease-duration={duration:.0f}s", f"--leader-elect-renew-deadline={deadline:.0f}s",
        f"--leader-elect-retry-period={RETRY * 1000:.0f}ms",
    ]  # fmt: skip


def leads(log: Path) -> str:
    return " ".join(line for line in log.read_text().splitlines() if "leading lease" in line)


def holder(api: Api) -> str:
    answer = api.call("GET", LEASE)
    return str(answer.json["spec"].get("holderIdentity") or "") if answer.code == 200 else ""


def until(holds: Callable[[], bool], seconds: float = 60, every: float = 0.05) -> float:
    """Seconds until it held; it is looked at ``every`` so many."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, "it never held"
        time.sleep(every)
    return time.monotonic() - began


def bind_one(api: Api, name: str) -> float:
    """Seconds until a new pod is bound."""
    body = pod(name, mib=1000)
    del body["metadata"]["uid"], body["status"]
    api.create(PODS, body)
    return until(lambda: bool(api.get(f"{PODS}/{name}")["spec"].get("nodeName")))


def no_card_is_over(api: Api) -> None:
    assert audit(api.get("/api/v1/nodes")["items"], api.get(PODS)["items"]) == []


def test_a_killed_leader_is_followed_within_the_leases_duration(api: Api, tmp_path: Path) -> None:
    with schedulers(api, tmp_path) as (leader, other):
        bind_one(api, "before")
        first = holder(api)
        leader.send_signal(signal.SIGKILL)
        taken = bind_one(api, "after")
        assert taken < DURATION + 2 * RETRY + 20, "the duration, a retry, and what a busy machine adds"
        assert holder(api) not in ("", first)
        no_card_is_over(api)
        other.send_signal(signal.SIGTERM)
        assert other.wait(60) == 0


def test_a_stopped_leader_hands_over_at_once(api: Api, tmp_path: Path) -> None:
    with schedulers(api, tmp_path) as (leader, _):
        bind_one(api, "before")
        leader.send_signal(signal.SIGTERM)
        assert leader.wait(60) == 0
        assert bind_one(api, "after") < DURATION, "nobody waits for the lease to run out"
        no_card_is_over(api)


def test_a_leader_that_was_frozen_finds_its_lease_gone_and_ends(api: Api, tmp_path: Path) -> None:
    with schedulers(api, tmp_path) as (leader, _):
        bind_one(api, "before")
        first = holder(api)
        leader.send_signal(signal.SIGSTOP)
        bind_one(api, "meanwhile")
        assert holder(api) not in ("", first)
        leader.send_signal(signal.SIGCONT)
        assert leader.wait(60) != 0
        bind_one(api, "after")
        no_card_is_over(api)


ON_EACH = 8
BUSY_DURATION, BUSY_DEADLINE = 15.0, 10.0


def in_parallel(calls: Iterable[Callable[[], object]]) -> None:
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


def bare(obj: dict[str, Any]) -> dict[str, Any]:
    """The object as a client sends it."""
    for field in ("uid", "creationTimestamp"):
        obj["metadata"].pop(field, None)
    return obj


def full_cluster(api: Api, nodes: int) -> None:
    """Nodes of eight processors, with eight running pods each."""
    conf = room_conf("enqueue, allocate, preempt, backfill", spares_gangs="false")
    configuration = "/api/v1/namespaces/volcano-system/configmaps/volcano-scheduler-configmap"
    api.merge(configuration, {"data": {"volcano-scheduler.conf": conf}})
    api.delete("/api/v1/nodes/n1")
    api.create("/apis/scheduling.k8s.io/v1/priorityclasses", bare(priority_class("high", 100)))

    def one(number: int) -> None:
        body = bare(node(f"n{number}", cpu=str(ON_EACH)))
        status = {"status": body.pop("status")}
        api.create("/api/v1/nodes", body)
        api.merge(f"/api/v1/nodes/n{number}/status", status)
        for at in range(ON_EACH):
            running = bare(pod(f"low-{number}-{at}", cpu="1", priority=1))
            del running["status"], running["spec"]["priority"]
            running["spec"]["nodeName"] = f"n{number}"
            api.create(PODS, running)
            api.merge(f"{PODS}/low-{number}-{at}/status", {"status": {"phase": "Running"}})

    in_parallel(partial(one, number) for number in range(nodes))


def a_gang_comes(api: Api, gang: int) -> None:
    groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    made = bare(group("g", minimum=gang, priority_class="high"))
    made.pop("status", None)
    api.create(groups, made)

    def one(at: int) -> None:
        body = bare(pod(f"g-{at}", group="g", cpu="1"))
        del body["status"]
        body["spec"].pop("priority", None)
        body["spec"]["priorityClassName"] = "high"
        api.create(PODS, body)

    in_parallel(partial(one, at) for at in range(gang))


def silences(ports: tuple[int, int], over: threading.Event) -> list[float]:
    """For how long at most each page of health gave no answer."""
    longest = [0.0, 0.0]
    while not over.is_set():
        for index, port in enumerate(ports):
            began = time.monotonic()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
                assert answer.status == 200
            longest[index] = max(longest[index], time.monotonic() - began)
        over.wait(0.1)
    return longest


@pytest.mark.parametrize("api", ["embedded"], indirect=True)  # up to two thousand objects are made for one of the servers only
@pytest.mark.parametrize(("gang", "nodes"), [(200, 27), pytest.param(700, 90, marks=pytest.mark.soak)])
def test_of_two_schedulers_one_makes_room_for_a_gang_of_hundreds_and_keeps_its_lease(
    api: Api, tmp_path: Path, gang: int, nodes: int
) -> None:
    full_cluster(api, nodes)
    ports = free_port(), free_port()
    with schedulers(api, tmp_path, BUSY_DURATION, BUSY_DEADLINE, ports) as running, ThreadPoolExecutor(1) as beside:
        first, over = holder(api), threading.Event()
        requested = beside.submit(silences, ports, over)
        try:
            a_gang_comes(api, gang)

            def bound() -> bool:
                """As the kubelets: whoever is told to go is gone a moment later."""
                pods = api.get(PODS)["items"]
                going = [obj["metadata"]["name"] for obj in pods if obj["metadata"].get("deletionTimestamp")]
                in_parallel(partial(api.delete, f"{PODS}/{name}", {"gracePeriodSeconds": 0}) for name in going)
                return sum(obj["metadata"]["name"].startswith("g-") and "nodeName" in obj["spec"] for obj in pods) == gang

            until(bound, 240, every=0.5)
        finally:
            over.set()
        assert max(requested.result()) < 5, "of two processors, on which all this runs"
        assert [process.poll() for process in running] == [None, None]
        assert holder(api) == first
        left = [obj["metadata"]["name"] for obj in api.get(PODS)["items"] if obj["metadata"]["name"].startswith("low-")]
        assert len(left) == nodes * ON_EACH - gang, "nobody went in vain"
        events = api.get("/api/v1/namespaces/default/events")["items"]
        assert not [event for event in events if "refused" in event.get("message", "")]
    for log in tmp_path.glob("scheduler-*.log"):
        assert "leads no longer" not in log.read_text()


# -- two at once, with a shard each ----------------------------------------------------------------------------------------

SHARDS = "/apis/shard.volcano.sh/v1alpha1/nodeshards"


@contextmanager
def of_shards(api: Api, directory: Path, *shards: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [*as_user(api, directory), *elected(), "--listen-address=127.0.0.1:0", "--scheduler-sharding-mode=hard",
               "--scheduler-sharding-peers=a,b"]  # fmt: skip
    running = [
        subprocess.Popen([*command, f"--scheduler-sharding-name={shard}"], stderr=(directory / f"{at}.log").open("wb"))
        for at, shard in enumerate(shards)
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait(60)


def used(api: Api) -> dict[str, set[str]]:
    """By shard, the nodes that its scheduler says it uses."""
    found = api.get(SHARDS)["items"]
    return {one["metadata"]["name"]: set(one.get("status", {}).get("nodesInUse") or ()) for one in found}


def test_two_schedulers_share_the_nodes_and_the_stand_by_of_a_killed_one_goes_on_with_its_own(api: Api, tmp_path: Path) -> None:
    for name in ("n2", "n3"):
        body = bare(node(name, cards=8))
        status = {"status": body.pop("status")}
        api.create("/api/v1/nodes", body)
        api.merge(f"/api/v1/nodes/{name}/status", status)
    for shard, nodes in (("a", ["n1"]), ("b", ["n2", "n3"])):
        api.create(SHARDS, {"apiVersion": "shard.volcano.sh/v1alpha1", "kind": "NodeShard", "metadata": {"name": shard},
                            "spec": {"nodesDesired": nodes}})

    def burst(prefix: str) -> None:
        for at in range(20):
            body = bare(pod(f"{prefix}{at}", mib=1000))
            del body["status"]
            api.create(PODS, body)
        until(lambda: all("nodeName" in one["spec"] for one in api.get(PODS)["items"]), 90)
        no_card_is_over(api)

    with of_shards(api, tmp_path, "a", "b", "b") as running:
        until(lambda: used(api) == {"a": {"n1"}, "b": {"n2", "n3"}})
        burst("first")
        lease = LEASE.replace("leases/volcano", "leases/volcano-b")
        before = api.get(lease)["spec"]["holderIdentity"]
        logs = [tmp_path / "1.log", tmp_path / "2.log"]
        leader = running[1] if before in leads(logs[0]) else running[2]
        leader.send_signal(signal.SIGKILL)
        began = time.monotonic()
        api.merge(f"{SHARDS}/a", {"spec": {"nodesDesired": ["n1", "n3"]}})
        api.merge(f"{SHARDS}/b", {"spec": {"nodesDesired": ["n2"]}})
        burst("second")
        assert time.monotonic() - began < DURATION + 2 * RETRY + 20, "and what a busy machine adds"
        until(lambda: used(api) == {"a": {"n1", "n3"}, "b": {"n2"}})
        assert api.get(lease)["spec"]["holderIdentity"] not in ("", before)
        burst("third")
        nodes = {one["spec"]["nodeName"] for one in api.get(PODS)["items"] if one["metadata"]["name"].startswith("third")}
        assert "n2" in nodes
        assert nodes & {"n1", "n3"}
    bound = [line for log in tmp_path.glob("*.log") for line in log.read_text().splitlines() if "binding refused" in line]
    assert bound == [], "no pod was tried by two"
