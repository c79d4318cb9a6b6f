"""Statuses, counts and votes of jobs (Volcano pkg/scheduler/api/job_info.go, Volcano
pkg/scheduler/framework/session_plugins.go), as tables."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod
from kit.scheduler_confs import conf

from pumice.scheduler.framework import Framework
from pumice.scheduler.plugins.contract import ABSTAIN, PERMIT, REJECT, JobPipelined
from pumice.scheduler.state.jobs import Job, QueueState, Status, name_index, task_status
from pumice.wire.objects import Pod, convert
from pumice.wire.scheduler_conf import PluginConf, parse_scheduler_conf

STATUSES = [
    ({"phase": "Pending"}, "", False, Status.PENDING), ({"phase": "Pending"}, "n1", False, Status.BOUND),
    ({"phase": "Pending"}, "", True, Status.RELEASING), ({"phase": "Pending"}, "n1", True, Status.RELEASING),
    ({"phase": "Running"}, "n1", False, Status.RUNNING), ({"phase": "Running"}, "n1", True, Status.RELEASING),
    ({"phase": "Unknown"}, "n1", False, Status.UNKNOWN), ({"phase": "Succeeded"}, "n1", True, Status.SUCCEEDED),
    ({"phase": "Failed"}, "n1", False, Status.FAILED),
]  # fmt: skip


@pytest.mark.parametrize(("status", "where", "going", "expected"), STATUSES)
def test_the_status_of_a_pod(status: dict[str, Any], where: str, going: bool, expected: Status) -> None:
    made = pod("a", nodeName=where)
    made["status"] = status
    if going:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert task_status(convert(Pod, made)) is expected


@pytest.mark.parametrize(("name", "index"), [("job-task-7", 7), ("a-b-c-12", 12), ("job-7", -1), ("job-task-x", -1), ("7", -1)])
def test_the_index_is_the_number_at_the_end_of_a_name_of_three_pieces(name: str, index: int) -> None:
    assert name_index(name) == index


def job_of(minimum: int, *statuses: Status, best_effort: int = 0) -> Job:
    world = World(conf("gang", actions="backfill"))
    world.add(node("n1"), group("g", minimum=minimum))
    world.add(*(pod(f"p{i}", cpu="1", group="g") for i in range(len(statuses))))
    job = world.engine.state.jobs["default/g"]
    for task, status in zip(list(job.tasks.values()), statuses, strict=True):
        if status is Status.BINDING:
            job.move(task, Status.ALLOCATED)
        job.move(task, status)
    world.add(*(pod(f"b{i}", group="g") for i in range(best_effort)))
    return job


P, A, B, R, S, F, W, G = (Status.PENDING, Status.ALLOCATED, Status.BINDING, Status.RUNNING, Status.SUCCEEDED, Status.FAILED,
                          Status.PIPELINED, Status.RELEASING)  # fmt: skip
COUNTS: list[tuple[Job, bool, bool, int]] = [
    # job, is_ready, is_pipelined, valid
    (job_of(2, P, P), False, False, 2), (job_of(2, A, P), False, False, 2), (job_of(2, A, B), True, True, 2),
    (job_of(2, R, S), True, True, 2), (job_of(2, R, F), False, False, 1), (job_of(2, A, W), False, True, 2),
    (job_of(2, R, G), False, False, 1), (job_of(2, A, best_effort=1), False, False, 2),
    (job_of(0), True, True, 0),
]  # fmt: skip


@pytest.mark.parametrize(("job", "ready", "pipelined", "valid"), COUNTS)
def test_the_counts_of_a_job(job: Job, ready: bool, pipelined: bool, valid: int) -> None:
    assert (job.is_ready(), job.is_pipelined(), job.valid_count) == (ready, pipelined, valid)


class Voter(JobPipelined):
    def __init__(self, entry: PluginConf) -> None:
        super().__init__(entry.arguments)
        self.vote = {"priority": PERMIT, "gang": REJECT, "drf": ABSTAIN}[entry.name]

    def job_pipelined(self, job: Job) -> int:
        return self.vote


VOTES = [("", True), ("drf", True), ("gang", False), ("priority", True), ("priority gang", False), ("gang priority", False),
         ("priority | gang", True), ("drf | gang", False), ("drf | drf", True), ("gang | priority", False)]  # fmt: skip


@pytest.mark.parametrize(("tiers", "passes"), VOTES)
def test_how_votes_of_tiers_combine(tiers: str, passes: bool) -> None:
    text = "".join("- plugins:\n" + "".join(f"  - name: {name}\n" for name in tier.split()) for tier in tiers.split("|"))
    framework = Framework(parse_scheduler_conf(f'actions: "allocate"\ntiers:\n{text}'), Voter)
    assert framework.job_pipelined(Job("a/b", "a", "b", QueueState("q"))) is passes
