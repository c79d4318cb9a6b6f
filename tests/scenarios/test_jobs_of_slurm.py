"""Prolog, task prolog and epilog of a Slurm node with a stand-in for Slurm: what they book, hand on and free.

Slurm's own daemons are met in tests/e2e/test_slurm.py."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.one_machine import PUMICE, OneMachine, wait_until

BURN = [*PUMICE, "burn"]
START = """
import os, subprocess, sys
env = {**os.environ, "SLURM_TASK_PID": str(os.getpid())}
told = subprocess.run(sys.argv[1].split(), env=env, stdout=subprocess.PIPE, text=True)
for line in told.stdout.splitlines():
    word, _, rest = line.partition(" ")
    if word == "export":
        os.environ.__setitem__(*rest.split("=", 1))
    elif word == "unset":
        del os.environ[rest]
    else:
        print(rest, flush=True)
if told.returncode:
    raise SystemExit(told.returncode)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""What slurmstepd does with a TaskProlog, in the process that becomes the task (Slurm's src/slurmd/slurmstepd/task.c)."""


class Node:
    """A node of Slurm, whose controller knows the jobs in ``jobs``: a line each, as squeue prints them."""

    def __init__(self, here: OneMachine, folder: Path) -> None:
        self.here, self.jobs = here, folder / "jobs"
        bin_ = folder / "bin"
        bin_.mkdir()
        (bin_ / "squeue").write_text(
            f'#!/bin/sh\nPATH=/usr/bin:/bin\necho "$*" >> {folder}/asked\n'
            f'case "$*" in\n*--nodelist*) cut -d"|" -f1 {self.jobs};;\n*) cat {self.jobs};;\nesac\n')  # fmt: skip
        (bin_ / "squeue").chmod(0o755)
        self.asked = folder / "asked"
        self.jobs.touch()
        self.path = str(bin_)

    def call(self, which: str, job: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.here.pumice("slurm", which, "--emulated", str(self.here.directory), env=self.environment(job) | more)

    def environment(self, job: str) -> dict[str, str]:
        return {"SLURM_JOB_ID": job, "SLURM_JOB_UID": str(os.getuid()), "SLURMD_NODENAME": "n", "PATH": self.path}

    def begins(self, job: str, gres: str = "gres:pumice:memory:3G,gres:pumice:cores:50") -> None:
        with open(self.jobs, "a") as file:
            file.write(f"{job}|{gres}|train\n")
        done = self.call("prolog", job)
        assert done.returncode == 0, done.stderr

    def task(self, job: str, *command: str, **more: str) -> subprocess.Popen[str]:
        prolog = f"{' '.join(PUMICE)} slurm task-prolog --emulated {self.here.directory}"
        env = {**self.here.environment, **self.environment(job), "PATH": os.environ["PATH"], **more}
        python = PUMICE[0]
        return subprocess.Popen([python, "-c", START, prolog, *command], env=env, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    here = OneMachine(tmp_path / "machine")
    yield Node(here, tmp_path)
    here.close()


def ids(node: Node) -> list[str]:
    return [share["id"] for share in node.here.ps()]


def test_a_job_has_its_share_from_prolog_to_epilog_also_while_no_process_of_it_runs(node: Node) -> None:
    node.begins("12")
    (share,) = node.here.ps()
    assert (share["id"], share["user"], share["pids"]) == ("slurm-12", os.getuid(), [])
    assert (share["cards"][0]["memoryLimitMiB"], share["cards"][0]["coresLimitPercent"]) == (3072, 50)
    over, _ = node.task("12", *BURN, "--memory", "3073", "--block", "1").communicate(timeout=60)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in over
    assert ids(node) == ["slurm-12"]
    refused = node.here.run("--memory", "9G", "--gpu", share["cards"][0]["uuid"], "--", "true")
    assert refused.returncode == 2
    assert "Slurm job 12" in refused.stderr
    assert node.call("epilog", "12").returncode == 0
    assert ids(node) == []
    assert node.call("epilog", "12").returncode == 0, "a second one finds nothing"


def test_a_job_that_asks_for_no_share_is_left_as_it_is(node: Node) -> None:
    node.begins("12", "gres:gpu:1")
    assert ids(node) == []
    questions = node.asked.read_text()
    done, _ = node.task("12", "sh", "-c", "echo share=$PUMICE_SHARE").communicate(timeout=60)
    assert done == "share=\n"
    assert node.asked.read_text() == questions, "its tasks ask Slurm nothing"


def test_a_share_that_cannot_be_had_fails_the_tasks_with_the_reason_and_leaves_the_node_in_service(node: Node) -> None:
    node.begins("12", "gres:pumice:memory:80G")
    task = node.task("12", "echo", "it ran")
    said, _ = task.communicate(timeout=60)
    assert said.startswith("pumice: job 12 has no share on this node: no card has room for 81920 MiB\n")
    assert task.returncode == 2
    assert "it ran" not in said
    assert node.call("epilog", "12").returncode == 0
    node.jobs.write_text("")
    node.begins("12", "gres:pumice:memory:3G")  # requeued, and asks for less
    said, _ = node.task("12", "sh", "-c", "echo $PUMICE_SHARE").communicate(timeout=60)
    assert said == "slurm-12\n"


def test_a_job_with_a_share_does_not_run_without_limits_where_its_nodes_prolog_was_not_set_up(node: Node) -> None:
    node.jobs.write_text("12|gres:pumice:memory:3G|train\n13|N/A|plain\n14|gres:pumice:3G|odd\n")
    task = node.task("12", "echo", "it ran", PATH=f"{node.path}:{os.environ['PATH']}")
    said, _ = task.communicate(timeout=60)
    assert said.startswith("pumice: job 12 has no share on this node: it is not booked. It was freed by hand, or")
    assert (task.returncode, "it ran" in said) == (2, False)
    plain, _ = node.task("13", "echo", "it ran", PATH=f"{node.path}:{os.environ['PATH']}").communicate(timeout=60)
    assert plain == "it ran\n"
    odd, _ = node.task("14", "echo", "it ran", PATH=f"{node.path}:{os.environ['PATH']}").communicate(timeout=60)
    assert "say of which how much" in odd


def test_a_step_after_the_share_was_freed_by_hand_does_not_start(node: Node) -> None:
    node.begins("12")
    freed = node.here.pumice("share", "delete", "slurm-12", "--force", "--emulated", str(node.here.directory))
    assert freed.returncode == 0, freed.stderr
    task = node.task("12", "echo", "it ran", PATH=f"{node.path}:{os.environ['PATH']}")
    said, _ = task.communicate(timeout=60)
    assert "It was freed by hand" in said
    assert task.returncode == 2


def test_variables_of_where_a_job_was_submitted_lead_to_no_other_book(node: Node, tmp_path: Path) -> None:
    node.begins("12")
    stray = {"PUMICE_RUN_DIR": str(tmp_path / "other"), "PUMICE_SHARE": "r9", "CUDA_DEVICE_MEMORY_LIMIT_1": "1m"}
    words = "echo $PUMICE_SHARE $CUDA_DEVICE_MEMORY_LIMIT $CUDA_DEVICE_MEMORY_LIMIT_1"
    said, _ = node.task("12", "sh", "-c", words, **stray).communicate(timeout=60)
    assert said == "slurm-12 3072m\n"


def test_a_process_that_outlives_its_job_keeps_the_share_and_the_job_may_run_again(node: Node) -> None:
    node.begins("12", "gres:pumice:memory:8G")
    task = node.task("12", "env", "-i", "/bin/sleep", "100")
    try:
        wait_until(lambda: node.here.ps()[0]["pids"] == [task.pid])
        assert node.call("epilog", "12").returncode == 0
        (left,) = node.here.ps()
        assert (left["id"], left["pids"]) == ("r1", [task.pid]), "by the mark: it has cleared its environment"
        node.begins("12", "gres:pumice:memory:8G")  # on the other card
        assert sorted(ids(node)) == ["r1", "slurm-12"]
    finally:
        task.kill()
        task.communicate()
    wait_until(lambda: ids(node) == ["slurm-12"])


def test_slurm_is_asked_for_jobs_whose_epilog_never_ran_only_where_room_is_missing(node: Node) -> None:
    node.begins("12", "gres:pumice:memory:9G")
    node.begins("13", "gres:pumice:memory:9G")
    node.jobs.write_text("13|gres:pumice:memory:9G|train\n")  # 12 has gone
    assert "--nodelist" not in node.asked.read_text()
    node.begins("14", "gres:pumice:memory:9G")
    assert sorted(ids(node)) == ["slurm-13", "slurm-14"]
    assert "--nodelist n" in node.asked.read_text()


def test_where_slurm_does_not_answer_the_prolog_fails_and_nothing_is_booked(node: Node, tmp_path: Path) -> None:
    (tmp_path / "bin/squeue").write_text("#!/bin/sh\necho Unable to contact slurm controller >&2\nexit 1\n")
    done = node.call("prolog", "12")
    assert (done.returncode, "Unable to contact slurm controller" in done.stderr) == (1, True)
    (tmp_path / "bin/squeue").unlink()
    done = node.call("prolog", "12")
    assert (done.returncode, "squeue is not in" in done.stderr) == (1, True)
    assert ids(node) == []


def test_others_cannot_lead_what_the_prolog_writes_elsewhere(node: Node, tmp_path: Path) -> None:
    node.begins("11")
    (tmp_path / "else").mkdir()
    (node.here.directory / "run/slurm").symlink_to(tmp_path / "else")
    with open(node.jobs, "a") as file:
        file.write("12|gres:pumice:memory:80G|x\n")
    assert node.call("prolog", "12").returncode == 1
    assert list((tmp_path / "else").iterdir()) == []


def test_a_jobs_share_is_ended_by_hand_only_by_force(node: Node) -> None:
    node.begins("12")
    words = ("share", "delete", "slurm-12", "--emulated", str(node.here.directory))
    held = node.here.pumice(*words)
    assert held.returncode == 2
    assert "Slurm job 12 has it, and `scancel 12` ends both; --force if Slurm no longer knows the job" in held.stderr
    assert node.here.pumice(*words, "--force").returncode == 0
    assert ids(node) == []
    taken = node.here.pumice("share", "create", "slurm-12", "--memory", "1G", "--emulated", str(node.here.directory))
    assert (taken.returncode, "nor slurm-1" in taken.stderr) == (2, True)
