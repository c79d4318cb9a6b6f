"""Kubernetes' own Jobs on `pumice up`, with programs that really end with the codes that decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit.local_cluster import local_cluster

from pumice.wire.kinds import JOBS, PODS

INDEXED = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}


def job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "local", "command": ["sh", "-c", script]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
            "spec": {"template": {"spec": pod}, **spec}}  # fmt: skip


def rule(action: str, code: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}


def test_codes_of_exit_and_indexes_decide_how_a_job_ends(tmp_path: Path) -> None:
    bug = job("bug", "exit 42", podFailurePolicy={"rules": [rule("FailJob", 42)]})
    shards = job("shards", "[ $JOB_COMPLETION_INDEX != 1 ] || exit 3", **INDEXED, backoffLimitPerIndex=6,
                 podFailurePolicy={"rules": [rule("FailIndex", 3)]})  # fmt: skip
    leader = job("leader", "[ $JOB_COMPLETION_INDEX = 0 ] || exec sleep 600", **INDEXED,
                 successPolicy={"rules": [{"succeededIndexes": "0"}]})  # fmt: skip
    with local_cluster(tmp_path / "d", "--cards", "1") as cluster:

        async def create(kube):
            for body in (bug, shards, leader):
                await kube.create(JOBS, body)

        async def over(kube):
            found = {entry["metadata"]["name"]: entry["status"] for entry in (await kube.list(JOBS, "default"))["items"]}
            ends = {name: [c["reason"] for c in status.get("conditions") or () if c["type"] in ("Complete", "Failed")]
                    for name, status in found.items()}  # fmt: skip
            return all(ends.values()) and (found, ends)

        cluster.ask(create)
        found, ends = cluster.wait(over)
        assert ends == {"bug": ["PodFailurePolicy"], "shards": ["FailedIndexes"], "leader": ["SuccessPolicy"]}
        assert (found["shards"]["completedIndexes"], found["shards"]["failedIndexes"]) == ("0,2", "1")
        assert (found["bug"]["failed"], found["shards"]["failed"], found["leader"]["succeeded"]) == (1, 1, 1)
        running = [pod for pod in cluster.ask(lambda kube: kube.list(PODS, "default"))["items"]
                   if pod["status"].get("phase") == "Running"]  # fmt: skip
        assert running == []
