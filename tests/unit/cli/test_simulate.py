"""``pumice simulate``: its variants, its page, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kit.command_line import Called, call, write_case
from kit.control_plane import control_plane, write_kubeconfig
from kit.device_claims import cards
from kit.installing import install

from pumice.adapters.kube import KubeClient
from pumice.cli.cluster_snapshot import ClusterSnapshot, save
from pumice.cli.simulate import app
from pumice.cli.simulation_inputs import shipped_conf
from pumice.model.errors import BadInput
from pumice.simulation import manifests
from pumice.wire import names
from pumice.wire.nvidia_vgpu import parse_register

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
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: share}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
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


def test_cores_are_shown_where_a_pod_asks_for_them(tmp_path: Path) -> None:
    flow = ("--generate", "pods=3,shape=whole,arrival=once", "--html", str(tmp_path / "page.html"))
    for pod, shown in (("{cpu: 1}", False), ("{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-cores: 50}", True)):
        (tmp_path / "pod.yaml").write_text(
            f"kind: Pod\nmetadata: {{name: one}}\nspec: {{containers: [{{name: c, resources: {{limits: {pod}}}}}]}}\n")
        printed = simulate(*MADE, "-f", str(tmp_path / "pod.yaml"), *flow).stdout
        assert ("cores of cards" in printed) is shown
        assert ("Cores of cards" in (tmp_path / "page.html").read_text()) is shown
        assert "CPUs beside cards" in printed


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
    assert set(gang["starts"]) == {f"default/train-worker-{i}" for i in range(3)}  # type: ignore[call-overload]


def test_two_configurations_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    confs = [tmp_path / folder / "my.conf" for folder in ("old", "new")]
    for conf, policy in zip(confs, ("binpack", "spread"), strict=True):
        conf.parent.mkdir()
        conf.write_text("actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n  - name: deviceshare\n"
                        f"    arguments: {{deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: {policy}}}\n")  # fmt: skip
    flags = [word for conf in confs for word in ("--conf", str(conf))]
    found = variants(*MADE, "--generate", FLOW, *flags)
    assert [one["variant"] for one in found] == [str(conf) for conf in confs]
    assert found[0]["starts"] != found[1]["starts"]


def test_the_page_opens_from_disk_and_asks_nobody(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert simulate(*MADE, "--generate", FLOW, "--policy", "binpack", "--policy", "spread", "--html", str(page)).exit_code == 0
    text = page.read_text()
    assert text.count("<svg") == 5, "no pod asks for cores"
    assert not re.search(r"https?://|<script|<link|@import|url\(", text)


def test_failures_of_nodes_are_played_and_the_seed_decides() -> None:
    words = (*MADE, "--generate", FLOW, "--fail", "every=1m,for=10s")
    (one,), (again,), (other,) = variants(*words), variants(*words), variants(*words, "--seed", "2")
    assert one["failures"]
    assert one == again
    assert one != other


def test_what_kubectl_writes_is_a_cluster_and_its_running_pods_stay(tmp_path: Path) -> None:
    node, job = manifests.node("n1", cpu="8", memory="64Gi", model="A100-SXM4-80GB", cards=1, mib=80000), tmp_path / "job.yaml"
    placed = manifests.pod({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "60000"})
    placed["metadata"] |= {"name": "old", "namespace": "default", "uid": "u1"}
    placed["metadata"]["annotations"] = {"volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,60000,0:"}
    placed["spec"]["nodeName"] = "n1"
    items = [{"kind": "Node", **node}, {"kind": "Pod", **placed, "status": {"phase": "Running"}}]
    (tmp_path / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    job.write_text(JOB.replace("4000", "30000"))
    (one,) = variants("-f", str(tmp_path / "all.json"), "-f", str(job))
    assert one["stayed"] == ["default/old"]
    assert one["starts"] == {}  # 20,000 MiB are left, and the gang needs two of 30,000
    assert one["end"]["memory"] == 75  # type: ignore[index]


def test_a_node_that_is_taken_away_lets_its_pods_wait_and_they_are_named(tmp_path: Path) -> None:
    case = write_case(tmp_path)
    document = json.loads(case.read_text())
    (node,) = document["objects"]["nodes"]
    node["status"]["allocatable"]["cpu"] = "4"
    pod = manifests.pod({"cpu": "10m"})
    pod["metadata"] |= {"name": "moved", "namespace": "default", "uid": "u1"}
    pod["spec"]["nodeName"] = node["metadata"]["name"]
    document["objects"]["pods"] = [pod, {**pod, "metadata": {**pod["metadata"], "name": "new", "uid": "u2"},
                                         "spec": {k: v for k, v in pod["spec"].items() if k != "nodeName"}}]  # fmt: skip
    case.write_text(json.dumps(document))
    called = simulate("--from", str(case), "--without", f"node={node['metadata']['name']}")
    assert called.exit_code == 0, called.exception
    assert "2 no longer placed: default/new, default/moved" in called.stdout


def test_names_of_others_stay_text_in_the_terminal_and_on_the_page(tmp_path: Path) -> None:
    name = "[red]\x1b[31m<script>alert(1)</script>&\"'"
    queue = f"q{name}"
    case, page = write_case(tmp_path), tmp_path / "page.html"
    document = json.loads(case.read_text())
    pods = [manifests.pod({"cpu": "100000"}, queue=queue), manifests.pod({"cpu": "1"})]
    for number, pod in enumerate(pods):
        pod["metadata"] |= {"name": f"{name}{number}", "namespace": "<b>", "uid": f"u{number}"}
    document["objects"]["pods"] = pods
    document["objects"]["queues"] = [{"metadata": {"name": queue}, "spec": {"weight": 1}}]
    case.write_text(json.dumps(document))
    conf = tmp_path / "[bold]<i>.conf"
    conf.write_text(document["scheduler_conf"])
    called = simulate("--from", str(case), "--conf", str(conf), "--html", str(page))
    assert called.exit_code == 0, called.exception
    assert "\x1b" not in called.stdout
    assert "[red]" in called.stdout
    assert "[bold]<i>.conf" in called.stdout
    text = page.read_text()
    assert "&lt;script&gt;" in text
    assert not re.search(r"<script|<b>|<i>", text)


def test_two_policies_in_one_table_are_two_plays_apart() -> None:
    words = (*MADE, "--generate", FLOW)
    both = variants(*words, "--policy", "binpack", "--policy", "spread")
    assert list(both) == [*variants(*words, "--policy", "binpack"), *variants(*words, "--policy", "spread")]


def test_a_page_that_cannot_be_written_is_refused_before_the_play(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        raise simulate(*MADE, "--generate", FLOW, "--html", str(tmp_path / "none" / "x.html")).exception or AssertionError


NODE = "kind: Node\nmetadata: {name: n1}\n"
POD = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, resources: {limits: {cpu: 1}}}]}\n"


def test_claims_are_made_of_the_templates_beside_a_job_and_those_that_pods_share_are_had_once(tmp_path: Path) -> None:
    there = {"kind": "List", "items": [
        {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        *({"kind": "Node", **manifests.node(name, cpu="8", memory="64Gi")} for name in ("n0", "n1")),
        *({"kind": "ResourceSlice", **cards(name, 2)} for name in ("n0", "n1")),
    ]}  # fmt: skip
    template, job = yaml.safe_load(TEMPLATE), yaml.safe_load(JOB)
    claim = {"kind": "ResourceClaim", "metadata": {"name": "both"}, "spec": template["spec"]["spec"]}

    def asking(**entry: str) -> dict[str, object]:
        return {"schedulerName": "volcano", "resourceClaims": [{"name": "c", **entry}],
                "containers": [{"name": "main", "resources": {"claims": [{"name": "c"}]}}]}  # fmt: skip

    job["spec"]["tasks"][0] |= {"template": {"spec": asking(resourceClaimTemplateName="share")}}
    users = [{"kind": "Pod", "metadata": {"name": name}, "spec": asking(resourceClaimName="both")} for name in "ab"]
    (tmp_path / "there.json").write_text(json.dumps(there))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump_all([job, template, claim, *users]))
    words = ("-f", str(tmp_path / "there.json"), "-f", str(tmp_path / "job.yaml"), "--without", "node=n1")
    four, two = (sorted(found["starts"]) for found in variants(*words))  # type: ignore[call-overload]
    assert four == ["default/a", "default/b", *(f"default/train-worker-{number}" for number in range(3))]
    assert two in (["default/a", "default/b"], ["default/train-worker-0", "default/train-worker-1"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NODE + "status: {allocatable: {cpu: lots}}\n", "node n1: cpu: 'lots' is not a quantity"),
        (NODE + "status: nope\n", "m.yaml:1: no Node that the API server would take"),
        (NODE + "---\n" + NODE, "node n1 is there twice"),
        (POD + "---\n" + POD, "pod default/a is there twice"),
        (POD.replace("cpu: 1", "cpu: -5"), "m.yaml:1: pod a: cpu: -5 is negative"),
        (POD.replace("name: a", "name: [1]"), "m.yaml:1: no pods that the API server would take"),
        (POD + "---\n- 1\n", "m.yaml:5: no object of Kubernetes: it has no kind"),
        (JOB.replace("replicas: 3", "replicas: -3"), "replicas -3: a whole number up to 1,000,000"),
        (JOB.replace("replicas: 3", "replicas: 99999999999"), "a whole number up to 1,000,000"),
        (JOB.replace("minAvailable: 2", "minAvailable: 4"), "minAvailable 4 of 3 pods"),
        (TEMPLATE.replace("exactly", "exact"), "m.yaml:2: ResourceClaimTemplate share: request gpu: exactly one of"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "m.yaml").write_text(text)
    called = simulate(*MADE, "-f", str(tmp_path / "m.yaml"))
    assert isinstance(called.exception, BadInput), called.stdout
    assert said in str(called.exception)


def test_a_model_that_no_node_has_is_named_and_its_pods_fit_no_node(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn-1,64000,262144,2,P100\n")
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np-1,4000,1000,1,500,P10O\n")
    called = simulate("--trace", str(nodes), "--trace", str(pods))
    assert "no node has cards of model P10O, for which 1 pods of the trace ask; did you mean 'P100'?" in called.stderr
    assert "fit no empty node: default/p-1" in called.stdout


INTERRUPTED = """
import sys
from pumice.cli.main import main
sys.argv = ["pumice", "simulate", *sys.argv[1:]]
main()
"""


def test_an_interrupt_ends_a_play_with_what_is_known_and_whole_json() -> None:
    long = "pods=100000,shape=shares,arrival=poisson:20/s,duration=fixed:30s"
    words = ("--add", "nodes=50,model=A100-SXM4-80GB", "--generate", long,
              *("--policy", "binpack", "--policy", "spread"), *("-o", "json"))
    with terminal([sys.executable, "-c", INTERRUPTED, *words]) as (process, shown):
        shown("arrivals; Ctrl-C ends it")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT  # 130 in a shell
    (one,) = json.loads(out)["variants"]
    assert one["interrupted"]
    assert 0 < one["whole"]["placed"] <= one["whole"]["pods"] < 100000


@contextmanager
def terminal(words: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], None]]]:
    """A program whose standard error is a terminal, and a wait for what it shows there."""
    ours, its = os.openpty()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=its, text=True)
    os.close(its)
    seen = b""

    def shown(text: str) -> None:
        nonlocal seen
        while text.encode() not in seen:
            assert select.select([ours], [], [], 60)[0], seen
            seen += os.read(ours, 4096)

    try:
        yield process, shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)


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


def test_a_trace_of_ten_million_lines_is_refused_without_being_taken_in(tmp_path: Path) -> None:
    trace = tmp_path / "pods.csv"
    with trace.open("w") as file:
        file.write("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n")
        file.writelines(["p,1,1,0,0\n" * 100_000] * 100)
    size = trace.stat().st_size
    tracemalloc.start()
    called = simulate(*MADE, "--trace", str(trace))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(called.exception, BadInput)
    assert str(called.exception) == f"{trace}: more than 1,000,000 rows; give fewer of them"
    assert most < size / 3


def test_pods_larger_than_any_node_are_told(tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text("kind: Pod\nmetadata: {name: huge}\nspec: {containers: [{name: c, resources: {limits: {cpu: 1000}}}]}\n")
    called = simulate(*MADE, "-f", str(pod))
    assert "fit no empty node: default/huge: 0/2 nodes are unavailable: 2 Insufficient cpu" in called.stdout


def test_another_cut_of_a_node_stands_beside_the_cluster_as_it_is(tmp_path: Path) -> None:
    node = manifests.node("n1", cpu="64", memory="256Gi", model="A100-SXM4-80GB", cards=1, mib=81920)
    (tmp_path / "case.json").write_text(save(ClusterSnapshot(now=1e9, scheduler_conf=shipped_conf(), objects={"nodes": [node]})))
    (tmp_path / "job.yaml").write_text(JOB.replace("replicas: 3", "replicas: 2").replace("4000", "30000"))
    found = variants("--from", str(tmp_path / "case.json"), "-f", str(tmp_path / "job.yaml"), "--recut", "n1=all-1g")
    assert [one["variant"] for one in found] == ["as configured", "recut n1=all-1g"]
    assert [one["whole"]["placed"] for one in found] == [2, 0]  # type: ignore[index]


def test_a_node_that_is_cut_anew_has_handed_nothing_to_the_pods_that_lost_their_places_there(tmp_path: Path) -> None:
    node = manifests.node("n1", cpu="64", memory="256Gi", model="A100-SXM4-80GB", cards=1, mib=81920)
    (card,) = parse_register(node["metadata"]["annotations"][names.NODE_VGPU_REGISTER]).cards
    cut = f"{card.uuid},10,81920,{card.type},true,mig:"
    given = f"{card.uuid}[group3-0],NVIDIA,20000,25:"
    node["metadata"]["annotations"] |= {names.NODE_VGPU_REGISTER: cut, names.HANDED_OUT: f"runs {given}\n"}
    pod = manifests.pod({names.VGPU_NUMBER: "1", names.VGPU_MEMORY: "20000"})
    pod["metadata"] |= {"name": "runs", "namespace": "default", "uid": "runs", "annotations": {names.VGPU_IDS: given}}
    pod["spec"]["nodeName"], pod["status"] = "n1", {"phase": "Running"}
    objects = {"nodes": [node], "pods": [pod]}
    (tmp_path / "case.json").write_text(save(ClusterSnapshot(now=1e9, scheduler_conf=shipped_conf(), objects=objects)))
    later = ("--generate", "pods=9,shape=whole,arrival=even:1/m,duration=fixed:1h")
    _, after = variants("--from", str(tmp_path / "case.json"), "--recut", "n1=all-disabled", *later)
    assert after["starts"].keys() == {"default/runs"}  # type: ignore[attr-defined]
    assert "quarantined" not in str(after["reasons"])


def test_a_member_of_a_gang_counts_for_the_queue_of_its_pod_group_and_the_table_says_why_it_waits(tmp_path: Path) -> None:
    node = manifests.node("n1", cpu="64", memory="256Gi", model="L4", cards=1, mib=20000)
    pods = [manifests.pod({names.VGPU_NUMBER: "1", names.VGPU_MEMORY: "15000"}) for _ in range(2)]
    for name, one in zip(("w-0", "w-1"), pods, strict=True):
        one["metadata"] |= {"name": name, "namespace": "default", "uid": name}
        one["metadata"]["annotations"] = {names.GROUP_NAME: "w"}
    group = {"metadata": {"name": "w", "namespace": "default", "uid": "w"}, "spec": {"minMember": 2, "queue": "research"}}
    queues = [{"metadata": {"name": name}, "spec": {"weight": 1}} for name in ("default", "research")]
    objects = {"nodes": [node], "pods": pods, "queues": queues, "podGroups": [group]}
    case = tmp_path / "case.json"
    case.write_text(save(ClusterSnapshot(now=1e9, scheduler_conf=shipped_conf(), objects=objects)))
    (found,) = variants("--from", str(case))
    assert found["queues"]["research"]["pods"] == 2  # type: ignore[index]
    assert re.search(r"1 pod waits at the end: default/w-\d: 0/1 nodes are unavailable", simulate("--from", str(case)).stdout)


def test_without_a_queue_its_pods_neither_run_nor_wait_nor_come(tmp_path: Path) -> None:
    node = manifests.node("n1", cpu="64", memory="256Gi", model="L4", cards=1, mib=20000)
    pods = [manifests.pod({names.VGPU_NUMBER: "1", names.VGPU_MEMORY_PERCENTAGE: "100"}, queue=queue) for queue in ("q", "r")]
    for name, one in zip(("runs", "waits"), pods, strict=True):
        one["metadata"] |= {"name": name, "namespace": "default", "uid": name}
    pods[0]["spec"]["nodeName"], pods[0]["status"] = "n1", {"phase": "Running"}
    pods[0]["metadata"]["annotations"][names.VGPU_IDS] = "GPU-n1-0,NVIDIA,20000,0:"
    queues = [{"metadata": {"name": name}, "spec": {"weight": 1}} for name in ("q", "r")]
    objects = {"nodes": [node], "pods": pods, "queues": queues}
    (tmp_path / "case.json").write_text(save(ClusterSnapshot(now=1e9, scheduler_conf=shipped_conf(), objects=objects)))
    found = variants("--from", str(tmp_path / "case.json"), "--without", "queue=q", "--generate", "pods=3,shape=shares,queue=q")
    assert [one["variant"] for one in found] == ["as configured", "without queue=q"]
    assert "default/waits" in found[0]["waits"]  # type: ignore[operator]
    assert list(found[1]["starts"]) == ["default/waits"]  # type: ignore[call-overload]
    assert [one["whole"]["pods"] for one in found] == [4, 1]  # type: ignore[index]


def test_a_running_cluster_is_played_straight_from_its_kubeconfig(tmp_path: Path) -> None:
    with control_plane("embedded", tmp_path / "server") as api:
        path = write_kubeconfig(tmp_path / "config", api)

        async def fill() -> None:
            async with KubeClient.from_kubeconfig(path) as kube:
                await install(kube)

        asyncio.run(fill())
        (tmp_path / "pod.yaml").write_text(JOB.replace("volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 4000", "cpu: 2"))
        found = variants("--kubeconfig", str(path), "-f", str(tmp_path / "pod.yaml"))
    assert [(one["variant"], one["whole"]["placed"]) for one in found] == [("as configured", 3)]  # type: ignore[index]
