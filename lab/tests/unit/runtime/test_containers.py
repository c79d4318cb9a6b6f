"""Containers are local processes that behave as Kubernetes' containers do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from lab.tests.unit.runtime.box import Box, Inside, box

from pumice_lab.runtime.process import flatten
from pumice_lab.runtime.spec import Exit, Mount, StartFailed


def test_exit_codes_and_signals_are_told_as_in_kubernetes(inside: Inside) -> None:
    async def work(here: Box) -> None:
        assert (await here.run("exit 3"))[0] == 3
        ident, ended = await here.start("sleep", "100")
        await here.runtime.signal(ident, signal.SIGTERM)
        assert await ended == Exit(ident, 143, 15)

    inside(work)


def test_output_is_logged_in_cri_format_with_its_stream(inside: Inside) -> None:
    async def work(here: Box) -> None:
        ident, ended = await here.start("sh", "-c", "echo out; echo err >&2; printf unfinished")
        await ended
        rows = [line.split(" ", 3) for line in here.log_path(ident).read_text().splitlines()]
        assert sorted((row[1], row[2], row[3]) for row in rows) == [
            ("stderr", "F", "err"), ("stdout", "F", "out"), ("stdout", "F", "unfinished")]
        assert all(len(row[0]) == len("2026-11-21T13:00:00.000000000Z") for row in rows)

    inside(work)


def test_a_long_line_is_split_into_partial_pieces(inside: Inside) -> None:
    async def work(here: Box) -> None:
        ident, ended = await here.start("sh", "-c", "head -c 40000 /dev/zero | tr '\\0' x; echo")
        await ended
        rows = [line.split(" ", 3) for line in here.log_path(ident).read_text().splitlines()]
        assert "".join(row[3] for row in rows) == "x" * 40000
        assert [row[2] for row in rows] == ["P"] * (len(rows) - 1) + ["F"]
        assert max(len(row[3]) for row in rows) <= 16384

    inside(work)


def test_env_working_directory_and_hostname_are_the_containers_own(inside: Inside) -> None:
    async def work(here: Box) -> None:
        os.environ["PUMICE_TEST_LEAK"] = "1"
        try:
            code, text = await here.run("echo $GREETING-$PUMICE_TEST_LEAK; pwd; hostname", env={"GREETING": "hi"},
                                        working_dir="/usr", hostname="pod-a")
        finally:
            del os.environ["PUMICE_TEST_LEAK"]
        assert (code, text.splitlines()) == (0, ["hi-", "/usr", "pod-a"])

    inside(work)


def test_root_may_run_a_container_as_another_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may change the user")

    async def main() -> None:
        async with box(tmp_path, "mount") as here:
            assert await here.run("id -u; id -g", user=65534, group=65533) == (0, "65534\n65533")
            ident, _ = await here.start("sleep", "100", user=65534, group=65533)
            session = await here.runtime.exec(ident, ("id", "-u"), tty=False, stdin=False)
            assert await session.read() == (1, b"65534\n")

    asyncio.run(main())


def test_a_command_that_is_not_there_is_a_start_error(inside: Inside) -> None:
    async def work(here: Box) -> None:
        with pytest.raises(StartFailed) as refused:
            await here.start("no-such-program")
        assert refused.value.reason == "StartError"
        assert refused.value.message.endswith('exec: "no-such-program": executable file not found in $PATH')
        with pytest.raises(StartFailed, match=r'chdir to cwd \("/nowhere"\)'):
            await here.start("true", working_dir="/nowhere")
        with pytest.raises(StartFailed, match="nothing is created outside") as missing:
            await here.start("true", mounts=(Mount("/no/such/host/path", "/x"),))
        assert missing.value.transient
        assert not here.runtime.running()

    inside(work)


def test_containers_that_come_and_go_quickly_do_not_end_each_other(inside: Inside) -> None:
    """A mount namespace's number is given to the next one at once; a clean-up by number once killed a neighbour."""

    async def work(here: Box) -> None:
        async def one(number: int) -> int:
            if number % 3 == 0:
                with contextlib.suppress(StartFailed):
                    await here.start("no-such-program")
                return number % 7
            return (await here.run(f"exit {number % 7}"))[0]

        assert await asyncio.gather(*(one(n) for n in range(60))) == [n % 7 for n in range(60)]

    inside(work)


def test_a_container_starts_quickly(inside: Inside) -> None:
    async def work(here: Box) -> None:
        mounts = (Mount(here.folder("v"), "/usr/local/vgpu"), Mount(here.folder("l"), "/tmp/vgpulock"))
        times = []
        for _ in range(9):
            began = time.perf_counter()
            await here.start("sleep", "100", mounts=mounts)
            times.append(time.perf_counter() - began)
        assert sorted(times)[len(times) // 2] < 0.25  # 6 to 14 ms on two cores; the limit allows for a busy machine

    inside(work)


SIGNALS_ALL = f"{sys.executable} -c 'import os; os.kill(-1, 0)'"
"""Signal 0 asks whether one may and does nothing."""


def test_a_container_may_not_signal_every_process_of_the_machine(inside: Inside) -> None:
    async def work(here: Box) -> None:
        code, text = await here.run(f"{SIGNALS_ALL} 2>&1; sleep 100 & kill -9 $! && kill -0 $$ && echo its own")
        assert code == 0
        assert "PermissionError: [Errno 1]" in text
        assert text.endswith("its own")

    inside(work)


def test_where_namespaces_are_refused_the_library_is_preloaded_by_its_host_path(tmp_path: Path) -> None:
    (tmp_path / "preload").write_text("/usr/local/vgpu/libvgpu.so\n")
    mounts = [Mount(str(tmp_path / "preload"), "/etc/ld.so.preload"), Mount("/data/vgpu", "/usr/local/vgpu")]
    env = flatten({"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/x.cache", "OTHER": "/usr/local/vgpux"}, mounts)
    assert env == {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/data/vgpu/x.cache", "OTHER": "/usr/local/vgpux",
                   "LD_PRELOAD": "/data/vgpu/libvgpu.so"}


def test_without_namespaces_a_container_still_runs_and_ends_whole(tmp_path: Path) -> None:
    async def main() -> None:
        async with box(tmp_path, "none") as here:
            assert here.runtime.isolation_note
            assert await here.run("sleep 300 & echo hello") == (0, "hello")
            assert "PermissionError: [Errno 1]" in (await here.run(f"{SIGNALS_ALL} 2>&1"))[1]
            ident, ended = await here.start("sh", "-c", "sleep 300; true")
            await here.runtime.signal(ident, signal.SIGKILL)
            assert (await ended).code == 137

    asyncio.run(main())
