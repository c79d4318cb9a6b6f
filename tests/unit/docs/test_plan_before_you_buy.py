"""The commands of ``docs/how-to/plan-before-you-buy.md`` run as they are written, on a small cluster and a small trace."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from kit import page_commands
from kit.command_line import call, write_case

from pumice.cli.simulate import app

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "plan-before-you-buy.md"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n-{i},64000,262144,2,G2\n" for i in range(3))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np-1,4000,1000,1,500\np-2,4000,1000,1,1000\np-3,4000,1000,2,1000\n"
JOB = """
kind: Job
metadata: {name: train}
spec: {parallelism: 2, template: {spec: {containers: [{name: c, resources: {limits: {volcano.sh/vgpu-number: 1}}}]}}}
"""


def commands() -> list[str]:
    lines = "".join(block.text for block in page_commands.blocks(PAGE.read_text("utf-8"))).replace("\\\n", " ").splitlines()
    assert all(line.startswith("pumice ") for line in lines)
    return [line for line in lines if line.startswith("pumice simulate")]


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_page_runs_and_writes_its_picture(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_case(tmp_path).replace("case.json")
    for name, text in (("openb_node_list_gpu_node.csv", NODES), ("openb_pod_list_default.csv", PODS), ("job.yaml", JOB)):
        Path(name).write_text(text)
    words = [word.replace("pods=10800", "pods=30").replace("pods=5000", "pods=30").replace("pods=500,", "pods=30,")
             for word in shlex.split(line)[2:]]  # fmt: skip
    called = call(app, words)
    assert called.exit_code == 0, (called.stderr, called.exception)
    assert "placed" in called.stdout
    if "--html" in words:
        text = Path(words[words.index("--html") + 1]).read_text()
        assert text.count("<svg") == 4 + ("Cores of cards" in text) + ("CPUs beside cards" in text)
