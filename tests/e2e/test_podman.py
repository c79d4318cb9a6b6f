"""Containers of Podman with a share of a card, without a cluster, on the emulated machine.

What docs/how-to/containers.md shows of Podman is typed here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kit import page_commands
from kit.one_machine import PUMICE, wait_until
from tests.e2e.real_engines import BURN, IMAGE, Podman, held_to_its_share, opened

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/containers.md"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def podman(tmp_path: Path) -> Iterator[Podman]:
    yield from opened(Podman, tmp_path)


def test_a_container_is_held_to_its_share_and_keeps_it_until_it_is_killed(podman: Podman) -> None:
    held_to_its_share(podman)
    # All that Podman has of a daemon, its process beside the container, is killed: the container goes on, and so does its share.
    os.kill(int(podman("inspect", "--format", "{{.State.ConmonPid}}", "train")), signal.SIGKILL)
    assert len(podman.here.ps()) == 1
    os.kill(podman.pid("train"), signal.SIGKILL)
    wait_until(lambda: podman.here.ps() == [])
    assert podman.here.run("--memory", "100%", "--", "true").returncode == 0
    assert not any((podman.here.directory / "run/limits").iterdir())


def test_the_page_is_typed(podman: Podman) -> None:
    """Its image stands for one with Python, its program for one that uses the card; the share has the number that it gets."""
    here = podman.here
    (block,) = [one for one in page_commands.blocks(PAGE.read_text("utf-8")) if "test_podman.py" in (one.not_run or "")]
    program = " ".join([*BURN, "--memory", "1000", "--kernel-ms", "5", "--seconds", "200"])
    printed = []
    for command in page_commands.commands(block.text):
        command = command.replace("IMAGE python train.py", f"{' '.join(podman.world)} {IMAGE} {program}")
        command = re.sub("^pumice", " ".join(PUMICE), command.replace("--emulated", f"--emulated {here.directory}"))
        done = subprocess.run(command, shell=True, env=here.environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        printed.append(done.stdout)
        if "docker run" in command:
            podman.busy("train")
    assert "/3072 MiB" in printed[1]
    assert "r1: 2048 MiB and 20 % of the cores (was 3072 MiB and 50 %)" in printed[2]
    wait_until(lambda: here.ps() == [])


def test_a_share_with_a_name_is_a_device_of_podman(podman: Podman) -> None:
    here, name = podman.here, f"test-{os.getpid()}"
    emulated = ("--emulated", str(here.directory))
    assert here.pumice("share", "create", name, *emulated, "--memory", "2000").returncode == 0
    try:
        device = ("--device", f"pumice.io/share={name}")
        over = podman("run", "--rm", *device, *podman.world, IMAGE, *BURN, "--memory", "2001", "--block", "1", code=1)
        assert "CUDA_ERROR_OUT_OF_MEMORY" in over
        podman("run", "-d", "--name", "a", *device, *podman.world, IMAGE, *BURN, "--memory", "1000", "--seconds", "200")
        podman.busy("a")
        (share,) = json.loads(here.pumice("share", "list", *emulated, "-o", "json").stdout)
        assert podman.pid("a") in share["pids"]
        assert here.pumice("share", "delete", name, *emulated).returncode == 2
    finally:
        assert here.pumice("share", "delete", "--force", name, *emulated).returncode == 0
    assert here.run("--memory", "100%", "--", "true").returncode == 2, "it is used"
    podman("kill", "a")
    wait_until(lambda: here.run("--memory", "100%", "--", "true").returncode == 0)
    assert "unresolvable CDI devices" in podman("start", "a", code=125), "its share is gone"


def test_the_file_of_compose_runs_a_service_with_the_share(podman: Podman, tmp_path: Path) -> None:
    """The page's file by podman-compose; image, command and the name of the share are this test's."""
    here, name = podman.here, f"test-{os.getpid()}"
    emulated = ("--emulated", str(here.directory))
    (block,) = [one for one in page_commands.blocks(PAGE.read_text("utf-8")) if one.kind == "yaml" and "services:" in one.text]
    said = yaml.safe_load(block.text.replace("share=train", f"share={name}"))
    load = [*BURN, "--memory", "1000", "--kernel-ms", "5", "--seconds", "200"]
    words = podman.world
    at = words.index("-e")
    said["services"]["train"] |= {"image": IMAGE, "command": load, "volumes": words[1:at:2],
                                  "environment": words[at + 1 :: 2]}  # fmt: skip
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(said))
    compose = ["podman-compose", "--no-ansi", "-f", str(tmp_path / "compose.yaml"), "-p", "page"]
    assert here.pumice("share", "create", name, *emulated, "--memory", "2000").returncode == 0
    try:
        up = subprocess.run([*compose, "up", "-d"], env=here.environment, capture_output=True, text=True, timeout=100)
        assert up.returncode == 0, up.stderr
        (container,) = podman("ps", "--format", "{{.Names}}").split()
        podman.busy(container)
        (share,) = json.loads(here.pumice("share", "list", *emulated, "-o", "json").stdout)
        assert podman.pid(container) in share["pids"]
        assert share["cards"][0]["memoryUsedBytes"] >= 1000 << 20
        subprocess.run([*compose, "down", "-t", "0"], env=here.environment, capture_output=True, timeout=100)
        wait_until(lambda: podman("ps", "-aq") == "")
        podman("network", "rm", "page_default")
    finally:
        assert here.pumice("share", "delete", "--force", name, *emulated).returncode == 0
    wait_until(lambda: here.run("--memory", "100%", "--", "true").returncode == 0)
