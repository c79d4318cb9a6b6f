"""When a pod would start, by recorded run times; what is not known is said."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from kit.objects import node, pod
from kit.scheduler_confs import conf, sharing

from pumice.cli import main as cli
from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of, save
from pumice.simulation.pictures import starts_page
from pumice.simulation.play import Simulation
from pumice.simulation.starts import RunTimes, Start, starts
from pumice.wire.share_hours import RunKey, parse_run, seconds_of, step_of
from pumice.wire.times import stamp

NOW = 1_800_000_000.0
CONF = conf("priority", "gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"), "proportion")
KEY = "default", "default", "train", "vgpu-memory=8000,vgpu-number=1"


def requested(case: ClusterSnapshot, times: RunTimes, *keys: str) -> list[Start]:
    empty = engine_of(replace(case, objects={"nodes": case.objects["nodes"]}))
    return starts(lambda: Simulation(engine_of(case), case.now, case.objects), empty, times, keys or None, draws=19)


def case_of(*pods: dict[str, object]) -> ClusterSnapshot:
    return ClusterSnapshot(now=NOW, scheduler_conf=CONF, objects={"nodes": [node("n1", cards=1, mib=8000)], "pods": list(pods)})


def running(name: str, ran: int, **spec: object) -> dict[str, object]:
    made = pod(name, mib=8000, annotations={"volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,8000,0:"}, **spec)  # type: ignore[arg-type]
    made["spec"]["nodeName"] = "n1"
    made["status"] = {"phase": "Running", "startTime": stamp(NOW - ran)}
    return made


def test_one_waits_for_the_card_of_another_of_its_kind() -> None:
    times = RunTimes.of([(KEY, {step_of(3600): 20})])
    (found,) = requested(case_of(running("train-0", 1800), pod("train-1", mib=8000)), times)
    assert found.p10 is not None
    assert found.p90 is not None
    assert 1600 <= found.p10 <= found.p90 <= seconds_of(step_of(3600) + 1) - 1800 + 5


def test_a_deadline_bounds_it_and_age_is_all_that_is_known_of_the_oldest() -> None:
    times = RunTimes.of([(KEY, {step_of(36000): 20})])
    (found,) = requested(case_of(running("train-0", 1800, activeDeadlineSeconds=2400), pod("train-1", mib=8000)), times)
    assert (found.p10, found.p90) == (pytest.approx(600, abs=5), pytest.approx(600, abs=5))
    (found,) = requested(case_of(running("train-0", 100_000), pod("train-1", mib=8000)), times)
    assert found.p50 is not None
    assert found.p50 > 20_000


def test_what_is_not_known_or_can_never_be_is_said() -> None:
    waits = case_of(running("train-0", 1800), pod("train-1", mib=8000))
    assert requested(waits, RunTimes())[0].why == "unknown: no run times are recorded"
    (found,) = requested(case_of(pod("large", mib=9000)), RunTimes.of([(KEY, {5: 9})]))
    assert found.why.startswith("never: no node")
    assert requested(case_of(running("train-0", 5)), RunTimes()) == []
    service = pod("web", cpu="16")
    service["spec"]["nodeName"], service["status"] = "n1", {"phase": "Running"}
    (found,) = requested(case_of(service, pod("train-1", mib=8000, cpu="1")), RunTimes.of([(KEY, {5: 9})]))
    assert found.why.startswith("unknown: it starts in none of 19 plays")


def test_few_runs_of_its_own_are_told_by_a_wider_group() -> None:
    other: RunKey = ("default", "default", "train", "vgpu-memory=4000,vgpu-number=1")
    times = RunTimes.of([(KEY, {step_of(10): 2}), (other, {step_of(3600): 50})])
    rng = random.Random(1)
    assert sum((times.draw(KEY, 0.0, rng) or 0.0) > 3000 for _ in range(100)) > 80
    assert times.draw(KEY, 1e6, rng) is None


@pytest.mark.parametrize(
    "line", ["", "a\tb", "a\tb\tc\td\t", "a\tb\tc\td\t1", "a\tb\tc\td\t999:1", "a\tb\tc\td\t1:-1", "\t\t\t\t:"]
)
def test_a_line_of_run_times_that_says_nothing_is_left_out(line: str) -> None:
    assert parse_run(line) is None


def test_explain_says_when_they_would_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as stopped:
            cli.main([str(argument) for argument in ("explain", *arguments, "--start", "--from", path)])
        captured = capsys.readouterr()
        assert stopped.value.code in (0, 2)
        return captured.out + captured.err

    path = tmp_path / "case.json"
    case = case_of(running("train-0", 1800), pod("train-1", mib=8000), pod("large", mib=9000))
    case.runs = ["\t".join((*KEY, f"{step_of(3600)}:20"))]
    path.write_text(save(case))
    lines = run("waiting").splitlines()
    assert lines[0].split()[:2] == ["POD", "EARLY"]
    assert {line.split()[0] for line in lines[1:3]} == {"default/train-1", "default/large"}
    (found,) = json.loads(run("pod", "train-1", "-o", "json"))["starts"]
    assert found["pod"] == "default/train-1"
    assert 1600 < found["p10"] <= found["p50"] <= found["p90"] < 2200
    page = tmp_path / "starts.html"
    run("waiting", "--html", page)
    text = page.read_text()
    assert text.count("<svg") == 1
    assert "<title>default/train-1: " in text
    assert "<li>default/large: " in text
    assert "No such file" in run("waiting", "--html", tmp_path / "none" / "x.html")
    assert "None of them waits." in run("pod", "train-0")
    assert "not of a queue" in run("queue", "default")
    assert "no PodGroup default/x" in run("podgroup", "x")
    assert "no Job default/x" in run("job", "x")


@pytest.mark.parametrize(("until", "last"), [(240.0, "12:04:12"), (7_200.0, "14:06"), (172_800.0, "01-03 14:24")])
def test_the_times_under_the_picture_are_as_fine_as_the_spread_is_narrow(until: float, last: str) -> None:
    noon = 1_767_268_800.0  # 2026-01-01T12:00:00Z
    assert f">{last}</text>" in starts_page([Start("default/a", 60.0, 90.0, until)], noon)
