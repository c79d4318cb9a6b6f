"""Podman and Docker with stores of their own, beside an emulated machine, and an image of busybox for both."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from kit.one_machine import OneMachine, wait_until

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/pumice-test:latest"
BURN = [sys.executable, "-m", "pumice", "burn"]


class RealEngine:
    """An engine that runs on this machine. ``program`` is its command, ``packages`` Debian's packages by what they bring."""

    program = ""
    packages: tuple[tuple[str, str], ...] = ()

    def __init__(self, here: OneMachine, folder: Path) -> None:
        self.here, self.folder = here, folder

    @classmethod
    def missing(cls) -> str:
        """Why it cannot run here, or an empty string."""
        if os.geteuid() != 0:
            return f"{cls.program} is tried as root"
        packages = (*cls.packages, ("runc", "runc"), ("/bin/busybox", "busybox-static"))
        return next((f"{program} is not installed (apt-get install {package})"
                     for program, package in packages if not shutil.which(program)), "")  # fmt: skip

    def import_image(self) -> None:
        with tarfile.open(self.folder / "image.tar", "w") as tar:
            tar.add(os.path.realpath("/bin/busybox"), "bin/busybox")
        self("import", str(self.folder / "image.tar"), IMAGE)

    def __call__(self, *words: str, code: int = 0) -> str:
        done = subprocess.run([self.program, *words], env=self.here.environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == code, f"{self.program} {' '.join(words)}: {done.returncode} {done.stdout} {done.stderr}"
        return done.stdout + done.stderr

    @property
    def world(self) -> list[str]:
        """Options by which a container has this Python."""
        folders = {"/lib", "/lib64", "/usr/lib", "/usr/bin", sys.prefix, str(ROOT)}
        base = sys.base_prefix.rstrip("/")
        folders |= {f"{base}/bin", f"{base}/lib"} if base.startswith("/usr") else {base}
        mounts = [word for folder in sorted(folders) if Path(folder).exists() for word in ("-v", f"{folder}:{folder}:ro")]
        return [*mounts, "-e", "PYTHONUNBUFFERED=1", "-e", "PYTHONDONTWRITEBYTECODE=1"]

    def pumice_run(self, *words: str, ours: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        return self.here.pumice("docker", "run", "--emulated", str(self.here.directory), "--engine", self.program, *ours,
                                *self.world, *words)  # fmt: skip

    def busy(self, name: str) -> None:
        wait_until(lambda: "memory:" in self("logs", name))

    def pid(self, name: str) -> int:
        return int(self("inspect", "--format", "{{.State.Pid}}", name))

    def close(self) -> None:
        raise NotImplementedError


class Podman(RealEngine):
    program, packages = "podman", (("podman", "podman"), ("podman-compose", "podman-compose"))

    def __init__(self, here: OneMachine, folder: Path) -> None:
        super().__init__(here, folder)
        most = min(1024, *(resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)))
        conf, storage = folder / "containers.conf", folder / "storage.conf"
        conf.write_text(
            f'[containers]\ndefault_ulimits = ["nofile={most}:{most}", "nproc={most}:{most}"]\n'
            'netns = "none"\nlog_driver = "k8s-file"\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n')  # fmt: skip
        storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n')
        here.environment |= {"CONTAINERS_CONF": str(conf), "CONTAINERS_STORAGE_CONF": str(storage)}
        self.import_image()

    def has_removed_all(self) -> bool:
        """A container that is just ending refuses it once: "container state improper"."""
        words = ["podman", "rm", "--all", "--force", "--time", "0"]
        return subprocess.run(words, env=self.here.environment, capture_output=True, timeout=100).returncode == 0

    def close(self) -> None:
        wait_until(self.has_removed_all)
        self("rmi", "--all", "--force")


class Docker(RealEngine):
    """With a daemon of its own, which may be ended and started anew."""

    program, packages = "docker", (("docker", "docker.io"), ("dockerd", "docker.io"))

    def __init__(self, here: OneMachine, folder: Path) -> None:
        super().__init__(here, folder)
        here.environment["DOCKER_HOST"] = f"unix://{folder}/docker.sock"
        here.environment["DOCKER_CONFIG"] = str(folder / "docker-config")
        self.daemon: subprocess.Popen[bytes]
        self.start_daemon()
        self.import_image()

    def start_daemon(self, again: bool = True) -> None:
        """A daemon may wait in vain for the containerd of one that was killed, and end: then it is started ``again``."""
        places = {"--data-root": "data", "--exec-root": "exec", "--pidfile": "docker.pid"}
        words = ["dockerd", *(word for flag, name in places.items() for word in (flag, str(self.folder / name)))]
        with (self.folder / "dockerd.log").open("ab") as log:
            words += ["--bridge", "none", "--iptables=false", "-H", self.here.environment["DOCKER_HOST"]]
            self.daemon = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: self.daemon.poll() is not None or self.answers())
        if self.daemon.poll() is not None:
            assert again, (self.folder / "dockerd.log").read_text()[-2000:]
            self.start_daemon(again=False)

    def answers(self) -> bool:
        return subprocess.run(["docker", "version"], env=self.here.environment, capture_output=True, timeout=60).returncode == 0

    def stop_daemon(self) -> None:
        self.daemon.terminate()
        self.daemon.wait(60)

    def close(self) -> None:
        """The containerd that the daemon started ends with it."""
        if self.daemon.poll() is not None:
            self.start_daemon()
        if containers := self("ps", "-aq").split():
            self("rm", "--force", *containers)
        self.stop_daemon()
        if (self.folder / "data").is_mount():
            subprocess.run(["umount", str(self.folder / "data")], check=True)


Engine = TypeVar("Engine", bound=RealEngine)


def opened(kind: type[Engine], folder: Path) -> Iterator[Engine]:
    """Yield the engine beside a machine of its own; skips where it cannot run."""
    if reason := kind.missing():
        pytest.skip(reason)
    here = OneMachine(folder / "node" / "machine")
    engine = kind(here, folder)
    yield engine
    engine.close()
    here.close()


def held_to_its_share(engine: RealEngine) -> None:
    """A container with more than its share fails; one named ``train`` is left running, and others get no part of its share."""
    here = engine.here
    over = engine.pumice_run("--rm", IMAGE, *BURN, "--memory", "2001", "--block", "1", ours=("--memory", "2000"))
    assert over.returncode == 1, over.stderr
    assert "CUDA_ERROR_OUT_OF_MEMORY" in over.stdout
    assert here.machine.peak(0) <= 2000 << 20
    assert here.ps() == []
    load = ["--memory", "1000", "--kernel-ms", "5", "--seconds", "200"]
    bare = ["/usr/bin/env", "-u", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "-u", "LD_PRELOAD", *BURN, *load]
    assert engine.pumice_run("-d", "--name", "train", IMAGE, *bare, ours=("--memory", "90%", "--cores", "40")).returncode == 0
    engine.busy("train")
    (share,) = here.ps()
    assert engine.pid("train") in share["pids"], "by numbers of this machine, not of the container"
    assert share["cards"][0]["memoryUsedBytes"] >= 1000 << 20
    refused = here.run("--memory", "20%", "--", "true")
    assert refused.returncode == 2
    assert f"container {engine('inspect', '--format', '{{.Id}}', 'train')[:12]}" in refused.stderr
