"""``pumice explain``, ``fits``, ``dump`` and ``replay`` work from a file, with exit codes and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.command_line import CONF, write_case
from kit.device_world import card, vgpu_node

from pumice.cli import main as cli
from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of, load, save, trimmed
from pumice.model.errors import BadInput
from pumice.wire import names
from pumice.wire.objects import Node, Pod

CONTAINER = "kind: Pod\nmetadata: {name: hami-pod}\nspec:\n  schedulerName: volcano\n  containers:\n  - resources:"


@pytest.fixture
def case_file(tmp_path: Path) -> Path:
    return write_case(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out + captured.err


def test_a_waiting_pod_is_explained_card_by_card_with_what_would_let_it_in(
    case_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(capsys, "explain", "pod", "both", "--from", case_file)
    assert code == 0
    assert "0/1 nodes are unavailable: 1 hami-vgpuDeviceSharing: memory 1 of 2 cards; 2 wanted, 1 fit" in text
    assert "1 × wants memory 8000 MiB, 6384 MiB is free" in text
    assert "ask for memory 6384 MiB instead of 8000" in text
    assert "ask for cards 1 instead of 2" in text
    assert "let this pod leave n1: " in text


def test_memory_in_the_wrong_unit_is_explained_to_a_beginner(
    case_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = run(capsys, "explain", "pod", "gib", "--from", case_file)
    assert "8Gi is 8589934592 MiB; this counts MiB, not bytes: for 8Gi of memory write 8192" in text
    _, text = run(capsys, "explain", "pod", "bytes", "--from", case_file)
    assert "write volcano.sh/vgpu-memory: 2048, if 2147483648 was meant in bytes; the unit is MiB" in text


def test_the_same_answer_as_json(case_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = run(capsys, "explain", "pod", "both", "--from", case_file, "-o", "json")
    answer = json.loads(text)
    assert answer["node"] is None
    assert answer["misfits"][0]["cards"][0] == {
        "uuid": "GPU-aaa", "short": "memory", "wanted": 8000, "best": 6384, "detail": "wants memory 8000 MiB, 6384 MiB is free",
        "unit": "MiB"
    }  # fmt: skip
    assert {change["kind"] for change in answer["changes"]} == {"memory", "cards", "evict"}


def test_an_unknown_pod_is_one_line_and_exit_code_2(case_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "explain", "pod", "none", "--from", case_file)
    assert (code, text.strip()) == (2, "pumice: no pod default/none")
    code, text = run(capsys, "explain", "pod", "boht", "--from", case_file)
    assert (code, text.strip()) == (2, "pumice: no pod default/boht; did you mean 'both'?")
    code, text = run(capsys, "explain", "pod", "elsewhere/both", "--from", case_file)
    assert (code, text.strip()) == (2, "pumice: no pod elsewhere/both; there is default/both")
    code, text = run(capsys, "explain", "node", "none", "--from", case_file)
    assert code == 2


def test_a_manifest_is_asked_about_before_it_exists(
    case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "pod.yaml"
    text = f"{CONTAINER}\n      limits: {{volcano.sh/vgpu-memory: %s}}\n"
    manifest.write_text(text % 6000)
    code, answer = run(capsys, "fits", "-f", manifest, "--from", case_file)
    assert (code, "fits on 1 of 1 nodes; n1 is next" in answer) == (0, True)
    assert "GPU-aaa memory 6000 MiB cores 0 %" in answer
    manifest.write_text(text % 17000)
    code, answer = run(capsys, "fits", "-f", manifest, "--from", case_file)
    assert (code, "ask for memory 16384 MiB instead of 17000" in answer) == (1, True)
    manifest.write_text("kind: Service\n")
    assert run(capsys, "fits", "-f", manifest, "--from", case_file)[0] == 2


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        ({"limits": {names.VGPU_MEMORY: 3000, "volcano.sh/gpu-memory": 100}},
         "volcano.sh/gpu-memory: the scheduler's configuration does not share it; did you mean 'volcano.sh/vgpu-memory'?"),
        ({"limits": {"nvidia.com/gpu": 1}}, "no node offers nvidia.com/gpu; did you mean 'volcano.sh/vgpu-number'?"),
        ({"limits": {names.VGPU_NUMBER: 1, names.VGPU_MEMORY_PERCENTAGE: 150}},
         "ask for 100 per cent of the memory instead of 150"),
        ({"limits": {names.VGPU_MEMORY: 3000}, "mode": "HAMi-Core"}, "ask for mode hami-core instead of 'HAMi-Core'"),
    ],
)  # fmt: skip
def test_what_may_have_been_meant_is_said(
    wanted: dict[str, Any], answer: str, case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = {names.VGPU_MODE: wanted["mode"]} if "mode" in wanted else {}
    pod = {"kind": "Pod", "metadata": {"name": "new", "annotations": notes},
           "spec": {"schedulerName": "volcano", "containers": [{"resources": {"limits": wanted["limits"]}}]}}  # fmt: skip
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    code, text = run(capsys, "fits", "-f", tmp_path / "pod.json", "--from", case_file)
    assert (code, answer in text) == (1, True), text


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "Job"])
def test_a_manifest_that_names_no_scheduler_does_not_fit_for_another_one_places_it(
    kind: str, case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod: dict[str, Any] = {"spec": {"containers": [{"resources": {"limits": {names.VGPU_MEMORY: 100}}}]}}
    manifest = tmp_path / "new.json"
    written = {**pod, "kind": "Pod"} if kind == "Pod" else {"kind": kind, "spec": {"template": pod}}
    manifest.write_text(json.dumps({**written, "metadata": {"name": "new"}}))
    code, text = run(capsys, "fits", "-f", manifest, "--from", case_file)
    assert code == 1
    assert "kept back: it names no schedulerName, so default-scheduler places it" in text
    assert "write schedulerName: volcano" in text
    code, text = run(capsys, "fits", "-f", manifest, "--from", case_file, "--scheduler-name", "default-scheduler")
    assert (code, "kept back" in text) == (0, False), "here that one is ours"


def test_a_job_of_volcano_goes_to_volcano_unless_it_says_otherwise(
    case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = {"spec": {"containers": [{"resources": {"limits": {names.VGPU_MEMORY: 100}}}]}}
    for said, code in ({}, 0), ({"schedulerName": "default-scheduler"}, 1):
        job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {**said, "tasks": [{"name": "w", "template": template}]}}
        (tmp_path / "job.json").write_text(json.dumps(job))
        assert run(capsys, "fits", "-f", tmp_path / "job.json", "--from", case_file)[0] == code


def test_a_file_that_is_no_manifest_is_one_error(tmp_path: Path, case_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("# Pumice\n\nFractions of GPUs: one: two\n")
    code, text = run(capsys, "fits", "-f", tmp_path / "README.md", "--from", case_file)
    assert code == 2
    assert text.count("\n") == 1
    assert text.startswith(f"pumice: {tmp_path}/README.md:3: ")


def requested(
    wanted: dict[str, Any], case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], **notes: str
) -> dict[str, Any]:
    pod = {"kind": "Pod", "metadata": {"name": "new", "annotations": notes},
           "spec": {"schedulerName": "volcano", "containers": [{"resources": {"limits": wanted}}]}}  # fmt: skip
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    _, text = run(capsys, "fits", "-f", tmp_path / "pod.json", "--from", case_file, "-o", "json")
    answer: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]  # warnings follow
    return answer


def test_a_misspelt_resource_is_offered_under_the_name_that_was_meant(
    case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits_of = {names.VGPU_NUMBER: 1, "volcano.sh/vgpu-memroy": 3000}
    answer = requested(limits_of, case_file, tmp_path, capsys)
    assert answer["hints"] == [f"no node offers volcano.sh/vgpu-memroy; did you mean '{names.VGPU_MEMORY}'?"]
    assert [(change["kind"], change["text"], change["node"]) for change in answer["changes"]] == [
        ("name", f"write {names.VGPU_MEMORY} instead of volcano.sh/vgpu-memroy", "n1")
    ]


def test_a_combined_offer_speaks_of_a_whole_card_where_nobody_wrote_a_number(
    case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = {names.USE_GPU_UUID: "GPU-aaa"}
    answer = requested({names.VGPU_NUMBER: 2}, case_file, tmp_path, capsys, **only)
    texts = [change["text"] for change in answer["changes"] if change["kind"] == "combined"]
    assert len(texts) == 1
    assert f"{names.VGPU_MEMORY}: 6384 instead of a whole card" in texts[0], texts


def test_programs_are_told_the_numbers_of_what_is_insufficient(
    case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for resource, amount, wanted, best in (("cpu", "4500m", 4500, 0), (names.VGPU_NUMBER, 90, 90, 79)):
        answer = requested({resource: amount}, case_file, tmp_path, capsys)
        (fit_error,) = answer["misfits"]
        assert (fit_error["text"], fit_error["wanted"], fit_error["best"]) == (f"Insufficient {resource}", wanted, best)


def test_the_templates_of_a_volcano_job_are_asked_about_in_its_queue(
    case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = load(case_file)
    case.scheduler_conf = CONF.replace("  - name: predicates", "  - name: predicates\n  - name: proportion")
    case.objects["queues"] = [{"metadata": {"name": "team"}, "spec": {"capability": {names.VGPU_MEMORY: "2000"}}}]
    case_file.write_text(save(case))
    template = {"spec": {"containers": [{"resources": {"limits": {names.VGPU_MEMORY: 3000}}}]}}
    job = {"kind": "Job", "metadata": {"name": "j"},
           "spec": {"schedulerName": "volcano", "queue": "team", "tasks": [{"name": "w", "template": template}]}}  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(job))
    code, text = run(capsys, "fits", "-f", tmp_path / "job.json", "--from", case_file)
    assert code == 1
    assert "kept back: queue team has no room left for it" in text
    assert "What would let it in, one of:\n  - ask for memory 2000 MiB instead of 3000" in text


@pytest.mark.parametrize("wrong", ["null", "[3000]", "{a: 1}"])
def test_a_manifest_that_the_api_server_would_not_take_is_refused_with_the_line_of_the_amount(
    wrong: str, case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(CONTAINER + f"\n      limits:\n        volcano.sh/vgpu-memory: {wrong}\n")
    code, text = run(capsys, "fits", "-f", manifest, "--from", case_file)
    assert code == 2
    assert "pod.yaml:8: warning: volcano.sh/vgpu-memory: " in text
    assert "pod.yaml:1: no pod that the API server would take" in text


def test_the_guides_fragment_without_a_kind_is_asked_about_with_a_warning(
    case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(CONTAINER.replace("kind: Pod\n", "") + " {limits: {volcano.sh/vgpu-memory: 3000}}\n")
    code, text = run(capsys, "fits", "-f", manifest, "--from", case_file)
    assert (code, "default/hami-pod: fits on 1 of 1 nodes" in text) == (0, True)
    assert "pod.yaml:1: warning: this looks like a Pod, but kubectl takes it only with apiVersion: v1 and kind: Pod" in text


def test_nodes_that_refuse_alike_are_told_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = [vgpu_node(f"n{number}", card(f"GPU-{number}", 16384)) for number in range(1000)]
    for node in nodes:
        node.status.allocatable["pods"] = 110
    objects = {"nodes": [trimmed(msgspec.to_builtins(node), Node) for node in nodes]}
    path, manifest = tmp_path / "case.json", tmp_path / "pod.yaml"
    path.write_text(save(ClusterSnapshot(scheduler_conf=CONF, objects=objects)))
    manifest.write_text(CONTAINER + " {limits: {volcano.sh/vgpu-memory: 17000}}\n")
    _, text = run(capsys, "fits", "-f", manifest, "--from", path)
    assert "\n  n0, n1, n2 and 997 more  hami-vgpuDeviceSharing: memory 1 of 1 cards\n" in text
    assert len(text.splitlines()) < 10
    _, wide = run(capsys, "fits", "-f", manifest, "--from", path, "-o", "wide")
    assert wide.count("wants memory 17000 MiB, 16384 MiB is free") == 1000


def test_a_dump_replays_to_the_same_decisions_and_says_when_it_does_not(
    case_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(capsys, "replay", case_file)
    assert (code, "the same decisions as in the file" in text) == (0, True)
    case = load(case_file)
    case.decisions[0]["node"] = "elsewhere"
    case_file.write_text(save(case))
    code, text = run(capsys, "replay", case_file)
    assert (code, "the decisions differ" in text) == (1, True)


def test_a_file_that_is_no_dump_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("{}", "[", '{"kind": "PumiceCase", "now": "x"}'):
        path.write_text(text)
        with pytest.raises(BadInput, match=r"x\.json: "):
            load(path)


@pytest.mark.parametrize(
    ("kind", "wrong", "says"),
    [
        ("nodes", {"metadata": "x"}, r"objects\.nodes\[1\]: .*metadata"),
        ("pods", {"spec": {"containers": {}}}, r"objects\.pods\[4\]: .*containers"),
        ("namespaces", {"metadata": 3}, r"objects\.namespaces\[0\]: "),
        ("volumes", {"metadata": {"name": "v"}, "spec": 3}, r"objects\.volumes\[0\]: "),
    ],
)
def test_an_object_of_a_dump_that_cannot_be_read_is_named(
    kind: str, wrong: dict[str, Any], says: str, case_file: Path
) -> None:
    case = load(case_file)
    case.objects.setdefault(kind, []).append(wrong)
    with pytest.raises(BadInput, match=says):
        engine_of(case)


def test_a_dump_of_another_form_or_with_a_misspelt_list_is_refused(case_file: Path) -> None:
    written = json.loads(case_file.read_text())
    case_file.write_text(json.dumps({**written, "version": 2}))
    with pytest.raises(BadInput, match="written in form 2, this pumice reads form 1"):
        load(case_file)
    case_file.write_text(json.dumps({**written, "objects": {"pdos": []}}))
    with pytest.raises(BadInput, match=r"objects\.pdos: nothing reads this; did you mean 'pods'"):
        load(case_file)


def test_a_dump_holds_neither_environment_nor_commands() -> None:
    secret = {"metadata": {"name": "p", "managedFields": [{}]}, "spec": {"containers": [
        {"name": "c", "command": ["hush"], "env": [{"name": "TOKEN", "value": "hush"}], "resources": {"limits": {"cpu": 1}}}
    ]}}  # fmt: skip
    secret["metadata"]["annotations"] = {  # type: ignore[index]
        "kubectl.kubernetes.io/last-applied-configuration": "hush", "volcano.sh/vgpu-mode": "mig", "gpu": "lock",
        "scheduling.volcano.sh/queue-name": "q", "kubernetes.io/config.mirror": "1",
    }  # fmt: skip
    slim = trimmed(secret, Pod)
    assert "hush" not in json.dumps(slim)
    assert sorted(slim["metadata"]["annotations"]) == [
        "gpu", "kubernetes.io/config.mirror", "scheduling.volcano.sh/queue-name", "volcano.sh/vgpu-mode",
    ]  # fmt: skip


def test_what_keeps_a_pod_from_being_looked_at_is_said(case_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load(case_file)
    small = {"containers": [{"name": "c", "resources": {"limits": {names.VGPU_MEMORY: 100}}}]}
    case.objects["pods"] += [
        {"metadata": {"name": "other", "namespace": "default", "uid": "u1"}, "spec": small},
        {"metadata": {"name": "gated", "namespace": "default", "uid": "u2"},
         "spec": {**small, "schedulerName": "volcano", "schedulingGates": [{"name": "example.com/wait"}]}},
        {"metadata": {"name": "done", "namespace": "default", "uid": "u3"}, "spec": small, "status": {"phase": "Failed"}},
    ]  # fmt: skip
    case_file.write_text(save(case))
    _, text = run(capsys, "explain", "pod", "other", "--from", case_file)
    assert "its schedulerName is 'default-scheduler'; this scheduler places pods of volcano" in text
    _, text = run(capsys, "explain", "pod", "gated", "--from", case_file)
    assert "held by its scheduling gates: example.com/wait" in text
    _, text = run(capsys, "explain", "pod", "done", "--from", case_file)
    assert "has ended: Failed" in text
