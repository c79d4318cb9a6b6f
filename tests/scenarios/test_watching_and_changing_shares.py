"""Programs of ``pumice run`` while they run: seen by ps and top, given other limits, held back by more important ones."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.one_machine import MIB, PUMICE, OneMachine, wait_until

from pumice.local.limits import change_by, wanted
from pumice.local.permissions import LOG
from pumice.local.place import of_machine
from pumice.local.shares import find
from pumice.model.errors import BadInput


def test_a_changed_limit_is_seen_by_the_machine(here: OneMachine) -> None:
    program = here.burn("--memory", "4000", "--cores", "60")
    here.gets(program.pid, 0.35)
    done = here.pumice("limit", str(program.pid), "--cores", "20", "--emulated", str(here.directory))
    assert done.returncode == 0, done.stderr
    assert "20 % of the cores (was 4000 MiB and 60 %)" in done.stdout
    wait_until(lambda: here.busy_share(program.pid, 1.2) < 0.24)
    (share,) = here.ps()
    (card,) = share["cards"]
    assert (card["memoryLimitMiB"], card["coresLimitPercent"]) == (4000, 20)


def test_every_command_that_reads_an_amount_takes_a_unit(here: OneMachine) -> None:
    program = here.burn("--memory", "3GB", memory=100)
    assert here.ps()[0]["cards"][0]["memoryLimitMiB"] == 3072

    def done(*arguments: str) -> subprocess.CompletedProcess[str]:
        found = here.pumice(*arguments)
        assert found.returncode == 0, found.stderr
        return found

    done("limit", str(program.pid), "--memory", "2.5gib", "--emulated", str(here.directory))
    assert here.ps()[0]["cards"][0]["memoryLimitMiB"] == 2560
    done("machine", "set", str(here.directory), "--card", "1", "--strangers", "1G")
    assert here.machine.card(1).stranger_bytes == 1 << 30


def test_a_limit_is_changed_only_to_what_the_card_and_the_program_allow(here: OneMachine) -> None:
    program = here.burn("--memory", "4000", memory=1000)
    here.burn("--memory", "6000")

    def limit(*arguments: str) -> subprocess.CompletedProcess[str]:
        return here.pumice("limit", str(program.pid), *arguments, "--emulated", str(here.directory))

    raised = limit("--memory", "6000")
    assert raised.returncode == 2
    assert "card 0 has no room for 6000 MiB" in raised.stderr
    lowered = limit("--memory", "500")
    assert lowered.returncode == 2
    assert re.search(r"uses 11[5-9]\d MiB, more than the 500 MiB it would keep", lowered.stderr)
    assert limit("--memory", "500", "--force").returncode == 0
    assert here.run("--memory", "4600", "--", "true").returncode == 0  # what was given back can be had
    cores = limit("--cores", "30")
    assert cores.returncode == 0, f"no memory is taken by it: {cores.stderr}"
    assert limit("--memory", "400").returncode == 2


def test_a_limit_is_changed_by_any_process_of_the_program(here: OneMachine) -> None:
    leader = here.start("--memory", "2000", "--", "sh", "-c", "sleep 60 & echo memory: $!; wait")
    assert leader.stdout is not None
    child = leader.stdout.readline().split()[1]
    done = here.pumice("limit", child, "--cores", "30", "--emulated", str(here.directory))
    assert done.stdout == "r1: 2000 MiB and 30 % of the cores (was 2000 MiB and no core limit)\n", done.stderr
    stranger = here.pumice("limit", str(os.getpid()), "--cores", "30", "--emulated", str(here.directory))
    assert stranger.returncode == 2
    assert f"running now: r1 (pid {leader.pid})" in stranger.stderr
    assert here.pumice("__complete", "limit", "--emulated", str(here.directory), "").stdout == "r1\n"
    os.kill(int(child), signal.SIGKILL)


def test_of_two_who_change_a_limit_at_once_one_is_told_and_neither_change_is_lost(here: OneMachine) -> None:
    """Both have looked before either changed anything: the second would put back what the first has changed."""
    program = here.burn("--memory", "4000", "--cores", "60", memory=1000)
    place = of_machine(here.directory)
    seen, _ = find([place], "r1")
    done = here.pumice("limit", "r1", "--cores", "20", "--emulated", str(here.directory))
    assert done.returncode == 0, done.stderr
    with pytest.raises(BadInput, match="somebody else has just changed its limits, to 4000 MiB and 20 %; look at them"):
        change_by(os.geteuid(), seen, place, wanted(seen, "3000", None), [])
    (card,) = here.ps()[0]["cards"]
    assert (card["memoryLimitMiB"], card["coresLimitPercent"]) == (4000, 20)
    assert program.poll() is None


def test_a_changed_limit_is_logged_and_so_is_one_that_was_refused(here: OneMachine) -> None:
    here.burn("--memory", "4000", memory=1000)
    for memory in ("3000", "500"):
        here.pumice("limit", "r1", "--memory", memory, "--emulated", str(here.directory))
    lines = [json.loads(line) for line in (here.directory / "run" / LOG).read_text().splitlines()]
    asked, done, again, refused = (line["outcome"] for line in lines)
    assert asked == again == "asked for"
    assert done == "r1: 3000 MiB and no core limit (was 4000 MiB and no core limit)"
    assert refused.startswith("refused: r1 uses ")
    assert {line["user"] for line in lines} == {os.geteuid()}


class View:
    """``pumice top`` at a terminal of its own: the screen, or the tables that one has without the extra."""

    def __init__(self, here: OneMachine, *options: str, columns: int = 120, lines: int = 30) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        self.program = subprocess.Popen(
            [*PUMICE, "top", "--emulated", str(here.directory), *options], stdin=self.theirs, stdout=self.theirs,
            stderr=self.theirs, env={**here.environment, "TERM": "xterm-256color"},
        )  # fmt: skip

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def shows(self, words: str) -> str:
        return until(self.ours, words)

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        os.close(self.ours)
        os.close(self.theirs)


KINDS = {"screen": ((), "MEM"), "tables": (("--plain",), "MEMORY IN USE")}


@pytest.fixture(params=KINDS)
def view(here: OneMachine, request: pytest.FixtureRequest) -> Iterator[View]:
    """Either of them, showing the cards."""
    options, words = KINDS[request.param]
    at = View(here, *options)
    at.shows(words)
    yield at
    assert termios.tcgetattr(at.theirs) == at.before  # whichever way it ended
    at.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_live_view_whose_terminal_is_gone_ends(here: OneMachine, kind: str) -> None:
    """Also one that has been there for a while, and waits with much that it would still write."""
    options, words = KINDS[kind]
    at = View(here, *options)
    os.close(at.theirs)
    try:
        at.shows(words)
        at.press("s" * 200)
        os.close(at.ours)
        at.program.wait(timeout=60)  # raises where it goes on
    finally:
        at.program.kill()
        at.program.wait()


def test_the_tables_show_another_tab_and_end_by_a_key(here: OneMachine) -> None:
    at = View(here, "--plain")
    assert "[1] cards (2)  [2] processes" in re.sub("\x1b[^m]*m", "", at.shows("MEMORY IN USE"))
    here.burn("--memory", "4000")
    at.press("2")
    assert "/4000 MiB" in at.shows("/4000 MiB")
    at.press("q")
    assert at.program.wait(timeout=60) == 0
    at.close()


def test_the_screen_shows_a_program_that_has_just_begun_and_ends_by_a_key(here: OneMachine) -> None:
    at = View(here)
    at.shows("PROGRAMS")
    here.burn("--memory", "4000")
    assert "/4000 MiB" in at.shows("/4000 MiB")
    at.press("q")
    assert at.program.wait(timeout=60) == 0
    at.close()


def test_without_the_extra_there_are_the_tables(here: OneMachine, tmp_path: Path) -> None:
    """An installation without it has no such package, which is played by one that is not where it is looked for."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'textual' else find(name, *more)\n"
    )
    here.environment["PYTHONPATH"] = str(tmp_path)
    at = View(here)
    assert "[1] cards (2)  [2] processes" in re.sub("\x1b[^m]*m", "", at.shows("MEMORY IN USE"))
    at.close()


