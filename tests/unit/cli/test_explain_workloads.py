"""``explain job|deployment NAME`` says how its pods fare, ``explain waiting`` lists all that wait: one reason each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod

from pumice.cli import main as cli
from pumice.cli.cluster_snapshot import ClusterSnapshot, save

Json = dict[str, Any]
ROOM = "0/1 nodes are unavailable: 1 Insufficient cpu."


def owned(obj: Json, kind: str, name: str) -> Json:
    obj["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}]
    return obj


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """Job train: a gang of 3 where 2 fit. Deployment web: two pods run, one is somebody else's, one is too big."""
    world = World()
    world.add(node("n1", cpu="6"))
    web = [owned(pod(f"web-{i}", cpu=cpu), "ReplicaSet", "web-5d9") for i, cpu in enumerate(("1", "1", "20"))]
    world.add(*web, owned(pod("web-x", cpu="1", scheduler="other"), "ReplicaSet", "web-5d9"))
    world.settle()
    gang = owned(group("train-1", minimum=3), "Job", "train")
    world.add(gang, *(owned(pod(f"train-{i}", cpu="2", group="train-1"), "Job", "train") for i in range(3)))
    world.settle()
    sets = [owned({"metadata": {"name": "web-5d9", "namespace": "default"}, "spec": {}}, "Deployment", "web")]
    path = tmp_path / "case.json"
    lists = {"nodes": world.nodes, "queues": world.queues, "podGroups": world.groups, "pods": world.pods}
    objects = {kind: list(found.values()) for kind, found in lists.items()}
    objects["pods"] = [{**each, "status": {"phase": "Pending"}} for each in objects["pods"]]
    objects["replicaSets"] = sets
    path.write_text(save(ClusterSnapshot(now=1_800_000_000.0, scheduler_conf=world.conf, objects=objects)))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out + captured.err


def test_a_job_is_explained_by_its_gang_and_each_of_its_pods(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "explain", "job", "train", "--from", case)
    assert code == 0
    assert "Job default/train: 0 of 3 pods have a place" in out
    assert "PodGroup default/train-1 in queue default (Inqueue): waits, 3 of 3 members lack a place" in out
    assert f"train-2: {ROOM}" in out
    assert "pumice explain pod train-" in out


def test_a_deployment_is_explained_through_its_replica_sets(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "explain", "deploy/web", "--from", case)
    assert code == 0
    assert "Deployment default/web: 2 of 4 pods have a place" in out
    assert "2 on n1" in out
    assert f"web-2: {ROOM}" in out
    assert "web-x: its schedulerName is 'other'" in out
    _, out = run(capsys, "explain", "deployment", "web", "--from", case, "-o", "json")
    assert json.loads(out)["nodes"] == {"n1": 2}


def test_one_that_has_made_nothing_is_said_to_be_unknown(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "explain", "job", "trian", "--from", case)
    assert code == 2
    assert "no Job default/trian that has made a pod or a PodGroup; did you mean 'train'?" in out


def test_all_that_wait_are_listed_as_they_are_tried_with_the_reason_that_their_pods_say(
    case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(capsys, "explain", "waiting", "--from", case)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["QUEUE", "JOB", "PODS", "PRIORITY", "WAITS", "FOR", "WHY"]
    assert len(lines) == 4
    _, out = run(capsys, "explain", "waiting", "--from", case, "-o", "json")
    found = {tuple(row["pods"]): (row["queue"], row["cause"], row["why"]) for row in json.loads(out)}
    assert found["train-2",] == found["web-2",] == ("default", "unschedulable", ROOM)
    assert found["train-0", "train-1"][1] == "gang"
    _, out = run(capsys, "explain", "waiting", "-n", "elsewhere", "--from", case)
    assert out.strip() == "Nobody waits."
