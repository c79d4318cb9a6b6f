"""Slurm's own daemons, and jobs that have a share of a card of the emulated machine by prolog and epilog.

The scripts and lines of docs/how-to/slurm.md are what the daemons here are set up by."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import page_commands
from kit.one_machine import PUMICE, OneMachine, wait_until

PAGE = Path(__file__).parents[2] / "docs/how-to/slurm.md"
NODE = "gpu1"
BURN = [*PUMICE, "burn"]
LOAD = [*BURN, "--memory", "1000", "--kernel-ms", "5", "--seconds", "200"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def missing() -> str:
    """Why Slurm cannot run here, or an empty string."""
    if os.geteuid() != 0:
        return "Slurm is tried as root"
    for program, package in (("slurmctld",) * 2, ("slurmd",) * 2, ("squeue", "slurm-client"), ("munged", "munge")):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin"):
            return f"{program} is not installed (apt-get install {package})"
    return ""


def free_port() -> int:
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        return int(there.getsockname()[1])


class Slurm:
    """A controller and one node, each a program of this test, with keys, ports and folders of their own."""

    def __init__(self, here: OneMachine, folder: Path) -> None:
        self.here, self.folder = here, folder
        for name in ("spool", "state", "munge"):
            (folder / name).mkdir(mode=0o755)
        self.scripts = folder / "pumice"
        self.setup()
        path = f"{os.environ['PATH']}:/usr/sbin"
        self.environment = {**here.environment, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}
        self.munged = self.start("munged", "--foreground", "--force", *self.munge_options())
        wait_until((folder / "munge/socket").exists)
        self.controller = self.start("slurmctld", "-D", "-c")
        self.node = self.start_node()

    def munge_options(self) -> list[str]:
        folder = self.folder / "munge"
        (folder / "key").write_bytes(os.urandom(64))
        (folder / "key").chmod(0o400)
        named = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        return [f"--{option}={folder / name}" for option, name in named.items()]

    def setup(self) -> None:
        """Lay the files that the page shows, where this test has its own paths."""
        page = page_commands.blocks(PAGE.read_text("utf-8"))
        scripts, self.typed = (block.text for block in page if "test_slurm.py" in (block.not_run or ""))
        pumice = " ".join(PUMICE)
        text = re.sub(r"/usr/bin/(pumice slurm [a-z-]+)", lambda found: f"{pumice} {found[1].removeprefix('pumice ')} "
                      f"--emulated {self.here.directory}", scripts.replace("/etc/slurm", str(self.folder)))  # fmt: skip
        subprocess.run(text, shell=True, check=True)
        conf, gres = (block.text.replace("/etc/slurm", str(self.folder)) for block in page if block.kind == "ini")
        host, ports = socket.gethostname(), (free_port(), free_port())
        hardware = f" NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={os.cpu_count()}"
        conf = re.sub(r"^NodeName=\S+", lambda found: found[0] + hardware, conf, flags=re.MULTILINE)
        (self.folder / "gres.conf").write_text(gres)
        (self.folder / "slurm.conf").write_text(
            f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n"
            f"AuthInfo=socket={self.folder}/munge/socket\nSlurmctldPort={ports[0]}\nSlurmdPort={ports[1]}\n"
            f"SlurmctldPidFile={self.folder}/slurmctld.pid\nSlurmdPidFile={self.folder}/slurmd.pid\n"
            f"SlurmdSpoolDir={self.folder}/spool\nStateSaveLocation={self.folder}/state\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nMpiDefault=none\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\nKillWait=1\n"
            "SlurmdParameters=config_overrides\n"
            f"{conf}PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:8 State=UP\n")  # fmt: skip

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{command[0]}.out", "ab") as out:
            return subprocess.Popen(command, env=self.environment, stdout=out, stderr=subprocess.STDOUT)

    def start_node(self) -> subprocess.Popen[bytes]:
        node = self.start("slurmd", "-D", "-N", NODE)
        wait_until(lambda: self("sinfo", "--noheader", "--format", "%T").strip() in ("idle", "mixed", "allocated", "completing"))
        return node

    def __call__(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=100).stdout

    def submit(self, *command: str, gres: str = "pumice:memory:3G,pumice:cores:50") -> str:
        """Submit a job and return its number."""
        script = f"#!/bin/sh\n{' '.join(command)}\n"
        asking = [f"--gres={gres}"] if gres else []
        done = subprocess.run(["sbatch", "--parsable", "--output", f"{self.folder}/job-%j", *asking], input=script, text=True,
                              env=self.environment, capture_output=True, timeout=100, cwd=self.folder)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def said(self, job: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / f"job-{job}").read_text()
        return ""

    def state(self, job: str) -> str:
        return self("squeue", "--noheader", "--states", "all", "--jobs", job, "--format", "%T").strip()

    def ended(self, job: str) -> str:
        wait_until(lambda: self.state(job) in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL"))
        return self.state(job)

    def shares(self) -> list[str]:
        return [share["id"] for share in self.here.ps()]

    def close(self) -> None:
        self("scancel", "--user", "root")
        wait_until(lambda: not self("squeue", "--noheader"))
        for program in (self.node, self.controller, self.munged):
            program.terminate()
            program.wait(60)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("slurm")
    here = OneMachine(folder / "machine", cards="GeForce-GTX-1080-Ti")
    slurm = Slurm(here, folder)
    yield slurm
    slurm.close()
    here.close()


def test_a_job_is_held_to_the_share_that_it_asks_and_frees_it_when_it_is_cancelled(slurm: Slurm) -> None:
    here = slurm.here
    over = slurm.submit(*BURN, "--memory", "3073", "--block", "1")
    assert slurm.ended(over) == "FAILED"
    assert "CUDA_ERROR_OUT_OF_MEMORY" in slurm.said(over)
    assert here.machine.peak(0) <= 3072 << 20
    lost = slurm.submit("env", "-u", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "-u", "CUDA_DEVICE_MEMORY_LIMIT", *BURN, "--memory", "1")
    assert slurm.ended(lost) == "FAILED"
    assert "there is no memory to be had" in slurm.said(lost), "the task's mark says that it has a share"
    job = slurm.submit("srun", *LOAD, gres="pumice:memory:9G")
    wait_until(lambda: "MiB granted" in slurm.said(job))
    (share,) = here.ps()
    assert (share["id"], share["cards"][0]["memoryLimitMiB"]) == (f"slurm-{job}", 9 << 10)
    assert share["cards"][0]["memoryUsedBytes"] >= 1000 << 20
    refused = here.run("--memory", "3G", "--", "true")
    assert refused.returncode == 2
    assert f"Slurm job {job}" in refused.stderr
    held = here.pumice("share", "delete", f"slurm-{job}", "--emulated", str(here.directory))
    assert (held.returncode, f"scancel {job}" in held.stderr) == (2, True), held.stderr
    slurm("scancel", job)
    wait_until(lambda: here.ps() == [])
    assert here.run("--memory", "100%", "--", "true").returncode == 0


def test_the_jobs_of_the_page_have_their_shares(slurm: Slurm) -> None:
    (slurm.folder / "train.sh").write_text("#!/bin/sh\necho share=$PUMICE_SHARE\n")
    (slurm.folder / "train.py").write_text("import os\nprint('share', os.environ['PUMICE_SHARE'])\n")
    done = subprocess.run(slurm.typed, shell=True, env=slurm.environment, cwd=slurm.folder, capture_output=True, text=True,
                          timeout=100)  # fmt: skip
    said = re.search(r"Submitted batch job (\d+)\nshare slurm-\d+\n", done.stdout)
    assert said, done
    wait_until(lambda: (slurm.folder / f"slurm-{said[1]}.out").exists() and slurm.ended(said[1]))
    assert (slurm.folder / f"slurm-{said[1]}.out").read_text() == f"share=slurm-{said[1]}\n"
    wait_until(lambda: slurm.shares() == [])


def test_a_share_that_no_card_has_room_for_fails_its_job_and_not_the_node(slurm: Slurm) -> None:
    program = slurm.here.burn("--memory", "6G", memory=100)
    job = slurm.submit("echo it ran", gres="pumice:memory:8G")
    assert slurm.ended(job) == "FAILED"
    said = slurm.said(job)
    assert f"pumice: job {job} has no share on this node: card 0 has no room for 8192 MiB" in said
    assert "it ran" not in said
    assert slurm.ended(slurm.submit("echo it ran", gres="pumice:memory:800")) == "FAILED"
    plain = slurm.submit("echo share=$PUMICE_SHARE", gres="")
    assert (slurm.ended(plain), slurm.said(plain)) == ("COMPLETED", "share=\n")
    assert slurm("sinfo", "--noheader", "--format", "%T").strip() == "idle"
    program.kill()
    program.wait(60)


def test_a_node_whose_daemon_and_job_are_killed_has_the_share_back_when_the_daemon_is(slurm: Slurm) -> None:
    job = slurm.submit(*LOAD)
    wait_until(lambda: "MiB granted" in slurm.said(job))
    slurm.node.kill()
    slurm.node.wait(60)
    slurm.node = slurm.start_node()
    assert slurm.shares() == [f"slurm-{job}"], "it goes on, and so does its share"
    title = f"slurmstepd: [{job}.".encode()
    steps = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()
             and (entry / "cmdline").exists() and title in (entry / "cmdline").read_bytes()]  # fmt: skip
    assert steps
    slurm.node.kill()
    slurm.node.wait(60)
    for pid in (*steps, *slurm.here.ps()[0]["pids"]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert slurm.shares() == [f"slurm-{job}"], "nobody is there to run the epilog"
    slurm("scancel", job)
    slurm.node = slurm.start_node()
    wait_until(lambda: slurm.shares() == [])


def test_an_epilog_that_never_ran_does_not_keep_a_share_from_the_next_job(slurm: Slurm) -> None:
    epilog = slurm.scripts / "epilog"
    kept = epilog.read_text()
    epilog.write_text("#!/bin/sh\n")
    lost = slurm.submit("true", gres="pumice:memory:8G")
    assert slurm.ended(lost) == "COMPLETED"
    wait_until(lambda: lost not in slurm("squeue", "--noheader", "--format", "%A"))
    epilog.write_text(kept)
    assert slurm.shares() == [f"slurm-{lost}"]
    job = slurm.submit("echo share=$PUMICE_SHARE", gres="pumice:memory:8G")
    assert (slurm.ended(job), slurm.said(job)) == ("COMPLETED", f"share=slurm-{job}\n")
    wait_until(lambda: slurm.shares() == [])