def test_a_terminal_of_twenty_columns_is_told_what_is_needed(here: OneMachine) -> None:
    at = View(here, columns=20, lines=24)
    assert "columns" in at.shows("columns")
    at.press("q")
    assert at.program.wait(timeout=60) == 0
    at.close()


def test_from_the_screen_a_program_is_given_other_limits_and_then_ended(here: OneMachine) -> None:
    """Each is asked once more: n and Enter do nothing, y does."""
    program = here.burn("--memory", "4000", "--cores", "60", memory=1000)
    at = View(here)
    at.shows("1152/4000 MiB")
    at.press("j")
    at.shows("▸")
    at.press("l")
    at.shows("goes on, Esc leaves")
    at.press("\t20\r")
    at.shows("Limit r1 to 4000 MiB and 20 % of the cores?")
    at.press("n")
    at.shows("nothing was done")
    assert here.ps()[0]["cards"][0]["coresLimitPercent"] == 60
    at.press("l")
    at.shows("goes on, Esc leaves")
    at.press("\t20\r")
    at.shows("Limit r1 to 4000 MiB and 20 % of the cores?")
    at.press("y")
    at.shows("(was 4000 MiB and 60 %)")
    assert here.ps()[0]["cards"][0]["coresLimitPercent"] == 20
    at.press("x")
    at.shows("SIGKILL")
    at.press("\x1b[B\r")
    at.shows(f"Send SIGTERM to r1, process {program.pid}?")
    at.press("y")
    assert program.wait(timeout=60) == -signal.SIGTERM
    at.shows(f"SIGTERM was sent to {program.pid}")
    at.press("q")
    assert at.program.wait(timeout=60) == 0
    lines = [json.loads(line) for line in (here.directory / "run" / LOG).read_text().splitlines()]
    assert [(line["what"], line["outcome"]) for line in lines[-1:]] == [("SIGTERM", f"sent to {program.pid}")]
    at.close()


