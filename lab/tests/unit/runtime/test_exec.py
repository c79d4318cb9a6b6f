"""A further command in a running container."""

from __future__ import annotations

import asyncio
import sys

import pytest
from lab.tests.unit.runtime.box import Box, Inside

from pumice_lab.runtime.exec_session import HELD, LocalExec
from pumice_lab.runtime.spec import Mount, StartFailed


def test_exec_sees_the_containers_files_and_env_and_tells_its_exit_code(inside: Inside) -> None:
    async def work(here: Box) -> None:
        ident, _ = await here.start("sleep", "100", mounts=(Mount(here.folder("v"), "/only-inside"),),
                                    env={"COLOUR": "blue"}, hostname="pod-b")
        session = await here.runtime.exec(ident, ("sh", "-c", "cat; echo $COLOUR >&2; hostname; ls -d /only-inside; exit 7"),
                                          tty=False, stdin=True)
        await session.write(b"typed\n")
        session.close_stdin()
        output = {1: b"", 2: b""}
        while (piece := await session.read()) is not None:
            output[piece[0]] += piece[1]
        assert output == {1: b"typed\npod-b\n/only-inside\n", 2: b"blue\n"}
        assert await session.wait() == 7

    inside(work)


def test_an_exec_may_not_signal_every_process_of_the_machine(inside: Inside) -> None:
    async def work(here: Box) -> None:
        ident, _ = await here.start("sleep", "100")
        program = "import os\ntry: os.kill(-1, 0)\nexcept PermissionError: raise SystemExit(7)"
        session = await here.runtime.exec(ident, (sys.executable, "-c", program), tty=False, stdin=False)
        assert await session.wait() == 7

    inside(work)


def test_exec_with_a_terminal_has_its_size(inside: Inside) -> None:
    async def work(here: Box) -> None:
        ident, _ = await here.start("sleep", "100")
        session = await here.runtime.exec(ident, ("sh", "-c", "read go; stty size; test -t 0 && echo tty"), tty=True, stdin=True)
        session.resize(132, 43)
        await session.write(b"go\n")
        output = b""
        while (piece := await session.read()) is not None:
            output += piece[1]
        assert output.replace(b"\r", b"").split(b"\n")[1:3] == [b"43 132", b"tty"]
        assert await session.wait() == 0

    inside(work)


def test_an_exec_in_a_container_that_ended_is_refused(inside: Inside) -> None:
    async def work(here: Box) -> None:
        ident, ended = await here.start("true")
        await ended
        with pytest.raises(StartFailed, match="not running"):
            await here.runtime.exec(ident, ("true",), tty=False, stdin=False)

    inside(work)


def test_a_command_whose_output_nobody_reads_waits_and_loses_nothing(inside: Inside) -> None:
    async def work(here: Box) -> None:
        ident, _ = await here.start("sleep", "100")
        session = await here.runtime.exec(ident, ("sh", "-c", "head -c 20000000 /dev/zero"), tty=False, stdin=False)
        await asyncio.sleep(1.0)
        assert isinstance(session, LocalExec)
        assert session._held < HELD + 65536
        size = 0
        while (piece := await session.read()) is not None:
            size += len(piece[1])
        assert size == 20_000_000
        assert await session.wait() == 0

    inside(work)
