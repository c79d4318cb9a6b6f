"""``pumice simulate``: its variants, its page, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from kit.command_line import Called, call, write_case

from pumice.cli.simulate import app
from pumice.model.errors import BadInput

FLOW = "pods=60,shape=shares,arrival=poisson:1/s,duration=fixed:30s"
MADE = ("--add", "nodes=2,model=A100-SXM4-80GB,cards=2")
JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train}
spec:
  minAvailable: 2
  tasks:
  - name: worker
    replicas: 3
    template:
      spec:
        containers: [{name: c, image: any, resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 4000}}}]
"""


def simulate(*words: str) -> Called:
    return call(app, words)


def variants(*words: str) -> Sequence[dict[str, object]]:
    called = simulate(*words, "-o", "json")
    assert called.exit_code == 0, (called.stderr, called.exception)
    found: list[dict[str, object]] = json.loads(called.stdout)["variants"]
    return found


def test_policies_stand_side_by_side() -> None:
    called = simulate(*MADE, "--generate", FLOW, "--policy", "binpack", "--policy", "spread")
    assert called.exit_code == 0, called.exception
    assert re.search(r"binpack +spread", called.stdout)
    assert re.search(r"placed +60 of 60 +60 of 60", called.stdout)
    assert "fragmentation, mean / end" in called.stdout


def test_a_change_stands_beside_the_cluster_as_it_is(tmp_path: Path) -> None:
    case = write_case(tmp_path)
    base, more = variants("--from", str(case), "--add", "nodes=1,model=V100", "--generate", "pods=9,shape=whole")
    assert base["variant"] == "as configured"
    assert more["variant"] == "add nodes=1,model=V100"
    assert more["whole"]["placed"] > base["whole"]["placed"]  # type: ignore[index]


def test_a_trace_a_job_and_a_configuration_are_played(tmp_path: Path) -> None:
    nodes, pods, job, conf = (tmp_path / name for name in ("nodes.csv", "pods.csv", "job.yaml", "my.conf"))
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn-1,64000,262144,2,P100\n")
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np-1,4000,1000,1,500\np-2,4000,1000,1,700\n")
    conf.write_text("actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n  - name: deviceshare\n"
                    "    arguments: {deviceshare.VGPUEnable: true}\n")  # fmt: skip
    (one,) = variants("--trace", str(nodes), "--trace", str(pods), "--conf", str(conf))
    assert one["variant"] == "my.conf"
    assert one["whole"]["placed"] == 2  # type: ignore[index]
    job.write_text(JOB)
    (gang,) = variants(*MADE, "-f", str(job))
    assert set(gang["starts"]) == {"default/train-0", "default/train-1", "default/train-2"}  # type: ignore[call-overload]


def test_the_page_opens_from_disk_and_asks_nobody(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert simulate(*MADE, "--generate", FLOW, "--policy", "binpack", "--policy", "spread", "--html", str(page)).exit_code == 0
    text = page.read_text()
    assert text.count("<svg") == 6
    assert not re.search(r"https?://|<script|<link|@import|url\(", text)


def test_failures_of_nodes_are_played_and_the_seed_decides() -> None:
    words = (*MADE, "--generate", FLOW, "--fail", "every=1m,for=10s")
    (one,), (again,), (other,) = variants(*words), variants(*words), variants(*words, "--seed", "2")
    assert one["failures"]
    assert one == again
    assert one != other


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no nodes"),
        (MADE, "nobody arrives"),
        ((*MADE, "--generate", FLOW, "--policy", "binpak"), "did you mean 'binpack'?"),
        ((*MADE, "--generate", FLOW, "-o", "jsn"), "did you mean 'json'?"),
        (("--add", "nodes=1,model=nothing-like-it", "--generate", FLOW), "no model 'nothing-like-it'"),
        (("--from", "missing.json"), "missing.json: No such file"),
    ],
)
def test_what_cannot_be_is_one_line(words: Sequence[str], said: str) -> None:
    called = simulate(*words)
    assert isinstance(called.exception, BadInput)
    assert said in str(called.exception)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"kind": "PumiceCase", "version": 99}', "written in form 99"),
        ('{"kind": "PumiceCase", "version": 1, "obj', "no JSON"),
        ("{}", "not written by `pumice dump`"),
    ],
)
def test_a_dump_that_is_newer_or_cut_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "case.json").write_text(text)
    called = simulate("--from", str(tmp_path / "case.json"))
    assert isinstance(called.exception, BadInput)
    assert said in str(called.exception)


def test_pods_larger_than_any_node_are_told(tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text("kind: Pod\nmetadata: {name: huge}\nspec: {containers: [{name: c, resources: {limits: {cpu: 1000}}}]}\n")
    called = simulate(*MADE, "-f", str(pod))
    assert "larger than any node: default/huge" in called.stdout