def test_on_the_screen_a_limit_that_somebody_else_has_changed_meanwhile_is_not_put_back(here: OneMachine) -> None:
    here.burn("--memory", "4000", "--cores", "60", memory=1000)
    at = View(here)
    at.shows("1152/4000 MiB")
    at.press("j")
    at.shows("▸")
    at.press("l")
    at.shows("goes on, Esc leaves")
    done = here.pumice("limit", "r1", "--memory", "3000", "--emulated", str(here.directory))
    assert done.returncode == 0, done.stderr
    at.press("\t20\r")
    at.shows("Limit r1 to 4000 MiB and 20 % of the cores?")
    at.press("y")
    at.shows("somebody else has just changed its limits")
    (card,) = here.ps()[0]["cards"]
    assert (card["memoryLimitMiB"], card["coresLimitPercent"]) == (3000, 60)
    at.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_a_live_view_that_is_ended_leaves_the_terminal_as_it_was(view: View, number: signal.Signals, code: int) -> None:
    """By Ctrl-C it ends as a program that the signal itself ended, so that a shell's loop around it ends too."""
    view.program.send_signal(number)
    assert "\x1b[?1049l" in view.shows("\x1b[?1049l")  # back from the second screen
    assert view.program.wait(timeout=60) == code


def until(descriptor: int, words: str, seconds: float = 60) -> str:
    """Return the terminal's output up to those words."""
    seen, deadline = b"", time.monotonic() + seconds
    while words.encode() not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{words!r} did not come; at last: {seen[-3000:]!r}"
        seen += os.read(descriptor, 4096)
        assert time.monotonic() < deadline, f"{words!r} did not come; at last: {seen[-3000:]!r}"
    return seen.decode("utf-8", "replace")


