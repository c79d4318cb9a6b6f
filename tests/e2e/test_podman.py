"""Containers of Podman with a share of a card, without a cluster, on the emulated machine.

What docs/how-to/containers.md shows of Podman is typed here."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kit import page_commands
from kit.one_machine import PUMICE, OneMachine, wait_until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/containers.md"
IMAGE = "localhost/pumice-test:latest"
BURN = [sys.executable, "-m", "pumice", "burn"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def missing() -> str:
    """Why Podman cannot run here, or an empty string."""
    if os.geteuid() != 0:
        return "Podman is tried as root"
    packages = {"podman": "podman", "podman-compose": "podman-compose", "runc": "runc", "/bin/busybox": "busybox-static"}
    for program, package in packages.items():
        if not shutil.which(program):
            return f"{program} is not installed (apt-get install {package})"
    return ""


class Podman:
    """Podman with a store of its own, and an image of busybox."""

    def __init__(self, here: OneMachine, folder: Path) -> None:
        self.here, self.made = here, []
        most = min(1024, *(resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)))
        conf, storage = folder / "containers.conf", folder / "storage.conf"
        conf.write_text(
            f'[containers]\ndefault_ulimits = ["nofile={most}:{most}", "nproc={most}:{most}"]\n'
            'netns = "none"\nlog_driver = "k8s-file"\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n')  # fmt: skip
        storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n')
        here.environment |= {"CONTAINERS_CONF": str(conf), "CONTAINERS_STORAGE_CONF": str(storage)}
        with tarfile.open(folder / "image.tar", "w") as tar:
            tar.add(os.path.realpath("/bin/busybox"), "bin/busybox")
        self("import", str(folder / "image.tar"), IMAGE)

    def __call__(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(["podman", *words], env=self.here.environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == code, f"podman {' '.join(words)}: {done.returncode} {done.stdout} {done.stderr}"
        return done.stdout + done.stderr

    def has_removed_all(self) -> bool:
        """A container that is just ending refuses it once: "container state improper"."""
        words = ["podman", "rm", "--all", "--force", "--time", "0"]
        return subprocess.run(words, env=self.here.environment, capture_output=True, timeout=100).returncode == 0

    @property
    def world(self) -> list[str]:
        """Options by which a container has this Python."""
        folders = {"/lib", "/lib64", "/usr/lib", "/usr/bin", sys.prefix, str(ROOT)}
        base = sys.base_prefix.rstrip("/")
        folders |= {f"{base}/bin", f"{base}/lib"} if base.startswith("/usr") else {base}
        mounts = [word for folder in sorted(folders) if Path(folder).exists() for word in ("-v", f"{folder}:{folder}:ro")]
        return [*mounts, "-e", "PYTHONUNBUFFERED=1", "-e", "PYTHONDONTWRITEBYTECODE=1"]

    def pumice_run(self, *words: str, ours: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        return self.here.pumice("docker", "run", "--emulated", str(self.here.directory), "--engine", "podman", *ours,
                                *self.world, *words)  # fmt: skip

    def busy(self, name: str) -> None:
        wait_until(lambda: "memory:" in self("logs", name))

    def pid(self, name: str) -> int:
        return int(self("inspect", "--format", "{{.State.Pid}}", name))


@pytest.fixture
def podman(tmp_path: Path) -> Iterator[Podman]:
    if reason := missing():
        pytest.skip(reason)
    here = OneMachine(tmp_path / "node" / "machine")
    podman = Podman(here, tmp_path)
    yield podman
    wait_until(podman.has_removed_all)
    podman("rmi", "--all", "--force")
    here.close()


def test_a_container_is_held_to_its_share_and_keeps_it_until_it_is_killed(podman: Podman) -> None:
    here = podman.here
    over = podman.pumice_run("--rm", IMAGE, *BURN, "--memory", "2001", "--block", "1", ours=("--memory", "2000"))
    assert over.returncode == 1, over.stderr
    assert "CUDA_ERROR_OUT_OF_MEMORY" in over.stdout
    assert here.machine.peak(0) <= 2000 << 20
    assert here.ps() == []
    load = ["--memory", "1000", "--kernel-ms", "5", "--seconds", "200"]
    bare = ["/usr/bin/env", "-u", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "-u", "LD_PRELOAD", *BURN, *load]
    assert podman.pumice_run("-d", "--name", "train", IMAGE, *bare, ours=("--memory", "90%", "--cores", "40")).returncode == 0
    podman.busy("train")
    (share,) = here.ps()
    assert podman.pid("train") in share["pids"], "by numbers of this machine, not of the container"
    assert share["cards"][0]["memoryUsedBytes"] >= 1000 << 20
    refused = here.run("--memory", "20%", "--", "true")
    assert refused.returncode == 2
    assert f"container {podman('inspect', '--format', '{{.Id}}', 'train')[:12]}" in refused.stderr
    # All that Podman has of a daemon, its process beside the container, is killed: the container goes on, and so does its share.
    os.kill(int(podman("inspect", "--format", "{{.State.ConmonPid}}", "train")), signal.SIGKILL)
    assert len(here.ps()) == 1
    os.kill(podman.pid("train"), signal.SIGKILL)
    wait_until(lambda: here.ps() == [])
    assert here.run("--memory", "100%", "--", "true").returncode == 0
    assert not any((here.directory / "run/limits").iterdir())


def test_the_page_is_typed(podman: Podman) -> None:
    """Its image stands for one with Python, its program for one that uses the card; the share has the number that it gets."""
    here = podman.here
    (block,) = [one for one in page_commands.blocks(PAGE.read_text("utf-8")) if one.run_by.endswith("test_podman.py")]
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
