"""Experiment E5 in virtual time: every shape of launch gets its limit, also those whose cost nobody can know beforehand."""

from __future__ import annotations

import pytest
from benchmarks.native.experiments import accuracy
from benchmarks.native.experiments.rig import Rig, open_rig
from benchmarks.native.experiments.shares import rate
from kit.vgpu_kit import build

MS = 1_000_000


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    build()
    return open_rig(tmp_path_factory.mktemp("rig"), quick=False, virtual=True)


def test_every_shape_of_launch_meets_the_goals_of_the_experiment(rig: Rig) -> None:
    report = accuracy.shapes(rig)
    assert len(report.goals) == 2 * len(accuracy.SHAPES)
    assert [goal for goal in report.goals if not goal["met"]] == []


@pytest.mark.parametrize("limit", [30, 70])
@pytest.mark.parametrize("median_ns", [10_000, MS // 20, MS // 5, 2 * MS])
def test_kernels_of_widely_varying_length_get_their_limit_in_the_long_run(rig: Rig, median_ns: int, limit: int) -> None:
    """Charged by a mean of few samples, they were launched more often whenever it was low: an eighth above the limit, always."""
    config = {"shape": "lognormal", "kernel_ns": median_ns, "seconds": 9.0}
    whole = rate(rig.run("busy", **config), 1.0)
    assert 100 * rate(rig.run("busy", rig.limited(limit), **config), 1.0) / whole == pytest.approx(limit, abs=1.5)


@pytest.mark.parametrize("median_ns", [MS // 50, MS // 5, 2 * MS])
@pytest.mark.parametrize("limits", [(40,), (20, 20)], ids=["one container", "two tenants"])
def test_varying_lengths_beside_each_other_never_exceed_the_limit(
    rig: Rig, limits: tuple[int, ...], median_ns: int
) -> None:
    """Nearly every sample has waited for the other, and those that have not were short: neither tells the length, so the wait is
    charged as well. Less than the limit, then; by the shortest sample it was several times the limit."""
    config = {"shape": "lognormal", "kernel_ns": median_ns, "seconds": 6.0}
    whole = rate(rig.run("busy", **config), 1.0)
    containers = [rig.limited(limit) for limit in limits]
    runs = rig.together(*(rig.start("busy", containers[i % len(limits)], **config) for i in range(2)))
    shares = [100 * rate(run, 1.0) / whole for run in runs]
    if len(limits) == 1:
        shares = [sum(shares)]
    for share, limit in zip(shares, limits, strict=True):
        assert 0.6 * limit <= share <= limit + 1.5


@pytest.mark.parametrize("streams", [2, 8])
@pytest.mark.parametrize("kernel_ns", [MS // 5, 3 * MS])
def test_streams_that_wait_for_each_other_are_charged_what_they_cover(rig: Rig, kernel_ns: int, streams: int) -> None:
    """A few batches in flight on each: whatever order the answers come in, each moment of the card is paid for once."""
    config = {"kernel_ns": kernel_ns, "streams": streams, "seconds": 5.0}
    whole = rate(rig.run("busy", **config), 1.0)
    for limit in (30, 70):
        share = 100 * rate(rig.run("busy", rig.limited(limit), **config), 1.0) / whole
        assert share == pytest.approx(limit, abs=1.5)
