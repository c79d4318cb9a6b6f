"""Slurm's text: the gres of a job, what squeue prints, and what a TaskProlog says."""

from __future__ import annotations

import pytest

from pumice.model.errors import BadInput
from pumice.wire.slurm import Ask, Job, parse_gres, parse_jobs, render_task, render_words

ASKS = [
    ("gres:pumice:memory:3G,gres:pumice:cores:50", Ask(3072, 50)),  # 22.05
    ("gres/pumice:memory=3G,gres/pumice:cores=50", Ask(3072, 50)),  # 23.11
    ("pumice:memory:1536m", Ask(1536, 0)),
    ("gres:gpu:a100:2,gres:pumice:memory:1048577", Ask(2, 0)),
    ("gres:pumice:memory:1G,gres:pumice:memory:1G", Ask(2048, 0)),
    ("gres:gpu:2,gres:shard:3", None),
    ("N/A", None),
    ("", None),
    ("(null)", None),
]


@pytest.mark.parametrize(("text", "wanted"), ASKS)
def test_what_a_job_asks_is_read_as_each_version_writes_it(text: str, wanted: Ask | None) -> None:
    assert parse_gres(text) == wanted


WRONG = [
    ("gres:pumice:memory:3000", "Slurm counts bytes"), ("gres:pumice:cores:50", "no memory of the card"),
    ("gres:pumice:3G", "say of which how much"), ("gres:pumice", "say of which how much"),
    ("gres:pumice:memory:-1", "say of which how much"), ("gres:pumice:memory:3G:1", "say of which how much"),
    ("gres:pumice:slots:3", "say of which how much"), ("gres:pumice:memory:1G,gres:pumice:cores:101", "at most 100"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_what_nobody_can_give_is_refused_with_what_would_be_right(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        parse_gres(text)


def test_a_jobs_name_says_nothing_of_its_share() -> None:
    text = "12|gres:pumice:memory:3G|a|gres:pumice:memory:80G\n13|N/A|x\nslurm_load_jobs error: no\n|N/A|y\n"
    assert parse_jobs(text) == {"12": Job("gres:pumice:memory:3G", "a|gres:pumice:memory:80G"), "13": Job("N/A", "x")}


def test_a_task_is_told_what_changes_and_nothing_else() -> None:
    before = {"HOME": "/root", "CUDA_DEVICE_MEMORY_LIMIT_1": "9m", "LD_PRELOAD": "a.so"}
    after = {"HOME": "/root", "LD_PRELOAD": "v.so:a.so", "PUMICE_SHARE": "slurm-12"}
    told = ["unset CUDA_DEVICE_MEMORY_LIMIT_1", "export LD_PRELOAD=v.so:a.so", "export PUMICE_SHARE=slurm-12"]
    assert render_task(before, after).splitlines() == told
    with pytest.raises(BadInput, match="more than one line"):
        render_task({}, {"LD_PRELOAD": "v.so:a\nexport X=1"})


def test_what_is_said_in_front_of_a_task_gives_a_terminal_no_orders() -> None:
    assert render_words(["no room", "\x1b[2Jx\nexport A=1"]) == "print no room\nprint ?[2Jx?export A=1\n"
