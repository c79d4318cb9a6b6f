"""The core limit as the emulated machine sees it, in virtual time: exact, shared by a container's processes, live.

Virtual time makes these runs deterministic and takes milliseconds for seconds of GPU work; the library runs the same
object as on hardware and reads the machine's clock through its table of real symbols.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.vgpu_kit import LIBRARY, PROGRAMS, build, read_region

from pumice_lab import machine

US, MS = 1_000, 1_000_000


@pytest.fixture(scope="module")
def clockwork(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine in virtual time."""
    build()
    directory = tmp_path_factory.mktemp("machine") / "m"
    machine.create(machine.machine_of("A100-SXM4-40GB", virtual_time=True), directory)
    return directory


@dataclass(frozen=True)
class Worker:
    tenant: str
    launches: int
    served: tuple[int, ...]  # ns of GPU time at every 10 ms of machine time

    def share(self, from_ms: int = 1000, to_ms: int | None = None) -> float:
        """Percent of GPU time in a span."""
        first, last = from_ms // 10, (to_ms // 10 if to_ms else len(self.served) - 1)
        return 100 * (self.served[last] - self.served[first]) / ((last - first) * 10 * MS)

    def seconds(self, from_ms: int = 1000) -> list[float]:
        return [self.share(at, at + 1000) for at in range(from_ms, (len(self.served) - 1) * 10 - 999, 1000)]


def conduct(clockwork: Path, directory: Path, milliseconds: int, *players: str) -> list[Worker]:
    done = subprocess.run(
        [str(PROGRAMS / "conduct"), str(LIBRARY), str(directory), str(milliseconds), *players],
        env={
            **os.environ,
            "PUMICE_MACHINE": str(clockwork),
            "LD_LIBRARY_PATH": str(machine.library_dir()),
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [Worker(w["tenant"], w["launches"], tuple(w["served"])) for w in json.loads(done.stdout)["workers"]]


@pytest.mark.parametrize("kernel_ns", [10 * US, 100 * US, MS, 10 * MS, 50 * MS])
@pytest.mark.parametrize("limit", [10, 30, 50, 70, 90])
def test_one_tenant_gets_its_limit_and_loses_nothing(
    clockwork: Path, tmp_path: Path, limit: int, kernel_ns: int
) -> None:
    (worker,) = conduct(clockwork, tmp_path, 4000, f"limit={limit},kernel={kernel_ns}")
    assert worker.share() == pytest.approx(limit, abs=1.0)
    seconds = worker.seconds()
    assert sum(abs(second - limit) for second in seconds) / len(seconds) <= 2.0
    assert worker.share() >= 0.98 * limit


@pytest.mark.parametrize("shape", ["sync", "graph", "cooperative"])
@pytest.mark.parametrize("kernel_ns", [100 * US, 5 * MS])
def test_every_shape_of_launch_is_limited(clockwork: Path, tmp_path: Path, shape: str, kernel_ns: int) -> None:
    (worker,) = conduct(clockwork, tmp_path, 3000, f"limit=40,kernel={kernel_ns},shape={shape}")
    assert worker.share() == pytest.approx(40, abs=1.5)


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel_ns", [100 * US, MS, 10 * MS])
def test_processes_of_a_container_share_one_budget_fairly(
    clockwork: Path, tmp_path: Path, processes: int, kernel_ns: int
) -> None:
    workers = conduct(clockwork, tmp_path, 4000, *[f"limit=40,kernel={kernel_ns}"] * processes)
    shares = [worker.share() for worker in workers]
    assert sum(shares) == pytest.approx(40, abs=1.5)
    assert sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares)) >= 0.98  # Jain's index


@pytest.mark.parametrize("limits", [(30, 50), (20, 70), (30, 30, 30)])
@pytest.mark.parametrize("kernel_ns", [200 * US, MS])
def test_tenants_with_short_kernels_each_get_their_limit(
    clockwork: Path, tmp_path: Path, limits: tuple[int, ...], kernel_ns: int
) -> None:
    players = [f"tenant=t{i},limit={limit},kernel={kernel_ns}" for i, limit in enumerate(limits)]
    for worker, limit in zip(conduct(clockwork, tmp_path, 6000, *players), limits, strict=True):
        assert worker.share(2000) == pytest.approx(limit, abs=3.0)


@pytest.mark.parametrize("limits", [(30, 50), (20, 70), (30, 30, 30)])
@pytest.mark.parametrize("kernel_ns", [5 * MS, 10 * MS])
def test_tenants_with_long_kernels_take_turns_with_the_arbiter(
    clockwork: Path, tmp_path: Path, limits: tuple[int, ...], kernel_ns: int
) -> None:
    players = [f"tenant=t{i},limit={limit},kernel={kernel_ns},arbiter=1" for i, limit in enumerate(limits)]
    for worker, limit in zip(conduct(clockwork, tmp_path, 4000, *players), limits, strict=True):
        assert worker.share() == pytest.approx(limit, abs=3.0)


def test_a_live_change_of_the_limit_settles_within_200_ms(clockwork: Path, tmp_path: Path) -> None:
    (worker,) = conduct(clockwork, tmp_path, 4000, "limit=20,kernel=1000000", "change=t:1000:80", "change=t:2000:50")
    assert worker.share(500, 1000) == pytest.approx(20, abs=1)
    assert worker.share(1200, 1400) == pytest.approx(80, abs=2)
    assert worker.share(2200, 2400) == pytest.approx(50, abs=2)


