"""``pumice defrag plan``: which pods would move where, what starts then, what it costs, and who is never moved."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from kit.engine_world import ALL_PLUGINS
from kit.objects import budget, group, node, pod

from pumice.cli import main as cli
from pumice.cli.cluster_snapshot import ClusterSnapshot, save, trimmed
from pumice.wire import names
from pumice.wire.times import seconds

Json = dict[str, Any]
NOW = "2026-01-01T10:00:00Z"


def running(name: str, at: str, place: int, mib: int, *, owner: str = "sweep", started: str = "2026-01-01T08:00:00Z",
            **more: Any) -> Json:  # fmt: skip
    """A pod that holds so much of one card."""
    made = pod(name, mib=mib, owner=owner, nodeName=at, **more)
    ids = f"GPU-{at}-{place},NVIDIA,{mib},0:"
    made["metadata"]["annotations"] |= {names.VGPU_NODE: at, names.VGPU_IDS: ids, names.DEVICES_TO_ALLOCATE: ids}
    made["status"] = {"phase": "Running", "startTime": started}
    return made


def two_halves(**more: Any) -> list[Json]:
    """One node of two cards, a pod on each of them."""
    return [node("n1", cards=2), running("a", "n1", 0, 3000, **more), running("b", "n1", 1, 4000, started="2026-01-01T07:00:00Z")]


def case_of(tmp_path: Path, *objects: Json) -> str:
    kinds = {"Node": "nodes", "Pod": "pods", "PodGroup": "podGroups", "PodDisruptionBudget": "disruptionBudgets"}
    sorted_: dict[str, list[Json]] = {}
    for obj in objects:
        sorted_.setdefault(kinds[obj["kind"]], []).append(obj)
    file = tmp_path / "case.json"
    file.write_text(save(ClusterSnapshot(now=seconds(NOW), scheduler_conf=ALL_PLUGINS, objects=sorted_)))
    return str(file)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["defrag", *words])
    return int(stopped.value.code or 0), "".join(capsys.readouterr())


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Json:
    _, text = run(capsys, "plan", *words, "-o", "json")
    found: Json = json.loads(text)
    return found


def test_a_move_inside_a_node_lets_a_pod_in_that_wants_a_whole_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "plan", "--for", "late", "--from", case_of(tmp_path, *two_halves(), pod("late", mib=8000)))
    assert code == 0
    assert "pod default/late: 1 pod would be moved, then default/late would start" in text
    assert "n1 card 0: 3000 MiB  n1 card 1: 3000 MiB  2.0 h since its start" in text
    assert "default/late starts on n1 card 0: 8000 MiB" in text
    assert "cost: 1 restart, 2.0 h of work lost" in text


def test_of_two_plans_the_one_that_loses_less_work_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = {names.CHECKPOINTED_AT: "2026-01-01T11:50:00+02:00"}
    objects = two_halves()
    objects[2]["metadata"]["annotations"] |= saved
    (move,) = answer(capsys, "--for", "late", "--from", case_of(tmp_path, *objects, pod("late", mib=8000)))["moves"]
    assert (move["pod"], move["lost"], move["since"]) == ("default/b", 600, "checkpoint")


@pytest.mark.parametrize(("stamp", "doubt"), [
    ("2026-01-01T10:00:01Z", "lies in the future"), ("2999-01-01T00:00:00Z", "lies in the future"),
    ("2026-01-01T06:59:59Z", "lies before the pod's start"), ("yesterday", "is no time in RFC 3339"),
    ("2026-01-01 09:59:00Z", "is no time in RFC 3339"), ("2026-13-01T09:59:00Z", "is no time in RFC 3339"),
    ("2026-01-01T09:59:00Z" * 9999, "is no time in RFC 3339"), ("٢٠٢٦-01-01T09:59:00Z", "is no time in RFC 3339"),
])  # fmt: skip
def test_a_checkpoint_that_cannot_be_true_is_not_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stamp: str, doubt: str
) -> None:
    objects = two_halves(annotations={names.MOVE: "false"})
    objects[2]["metadata"]["annotations"][names.CHECKPOINTED_AT] = stamp
    file = case_of(tmp_path, *objects, pod("late", mib=8000))
    (move,) = answer(capsys, "--for", "late", "--from", file)["moves"]
    assert (move["pod"], move["lost"], move["since"]) == ("default/b", 3 * 3600, "start")
    assert move["doubt"] == f"{names.CHECKPOINTED_AT} {doubt}"
    assert f"default/b: its checkpoint is not believed: {names.CHECKPOINTED_AT} {doubt}" in run(
        capsys, "plan", "--for", "late", "--from", file)[1]  # fmt: skip


GUARD = {"app": "guarded"}


@pytest.mark.parametrize(("more", "reason"), [
    ({"annotations": {names.MOVE: "false"}}, "its annotation pumice.io/move says so"),
    ({"annotations": {names.MOVE: "please not"}}, "its annotation pumice.io/move says so"),
    ({"annotations": {names.PREEMPTABLE: "false"}}, "its annotation volcano.sh/preemptable says so"),
    ({"owner": ""}, "no controller makes it anew"),
    ({"started": "2026-01-01T09:55:01Z"}, "it has run for less than 300 s"),
    ({"priority": 7}, "its priority is higher than 1"),
    ({"group": "g"}, "its gang g would fall under its minimum 2"),
    ({"labels": GUARD}, "PodDisruptionBudget guards allows no disruption"),
    ({"namespace": "kube-system"}, "it belongs to the system"),
])  # fmt: skip
def test_who_says_no_stays_and_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: Json, reason: str
) -> None:
    gang = [group("g", minimum=2)]
    gang[0]["status"]["phase"] = "Running"
    others = [running("c", "n2", 0, 8000, **more)]
    objects = [node("n1", cards=1), node("n2", cards=1), running("a", "n1", 0, 3000, **more), *others, *gang]
    guards = trimmed(budget("guards", GUARD, 0), None)
    code, text = run(capsys, "plan", "--for", "late", "--from", case_of(tmp_path, *objects, guards, pod("late", mib=8000)))
    assert code == 1
    assert "no plan of up to 4 moves was found" in text
    assert f"2 pods stay: {reason} (" in text


def test_of_pods_that_have_ended_nobody_says_that_they_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = running("ended", "n1", 0, 3000)
    ended["status"]["phase"] = "Succeeded"
    objects = [node("n1", cards=1), running("a", "n1", 0, 3000, annotations={names.MOVE: "false"}), ended]
    code, text = run(capsys, "plan", "--for", "late", "--from", case_of(tmp_path, *objects, pod("late", mib=8000)))
    assert code == 1
    assert "1 pod stays: its annotation pumice.io/move says so" in text
    assert "Succeeded" not in text


def test_a_budget_that_allows_a_disruption_lets_the_pod_go_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = two_halves(labels=GUARD)
    objects[2]["metadata"]["annotations"][names.MOVE] = "false"
    guards = trimmed(budget("guards", GUARD, 1), None)
    found = answer(capsys, "--for", "late", "--from", case_of(tmp_path, *objects, guards, pod("late", mib=8000)))
    assert found["cost"]["budgets"] == ["default/guards"]


def test_whole_cards_come_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = case_of(tmp_path, *two_halves())
    found = answer(capsys, "--free-cards", "1", "--model", "v100", "--from", file)
    assert [(free["node"], free["card"]) for free in found["frees"]] == [("n1", 0)]
    assert run(capsys, "plan", "--free-cards", "2", "--from", file)[0] == 1
    assert run(capsys, "plan", "--free-cards", "3", "--from", file)[1].startswith(
        "3 free cards: moving pods does not help: there are 2 such cards")  # fmt: skip


def test_a_gang_starts_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [node("n1", cards=2), running("a", "n1", 0, 3000), running("b", "n1", 1, 3000), node("n2", cards=1)]
    members = [pod(f"m-w-{i}", mib=8000, group="g") for i in range(2)]
    found = answer(capsys, "--for", "podgroup/default/g", "--from", case_of(tmp_path, *objects, group("g", minimum=2), *members))
    assert len(found["moves"]) == 1
    assert sorted(start["pod"] for start in found["starts"]) == ["default/m-w-0", "default/m-w-1"]


def test_what_moving_does_not_help_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = pod("huge", limits={"cpu": "99", "volcano.sh/vgpu-number": "1"})
    objects = [*two_halves(), huge, pod("gated", mib=8000, gated=True), pod("small", mib=10)]
    file = case_of(tmp_path, *objects)
    assert "no node can hold pod default/huge, whoever leaves" in run(capsys, "plan", "--for", "huge", "--from", file)[1]
    assert "scheduling gates hold them" in run(capsys, "plan", "--for", "gated", "--from", file)[1]
    assert run(capsys, "plan", "--for", "small", "--from", file) == (
        0, "pod default/small: n1 takes it: nothing is to be moved\n")  # fmt: skip


@pytest.mark.parametrize(("words", "refusal"), [
    ("", "name one goal"), ("--for a --free-cards 1", "name one goal"), ("--for lat", "no pod default/lat .*late"),
    ("--for podgroup/default/none", "no PodGroup default/none"), ("--for x/y/z", "write NAMESPACE/NAME"),
    ("--free-cards 1 --model H200", "no open card of model 'H200'; there are NVIDIA-Tesla V100"),
    ("--for late --model H200", "--model goes with --free-cards"), ("--for late -o yaml", "text or json"),
    ("--for late --min-age soon", "--min-age"), ("--for late --max-moves 0", "max-moves"),
])  # fmt: skip
def test_nonsense_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, refusal: str) -> None:
    code, text = run(capsys, "plan", *words.split(), "--from", case_of(tmp_path, *two_halves(), pod("late", mib=8000)))
    assert code == 2
    assert re.search(refusal, text), text


def test_the_picture_of_a_plan_shows_each_card_now_and_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "moves.html"
    file = case_of(tmp_path, *two_halves(), pod("late", mib=8000))
    code, _ = run(capsys, "plan", "--for", "late", "--from", file, "--html", str(page))
    text = page.read_text()
    assert code == 0
    assert text.count("<svg") == 1
    assert re.findall(r"<title>default/(\w+): ([\d,]+) of 8,000", text) == [
        ("a", "3,000"), ("late", "8,000"), ("b", "4,000"), ("b", "4,000"), ("a", "3,000"),
    ], "card 0 now and then, card 1 now and then"  # fmt: skip
    assert not re.search(r"https?://|<script|<link|@import|url\(", text)


def test_a_picture_of_a_plan_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = case_of(tmp_path, *two_halves(), pod("late", mib=8000))
    code, text = run(capsys, "plan", "--for", "late", "--from", file, "--html", str(tmp_path / "none" / "x.html"))
    assert code == 2
    assert len(text.splitlines()) == 1
    assert "No such file" in text
