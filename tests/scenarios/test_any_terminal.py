"""Commands print whatever the terminal, the pipe and the file system are like: never a traceback."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from kit.command_line import write_case
from kit.one_machine import OneMachine

from pumice.cli.local_view import WIDE
from pumice.cli.main import COMMANDS

EACH_IN_A_CHILD = r"""
import gc, os, sys
from pumice.cli import main
for name in main.COMMANDS:
    main.load(name)  # once for all of them
gc.collect()
gc.freeze()  # a child's end looks through its own objects only, which takes a fifth of the time
for line in sys.stdin.buffer.read().splitlines():
    said = os.memfd_create("said")
    child = os.fork()
    if not child:
        os.dup2(said, 2)
        if b"=" in (first := line.partition(b"\t"))[0]:
            os.environb.update([first[0].split(b"=", 1)])
            line = first[2]
        sys.argv = ["pumice", *map(os.fsdecode, line.split(b"\t"))]
        main.main()
        sys.exit(0)  # with what the interpreter says at its end
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.lseek(said, 0, 0)
    os.write(2, b"\t".join((str(code).encode(), line.replace(b"\t", b" "), os.read(said, 100000))) + b"\0")
    os.close(said)
"""
LONG = "d" * 300
"""No file system has a name so long: nobody can make it, not even root."""
TERMINALS = {
    "ascii": ({"PYTHONIOENCODING": "ascii"}, ""),
    "the C locale": ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ""),
    "a closed output": ({}, ">&-"),
    "a full disk": ({}, ">/dev/full"),
    "a reader who has left": ({}, "| true"),
}


@pytest.fixture
def commands(here: OneMachine, tmp_path: Path) -> list[list[str]]:
    """Every command with something to say, and a program that runs meanwhile."""
    here.burn("--memory", "4000", "--cores", "50")
    case_file = write_case(tmp_path)
    machine, empty = str(here.directory), str(tmp_path / "empty")
    odd = tmp_path / "ödd.yaml"
    odd.write_text("kind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n  - name: a\n    resources:\n"
                   "      limits: {volcano.sh/vgpu-memroy: 1}\n")  # fmt: skip
    return [
        ["--help"], ["--version"], ["ps"], ["ps", "-o", "wide"], ["ps", "-o", "json"], ["top", "--once"], ["top", "-o", "json"],
        ["vgpu", "status", "r1"], ["limit", "r1", "--cores", "40"], ["machine", "show", machine], ["machine", "presets"],
        ["machine", "create", str(tmp_path / "mächine"), "--cards", "Tesla-T4"], ["burn", "--kernels", "1"],
        ["run", "--emulated", machine, "--memory", "10%", "--", "true"], ["explain", "--from", str(case_file), "pod", "both"],
        ["fits", "--from", str(case_file), "-f", str(odd)], ["lint", str(odd)], ["replay", str(case_file)],
        ["status", "--data-dir", empty], ["down", "--data-dir", empty], ["bench", "--list"],
    ]  # fmt: skip


def said_by(commands: list[list[str]], environment: dict[str, str], where: str = "") -> list[tuple[int, str, str]]:
    """(exit code, command, what it said on stderr) of each. A command may begin with ``VARIABLE=value``, as in a shell."""
    reported = subprocess.run(
        ["sh", "-c", f'"$@" {where}', "sh", sys.executable, "-c", EACH_IN_A_CHILD], capture_output=True, timeout=200,
        input="\n".join("\t".join(command) for command in commands).encode(), env=environment,
    )  # fmt: skip
    rows = [row.split("\t", 2) for row in reported.stderr.decode(errors="replace").split("\0") if row]
    assert len(rows) == len(commands), reported.stderr[-2000:]
    return [(int(code), command, said) for code, command, said in rows]


@pytest.mark.parametrize("terminal", TERMINALS)
def test_no_command_ends_in_a_traceback_on_any_terminal(
    terminal: str, commands: list[list[str]], here: OneMachine
) -> None:
    more, where = TERMINALS[terminal]
    environment = {**here.environment, **more, "PUMICE_MACHINE": str(here.directory)}
    helps = [[name, "--help"] for name in COMMANDS] if terminal == "ascii" else []
    for code, command, said in said_by(commands + helps, environment, where):
        assert "Traceback" not in said, f"{command}: {said}"
        assert "Exception ignored" not in said, f"{command}: {said}"
        if terminal not in ("a full disk", "a reader who has left"):
            assert code in (0, 1), f"{command}: {said}"
        elif terminal == "a full disk" and not command.startswith(("run", "burn")):  # argparse prints help and looks no further
            assert code == 2, f"{command}: {said}"
            assert "No space left on device" in said


def test_a_directory_that_cannot_be_had_is_one_line(commands: list[list[str]], here: OneMachine, tmp_path: Path) -> None:
    nowhere = str(tmp_path / LONG)
    requested = [
        ["machine", "create", nowhere, "--cards", "Tesla-T4"], ["machine", "show", nowhere], ["machine", "faults", nowhere],
        ["up", "--data-dir", nowhere], ["up", "-d", "--data-dir", nowhere], ["run", "--emulated", nowhere, "--", "true"],
        ["ps", "--emulated", nowhere], ["vgpu", "status", nowhere], ["replay", nowhere], ["lint", nowhere],
        ["explain", "--from", nowhere, "pod", "x"], ["fits", "-f", nowhere], ["dump", "--kubeconfig", nowhere],
        ["scheduler", "--kubeconfig", nowhere], ["controller", "--kubeconfig", nowhere],
        ["monitor", "--node-name", "n", "--kubeconfig", nowhere],
    ]  # fmt: skip
    with_a_home = [[f"{variable}={nowhere}", *command] for variable in ("XDG_DATA_HOME", "PUMICE_RUN_DIR", "PUMICE_MACHINE")
                   for command in (["ps"], ["top", "--once"], ["run", "--emulated", "--", "true"],
                                   ["status"], ["down"], ["limit", "r1", "--cores", "3"])]  # fmt: skip
    reported = said_by(requested + with_a_home, here.environment)
    for code, command, said in reported[:len(requested)]:
        assert (code, said.count("\n")) == (2, 1), f"{command}: {said}"
    for code, command, said in reported[len(requested):]:
        assert code in (0, 1, 2), f"{command}: {said}"
        assert "Traceback" not in said, f"{command}: {said}"


def test_the_wide_table_of_programs_keeps_every_column_in_a_narrow_terminal(here: OneMachine) -> None:
    here.burn("--memory", "4000", "--cores", "50")
    for width in (60, 80, 100, 120):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        subprocess.run([sys.executable, "-m", "pumice", "ps", "--emulated", str(here.directory), "-o", "wide"], stdout=theirs,
                       timeout=60, check=True, env={**here.environment, "TERM": "xterm"})  # fmt: skip
        os.close(theirs)
        shown = ""
        with contextlib.suppress(OSError):  # the other end is closed
            while container_device := os.read(ours, 100_000):
                shown += container_device.decode()
        os.close(ours)
        head, row = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
        assert head.split() == list(WIDE)
        assert re.match(r"r1 +\d+ ", row)
        assert "/4000 MiB" in row


def test_what_an_encoding_has_no_letter_for_is_printed_by_what_looks_like_it(here: OneMachine) -> None:
    here.burn("--memory", "4000", "--cores", "50")
    environment = {**here.environment, "PUMICE_MACHINE": str(here.directory), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "pumice", "ps"], capture_output=True, timeout=60, check=True, env=environment)
    head, row = done.stdout.decode("ascii").splitlines()
    assert "###" in row
    assert head.index("COMMAND") == row.index("pumice burn")


def test_a_descriptor_that_was_closed_is_not_taken_for_a_file_of_ours(tmp_path: Path, here: OneMachine) -> None:
    done = subprocess.run(["sh", "-c", f'"$@" 1>&- && ls {tmp_path}/m/state', "sh", sys.executable, "-m", "pumice", "machine",
                           "create", f"{tmp_path}/m", "--cards", "Tesla-T4"],
                          capture_output=True, text=True, timeout=60, env=here.environment)  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = subprocess.run([sys.executable, "-m", "pumice", "machine", "show", f"{tmp_path}/m"], capture_output=True, text=True,
                           timeout=60, env={**os.environ, **here.environment})  # fmt: skip
    assert "Tesla T4" in shown.stdout
