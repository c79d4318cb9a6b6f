"""Containers of Docker with a share of a card, by a daemon that is killed and ended, on the emulated machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.one_machine import wait_until
from tests.e2e.real_engines import BURN, IMAGE, Docker, held_to_its_share, opened

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Docker]:
    yield from opened(Docker, tmp_path)


def test_a_container_is_held_to_its_share_whatever_becomes_of_the_daemon(docker: Docker) -> None:
    held_to_its_share(docker)
    pid = docker.pid("train")
    docker.daemon.kill()
    docker.daemon.wait()
    (share,) = docker.here.ps()
    assert pid in share["pids"], "the container goes on, and keeps its share"
    docker.start_daemon()  # it ends the containers of the one before
    wait_until(lambda: docker.here.ps() == [])
    assert docker.here.run("--memory", "100%", "--", "true").returncode == 0
    assert not any((docker.here.directory / "run/limits").iterdir())


def test_a_restarted_daemon_frees_the_share_and_the_container_starts_again_while_nobody_has_booked(docker: Docker) -> None:
    here, load = docker.here, [*BURN, "--memory", "1000", "--kernel-ms", "5", "--seconds", "200"]
    assert docker.pumice_run("-d", "--name", "train", IMAGE, *load, ours=("--memory", "90%")).returncode == 0
    docker.busy("train")
    docker.stop_daemon()
    docker.start_daemon()
    assert here.ps() == []
    docker("start", "train")
    wait_until(lambda: docker.pid("train") in [pid for share in here.ps() for pid in share["pids"]])
    docker("kill", "train")
    wait_until(lambda: here.ps() == [])
    assert here.run("--memory", "20%", "--", "true").returncode == 0
    assert "bind source path does not exist" in docker("start", "train", code=1), "it would run without limits"
