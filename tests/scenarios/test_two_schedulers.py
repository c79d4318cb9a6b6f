"""Two scheduler processes of one cluster: who leads when the other is killed, frozen or stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kit.auditor import audit
from kit.control_plane import KINDS, Api, control_plane
from kit.objects import node, pod
from kit.scheduler_daemon import CONF

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
def schedulers(api: Api, directory: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes; which of them leads is found by ``leader``."""
    config = directory / "kubeconfig"
    config.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": api.url, "certificate-authority": str(api.ca)}}],
        "users": [{"name": "u", "user": {"token": api.token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }))  # fmt: skip
    command = [
        sys.executable, "-m", "pumice", "scheduler", "--kubeconfig", str(config), "--listen-address", "127.0.0.1:0",
        "--leader-elect", f"--leader-elect-lease-duration={DURATION:.0f}s", "--leader-elect-renew-deadline=5s",
        f"--leader-elect-retry-period={RETRY * 1000:.0f}ms", "--log-format=json",
    ]  # fmt: skip
    logs = [directory / f"scheduler-{i}.log" for i in range(2)]
    running = [subprocess.Popen(command, stderr=log.open("wb")) for log in logs]
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


def leads(log: Path) -> str:
    return " ".join(line for line in log.read_text().splitlines() if "leading lease" in line)


def holder(api: Api) -> str:
    answer = api.call("GET", LEASE)
    return str(answer.json["spec"].get("holderIdentity") or "") if answer.code == 200 else ""


def until(holds: Callable[[], bool], seconds: float = 60) -> float:
    """Seconds until it held."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, "it never held"
        time.sleep(0.05)
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