def test_a_running_program_is_shown_with_use_and_limits(here: OneMachine) -> None:
    program = here.burn("--memory", "4000", "--cores", "50", memory=1000)
    (share,) = here.ps()
    assert share["pid"] == program.pid
    used = -(-share["cards"][0]["memoryUsedBytes"] // MIB)
    assert 1150 <= used < 1200  # what it took, its context, and whatever the library charges for its module
    table = here.pumice("ps", "--emulated", str(here.directory)).stdout
    assert f"{used}/4000 MiB" in table
    frame = here.pumice("top", "--once", "--emulated", str(here.directory)).stdout
    assert frame.splitlines()[0].strip() == "cards (2)"
    assert "4000 MiB, 50 %" in frame
    assert "pumice burn --memory 1000" in frame
    reported = json.loads(here.pumice("top", "-o", "json", "--emulated", str(here.directory)).stdout)
    assert [card["programs"] for card in reported["cards"]] == [["r1"], []]
    assert reported["cards"][0]["memoryUsedBytes"] >= 1150 * MIB
    assert [one["pid"] for one in reported["processes"]] == [program.pid]
    wide = here.pumice("ps", "-o", "wide", "--emulated", str(here.directory)).stdout.splitlines()
    assert "REGION" in wide[0]
    assert share["region"] in wide[1]
    story = here.pumice("vgpu", "status", share["region"]).stdout
    assert re.search(rf"{used} of 4000 MiB \(contexts 150, modules \d+, data 1000\)", story)
    assert "limiter at work" in story
    by_pid = here.pumice("vgpu", "status", str(program.pid), env={"PUMICE_MACHINE": str(here.directory)})
    assert by_pid.stdout.splitlines()[0] == story.splitlines()[0]
    stranger = here.pumice("vgpu", "status", "r99", env={"PUMICE_MACHINE": str(here.directory)})
    assert stranger.returncode == 2
    assert f"running now: r1 (pid {program.pid})" in stranger.stderr


def arbiters(directory: Path) -> list[int]:
    """Processes that write the feedback for this machine."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"pumice.local.arbiter" in words and str(directory / "run").encode() in words:
                found.append(int(entry.name))
    return sorted(found)


def test_the_less_important_yields_while_the_more_important_works_and_resumes(here: OneMachine) -> None:
    low = here.burn("--memory", "2000", memory=100)
    assert arbiters(here.directory) == []  # nobody to yield to
    high = here.burn("--memory", "2000", "--priority", "0", memory=100)
    wait_until(lambda: here.ps()[0]["launchesWait"])
    assert here.busy_share(low.pid, 1.0) < 0.02
    here.gets(high.pid, 0.5)
    table = here.pumice("ps", "--emulated", str(here.directory)).stdout
    assert "held back" in table
    _, worker = arbiters(here.directory)
    os.kill(worker, signal.SIGKILL)  # another takes over
    wait_until(lambda: worker not in arbiters(here.directory) and len(arbiters(here.directory)) == 2)
    high.kill()
    high.wait()
    wait_until(lambda: not here.ps()[0]["launchesWait"])
    here.gets(low.pid, 0.5)
    wait_until(lambda: arbiters(here.directory) == [])


@pytest.mark.parametrize(
    ("at", "content", "why"),
    [
        (0, bytes(4), "no region yet"),
        (1856, bytes(4), "does not name a process that lives in it"),
        (1856 + 8, b"\xff" * 40, "more than there is of a card"),
        (1856 + 8 + 32, (1 << 20).to_bytes(8, "little"), "not the sum of its parts"),
    ],
)
def test_figures_of_a_damaged_region_are_shown_as_unknown_and_not_as_figures(
    here: OneMachine, at: int, content: bytes, why: str
) -> None:
    here.burn("--memory", "4000", "--cores", "50", memory=1000)
    (share,) = here.ps()
    with Path(share["region"]).open("r+b") as region:
        region.seek(at)
        region.write(content)
    (share,) = here.ps()
    assert why in share["note"]
    assert share["cards"][0]["memoryUsedBytes"] is None
    for command in (("ps",), ("top", "--once", "--tab", "processes")):
        shown = here.pumice(*command, "--emulated", str(here.directory)).stdout
        assert "? of 4000 MiB, region damaged" in shown
        assert "? of 50 %" in shown