def test_the_switch_of_the_monitor_turns_the_default_policy_off_and_on(clockwork: Path, tmp_path: Path) -> None:
    player = "limit=25,kernel=1000000,policy=default"
    (worker,) = conduct(clockwork, tmp_path, 3000, player, "switch=t:1000:0", "switch=t:2000:1")
    assert worker.share(500, 1000) == pytest.approx(25, abs=1)
    assert worker.share(1200, 1900) > 95
    # Up to 1024 launches are queued when the switch returns; they are the card's by then and are paid for afterwards.
    assert worker.share(2000, 3000) < 100


def test_the_policy_force_does_not_ask_the_switch(clockwork: Path, tmp_path: Path) -> None:
    (worker,) = conduct(clockwork, tmp_path, 2000, "limit=25,kernel=1000000,policy=force", "switch=t:500:0")
    assert worker.share(1000) == pytest.approx(25, abs=1)


def test_the_policy_disable_limits_nothing(clockwork: Path, tmp_path: Path) -> None:
    (worker,) = conduct(clockwork, tmp_path, 2000, "limit=25,kernel=1000000,policy=disable")
    assert worker.share(1000) > 99


@pytest.mark.parametrize("limit", [0, 100, 250])
def test_no_limit_and_a_whole_card_limit_nothing(clockwork: Path, tmp_path: Path, limit: int) -> None:
    (worker,) = conduct(clockwork, tmp_path, 2000, f"limit={limit},kernel=1000000")
    assert worker.share(1000) > 99


def test_a_blocked_container_launches_nothing_until_it_is_released(clockwork: Path, tmp_path: Path) -> None:
    (worker,) = conduct(clockwork, tmp_path, 3000, "limit=50,kernel=1000000", "recent=t:1000:-1", "recent=t:2000:0")
    assert worker.share(0, 1000) > 45
    assert worker.share(1100, 2000) < 3
    assert worker.share(2200, 3000) == pytest.approx(50, abs=2)
    assert read_region(tmp_path / "t.cache").recent_kernel == 2


def test_a_container_whose_monitor_has_died_goes_on_after_four_missed_beats(
    clockwork: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBCUDA_LOG_LEVEL", "1")  # else it says so in one line
    beats = [f"pulse=t:{at}:100" for at in (990, 1090, 1190)]
    (worker,) = conduct(clockwork, tmp_path, 3000, "limit=50,kernel=1000000", "recent=t:1000:-1", *beats)
    assert worker.share(1050, 1590) < 3
    assert worker.share(1650, 3000) == pytest.approx(50, abs=2)
    assert read_region(tmp_path / "t.cache").recent_kernel == 2


def test_a_launch_tells_the_monitor_that_the_container_is_active(clockwork: Path, tmp_path: Path) -> None:
    conduct(clockwork, tmp_path, 1500, "limit=0,kernel=1000000", "recent=t:200:0")
    region = read_region(tmp_path / "t.cache")
    assert region.recent_kernel == 2  # also where no limit is set
    assert region.last_kernel_time > 1_600_000_000


def test_a_tenant_that_comes_later_is_measured_all_the_same(clockwork: Path, tmp_path: Path) -> None:
    early, late = conduct(
        clockwork, tmp_path, 5000, "tenant=a,limit=30,kernel=1000000", "tenant=b,limit=50,kernel=500000,start=1500"
    )
    assert early.share(2500) == pytest.approx(30, abs=3)
    assert late.share(2500) == pytest.approx(50, abs=3)


@pytest.mark.parametrize("kernel_ns", [500 * US, 5 * MS])
def test_a_tenant_beside_an_unlimited_one_never_exceeds_its_limit(
    clockwork: Path, tmp_path: Path, kernel_ns: int
) -> None:
    limited, unlimited = conduct(
        clockwork, tmp_path, 5000, f"tenant=a,limit=30,kernel={kernel_ns}", "tenant=b,limit=0,kernel=1000000,start=500"
    )
    assert limited.share(2000) <= 31.5
    assert limited.share(2000) + unlimited.share(2000) > 99


@pytest.mark.parametrize("free", ["kernel=1000000", "kernel=100000,shape=sync", "kernel=5000000"])
@pytest.mark.parametrize("kernel_ns", [20 * US, 200 * US, 500 * US, MS])
@pytest.mark.parametrize("limits", [(30,), (20, 20)])
def test_kernels_shorter_than_a_slice_get_their_limit_beside_a_tenant_that_never_rests(
    clockwork: Path, tmp_path: Path, limits: tuple[int, ...], kernel_ns: int, free: str
) -> None:
    """No moment is quiet, so no length is ever measured alone: those that follow another closely show it."""
    players = [f"tenant=t{i},limit={limit},kernel={kernel_ns}" for i, limit in enumerate(limits)]
    workers = conduct(clockwork, tmp_path, 6000, *players, f"tenant=free,limit=0,{free}")
    for worker, limit in zip(workers, limits, strict=False):
        assert 0.6 * limit <= worker.share(3000) <= limit + 1.5


@pytest.mark.parametrize("arbiter", [0, 1])
def test_nobody_starves_beside_a_tenant_without_a_limit_that_is_never_done(
    clockwork: Path, tmp_path: Path, arbiter: int
) -> None:
    """It never asks for a window and leaves no quiet moment to measure in, so neither may be waited for each time.

    Measured beside it, a kernel may seem a few times as long as it is, and is paid for as such: below the limit, never above.
    """
    players = [f"tenant=t{i},limit=20,kernel=200000,arbiter={arbiter}" for i in range(2)]
    free = f"tenant=free,limit=0,kernel=100000,arbiter={arbiter},shape=sync"
    *limited, unlimited = (worker.share(2000) for worker in conduct(clockwork, tmp_path, 5000, *players, free))
    assert min(limited) >= 2
    assert max(limited) <= 21.5
    assert sum(limited) + unlimited > 90
