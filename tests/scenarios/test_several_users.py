"""Several users of one machine and one book: each sees what the others hold, whoever they are. Needs root, to become them."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pumice.adapters.bookings.book import living
from pumice_lab import machine as machines
from pumice_lab.machine import machine_of

ALICE, BOB = 61001, 61002
BECOME = """
import os, pathlib, sys
import shutil, socket, subprocess
import pumice.adapters.bookings.claims
import pumice.adapters.nvml, pumice.cli.laboratory, pumice.cli.reading, pumice.cli.run, pumice_lab.machine.directory
from pumice.cli import main
from pumice.local import arbiter, place, allocator as refusals, start
user = int(sys.argv[1])
os.setgroups([])
os.setgid(user)
os.setuid(user)
sys.exit(main.main(["run", *sys.argv[3:]]) if sys.argv[2] == "run" else arbiter.main(pathlib.Path(sys.argv[3])))
"""
"""Everything is loaded before: the interpreter may lie where only root may look."""


class SharedMachine:
    """An emulated machine that everybody may use, with a book for all."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.run = directory, directory / "run"
        machines.create(machine_of("2xTesla-T4"), directory).close()
        self.run.mkdir(mode=0o777)
        for path, mode in ((self.run, 0o777), (directory / "state", 0o666)):
            path.chmod(mode)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, user: int, *arguments: str) -> subprocess.Popen[str]:
        """``pumice run`` of that user, going on. It leads a session of its own."""
        return self.become(user, "run", "--emulated", str(self.directory), *arguments)

    def become(self, user: int, *arguments: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-c", BECOME, str(user), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"}, cwd="/",
        )  # fmt: skip
        self.started.append(program)
        return program

    def hold(self, user: int, *arguments: str, script: str = "exec sleep 60") -> subprocess.Popen[str]:
        """Returns once it has its share."""
        program = self.start(user, *arguments, "--", "sh", "-c", f"echo mine; {script}")
        assert program.stdout is not None
        assert program.stdout.readline() == "mine\n", program.communicate()[1]
        return program

    def refusal(self, user: int, *arguments: str) -> str:
        program = self.start(user, *arguments, "--", "true")
        said = program.communicate(timeout=60)[1]
        assert program.returncode == 2, said
        return said

    def runs(self, user: int, *arguments: str) -> bool:
        program = self.start(user, *arguments, "--", "true")
        said = program.communicate(timeout=60)[1]
        assert program.returncode in (0, 2), said
        return program.returncode == 0


@pytest.fixture
def here() -> Iterator[SharedMachine]:
    if os.getuid() != 0:
        pytest.skip("only root may become two other users")
    # Not below pytest's folders: they are root's alone, and every other run of pytest makes them so again.
    with tempfile.TemporaryDirectory(prefix="pumice-users-") as base:
        os.chmod(base, 0o755)
        shared = SharedMachine(Path(base) / "machine")
        yield shared
        for program in shared.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.communicate()


def test_what_one_user_holds_is_not_given_to_another(here: SharedMachine) -> None:
    alice = here.hold(ALICE, "--memory", "60%")
    said = here.refusal(BOB, "--memory", "60%")
    assert f"r1  pid {alice.pid}  9216 MiB" in said
    bob = here.hold(BOB, "--memory", "40%")
    assert [(share.user, share.pid) for share in living(here.run)] == [(ALICE, alice.pid), (BOB, bob.pid)]
    alice.kill()
    alice.wait()
    assert here.runs(BOB, "--memory", "60%")


LEFT = {
    "a child": "sleep 60 & exit 0",
    "one that closed its files and used no card yet": "bash -c 'exec 64>&-; exec sleep 60' & exit 0",
}


@pytest.mark.parametrize("script", LEFT.values(), ids=LEFT)
def test_what_a_user_left_running_keeps_its_share_in_the_eyes_of_others(here: SharedMachine, script: str) -> None:
    alice = here.hold(ALICE, "--memory", "100%", script=script)
    alice.wait()
    assert "r1  pid" in here.refusal(BOB, "--memory", "1")
    assert len(living(here.run)) == 1
    os.killpg(alice.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while living(here.run) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert here.runs(BOB, "--memory", "100%")


def test_the_book_stays_everybodys_whoever_writes_it(here: SharedMachine) -> None:
    for user in (ALICE, BOB, ALICE):
        assert here.runs(user, "--memory", "100%")
        book = (here.run / "bookings.json").stat()
        assert (book.st_uid, stat.S_IMODE(book.st_mode)) == (user, 0o666)
    assert stat.S_IMODE((here.run / ".lock").stat().st_mode) == 0o666


def test_priorities_count_between_users(here: SharedMachine) -> None:
    """The arbiter of either writes to the regions of both."""
    here.hold(ALICE, "--memory", "40%", "--priority", "1")
    here.hold(BOB, "--memory", "40%", "--priority", "0")
    here.become(BOB, "arbiter", str(here.run))
    deadline = time.monotonic() + 60
    regions = [Path(share.region) for share in living(here.run)]
    while recent(regions[1]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [recent(region) for region in regions] == [0, 0]  # counted down from 2: nobody launches here


def test_a_machine_that_a_user_may_not_look_into_is_one_line(here: SharedMachine) -> None:
    here.directory.chmod(0o700)
    assert here.refusal(BOB, "--memory", "1") == f"pumice run: {here.directory}: Permission denied\n"


def recent(region: Path) -> int:
    from pumice.adapters.region import read_region

    return read_region(region).recent_kernel
