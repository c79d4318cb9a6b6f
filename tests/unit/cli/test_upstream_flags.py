"""Flags of Volcano's own Deployments are read as they are written there."""

import pytest

from pumice.cli.daemon import duration
from pumice.cli.upstream_flags import rewrite
from pumice.model.errors import BadInput

KNOWN = {"--leader-elect", "--no-leader-elect", "--scheduler-conf", "--schedule-period", "-v"}
SWITCHES = {"--leader-elect": "--no-leader-elect"}


def test_the_charts_arguments_are_understood() -> None:
    chart = ["--logtostderr", "--scheduler-conf=/volcano.scheduler/volcano-scheduler.conf", "--enable-healthz=true",
             "--enable-metrics=true", "--leader-elect=false", "--kube-api-qps=2000", "--kube-api-burst=2000",
             "--schedule-period=1s", "--node-worker-threads=20", "-v=3", "2>&1"]  # fmt: skip
    kept, ignored = rewrite(chart, KNOWN, SWITCHES)
    assert kept == ["--scheduler-conf=/volcano.scheduler/volcano-scheduler.conf", "--no-leader-elect",
                    "--schedule-period=1s", "-v", "3", "2>&1"]  # fmt: skip
    assert [flag for flag, _ in ignored] == [
        "--logtostderr", "--enable-healthz", "--enable-metrics", "--kube-api-qps", "--kube-api-burst",
        "--node-worker-threads",
    ]  # fmt: skip


def test_a_flag_without_effect_takes_its_separate_value_along() -> None:
    assert rewrite(["--feature-gates", "A=true", "--leader-elect=true"], KNOWN, SWITCHES) == (
        ["--leader-elect"], [("--feature-gates", "A=true")])  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("500ms", 0.5), ("1h2m3s", 3723), ("1.5s", 1.5)])
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert duration("--schedule-period", text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "s", "1 s", "-1s", "1d"])
def test_what_is_no_duration_names_the_flag(text: str) -> None:
    with pytest.raises(BadInput, match="--schedule-period"):
        duration("--schedule-period", text)
