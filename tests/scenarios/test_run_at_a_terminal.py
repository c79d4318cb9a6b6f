"""``pumice run`` at a terminal: the program has it to itself, as if it had been started without."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pumice_lab import machine as machines
from pumice_lab.machine import machine_of

SPEAKER = """
import os, select, signal, sys, termios, time
heard, told = os.pipe()
os.set_blocking(told, False)
signal.set_wakeup_fd(told)  # a signal that comes just before a read would be noticed only when the read is over
for name in ("SIGINT", "SIGTERM", "SIGWINCH", "SIGCONT", "SIGHUP"):
    signal.signal(getattr(signal, name), lambda number, frame: print("got", signal.Signals(number).name, flush=True))
print("in front", os.tcgetpgrp(0) == os.getpgrp(), flush=True)
print("terminals", [os.isatty(n) for n in range(3)], flush=True)
while True:
    ready, _, _ = select.select([0, heard], [], [])
    if heard in ready:
        os.read(heard, 100)
        continue
    line = sys.stdin.readline()
    if not line:
        sys.exit(3)
    if line == "size\\n":
        print("size", *os.get_terminal_size(), flush=True)
    else:
        print("heard", line.strip(), flush=True)
"""


class Terminal:
    """A program that leads a session at a terminal of its own, and what it shows there."""

    def __init__(self, *command: str, environment: dict[str, str]) -> None:
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):  # whatever the tests themselves are run by
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(command[0], command, environment)
        self.seen = ""

    def until(self, words: str, seconds: float = 60) -> str:
        """Return the screen up to these words, and drop it."""
        deadline = time.monotonic() + seconds
        while words not in self.seen:
            ready, _, _ = select.select([self.screen], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"waited for {words!r}, shown was {self.seen!r}"
            try:
                self.seen += os.read(self.screen, 4096).decode()
            except OSError:  # the other end is closed
                raise AssertionError(f"it ended; shown was {self.seen!r}") from None
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    def end(self) -> int:
        """The exit code, negative for a signal."""
        with contextlib.suppress(OSError):
            while os.read(self.screen, 4096):
                pass
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.screen)


def state(pid: int) -> str:
    """As in /proc: S sleeps, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def states(session: int) -> list[str]:
    """Of the processes that live in a session, but for its leader."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
            if fields and int(fields[3]) == session != int(entry.name):
                found.append(fields[0])
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    machines.create(machine_of("1xTesla-T4"), tmp_path / "machine").close()
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "TERM": "xterm", "PUMICE_MACHINE": str(tmp_path / "machine")}


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Terminal]:
    command = (sys.executable, "-m", "pumice", "run", "--memory", "100", "--", sys.executable, "-u", "-c", SPEAKER)
    opened = Terminal(*command, environment=environment)
    opened.until("in front True")
    opened.until("terminals [True, True, True]")
    yield opened
    opened.close()


def test_what_is_typed_reaches_the_program_and_its_end_of_input_too(terminal: Terminal) -> None:
    terminal.type("hello\n")
    terminal.until("heard hello")
    terminal.type("\x04")
    assert terminal.end() == 3


def test_keys_that_send_signals_reach_the_program(terminal: Terminal) -> None:
    terminal.type("\x03")
    terminal.until("got SIGINT")
    terminal.type("\x1c")  # SIGQUIT, which it does not catch
    assert terminal.end() == -signal.SIGQUIT


def test_signals_from_elsewhere_reach_the_program(terminal: Terminal) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        os.kill(terminal.pid, number)
        terminal.until(f"got {number.name}")


def test_a_stopped_program_is_stopped_and_goes_on(terminal: Terminal) -> None:
    os.kill(terminal.pid, signal.SIGSTOP)
    wait_until(lambda: state(terminal.pid) == "T")
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.until("got SIGCONT")
    terminal.type("still here\n")
    terminal.until("heard still here")


def test_a_window_of_another_size_is_seen(terminal: Terminal) -> None:
    fcntl.ioctl(terminal.screen, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    terminal.until("got SIGWINCH")
    terminal.type("size\n")
    terminal.until("size 77 33")


SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-m", "pumice", "run", "--memory", "100", "--", *sys.argv[1:]])
_, status = os.waitpid(child, os.WUNTRACED)
os.tcsetpgrp(0, os.getpgrp())
print("stopped by", os.WIFSTOPPED(status) and signal.Signals(os.WSTOPSIG(status)).name, flush=True)
sys.stdin.readline()
os.tcsetpgrp(0, child)
os.killpg(child, signal.SIGCONT)
_, status = os.waitpid(child, 0)
os.tcsetpgrp(0, os.getpgrp())
print("code", os.waitstatus_to_exitcode(status), flush=True)
"""
"""Job control of a shell: one command, then ctrl-Z, then fg."""


def test_a_shell_can_stop_a_program_and_fetch_it_back(environment: dict[str, str]) -> None:
    shell = Terminal(sys.executable, "-c", SHELL, "sh", "-c", "cat; exit 5", environment=environment)
    try:
        shell.until("no real card is used\r\n")
        shell.type("first\n")
        shell.until("first\r\nfirst")  # all of it has started
        shell.type("\x1a")
        shell.until("stopped by SIGTSTP")
        wait_until(lambda: set(states(shell.pid)) == {"T"})  # cat too: until it has seen the signal it reads what is typed
        shell.type("fg\n")
        wait_until(lambda: (front := os.tcgetpgrp(shell.screen)) != shell.pid and state(front) != "T")
        shell.type("again\n")
        shell.until("again\r\nagain")
        shell.type("\x04")
        shell.until("code 5")
    finally:
        shell.close()


def test_a_pipe_reaches_the_program(environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-m", "pumice", "run", "--memory", "100", "--", "cat"], input=b"\0\1\2" * 100_000,
                          capture_output=True, timeout=60, env=environment)  # fmt: skip
    assert done.stdout == b"\0\1\2" * 100_000
    assert done.returncode == 0
