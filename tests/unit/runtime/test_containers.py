"""Containers are local processes in mount namespaces of their own, and the host stays as it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pumice.cluster.runtime.no_namespaces import flatten
from pumice.cluster.runtime.process import ProcessRuntime
from pumice.cluster.runtime.spec import ContainerSpec, Exit, Mount, StartFailed

PATH = "/usr/local/bin:/usr/bin:/bin"
KINDS = ["mount", "user"] if os.geteuid() == 0 else ["user"]


class Box:
    """A runtime in a folder, and short ways to run things in it."""

    def __init__(self, runtime: ProcessRuntime, directory: Path) -> None:
        self.runtime, self.directory = runtime, directory

    async def start(self, *argv: str, mounts: tuple[Mount, ...] = (), env: dict[str, str] | None = None,
                    **more: Any) -> tuple[str, asyncio.Future[Exit]]:
        ident = uuid.uuid4().hex
        ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        spec = ContainerSpec(ident, argv, {"PATH": PATH, **(env or {})}, str(self.log_path(ident)), mounts=mounts, **more)
        await self.runtime.start(spec, ended.set_result)
        return ident, ended

    async def run(self, script: str, **more: Any) -> tuple[int, str]:
        """Exit code and output of a shell script."""
        ident, ended = await self.start("sh", "-c", script, **more)
        return (await asyncio.wait_for(ended, 60)).code, self.text(ident)

    def log_path(self, ident: str) -> Path:
        return self.directory / "logs" / f"{ident}.log"

    def text(self, ident: str) -> str:
        lines = self.log_path(ident).read_text().splitlines()
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def folder(self, name: str) -> str:
        path = self.directory / name
        path.mkdir(parents=True, exist_ok=True)
        return str(path)


@contextlib.asynccontextmanager
async def box(directory: Path, isolation: str) -> AsyncIterator[Box]:
    runtime = await ProcessRuntime.launch(directory / "containers", data_dir=directory, isolation=isolation)
    try:
        if runtime.isolation != isolation:
            pytest.skip(f"this machine refuses isolation {isolation}: {runtime.isolation_note}")
        yield Box(runtime, directory)
    finally:
        await runtime.close()


@pytest.fixture(params=KINDS)
def inside(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Callable[[Box], Coroutine[Any, Any, None]]], None]:
    """Run a coroutine function with a box, once per kind of isolation."""

    def run(work: Callable[[Box], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with box(tmp_path, request.param) as here:
                await work(here)

        asyncio.run(main())

    return run


Inside = Callable[[Callable[[Box], Coroutine[Any, Any, None]]], None]


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


def test_mount_points_that_the_host_lacks_exist_inside_only(inside: Inside, tmp_path: Path) -> None:
    wanted = ["/etc/ld.so.preload", "/usr/local/vgpu", "/tmp/vgpulock", "/pumice-test-volume/deep/er"]
    places = [place if not os.path.lexists(place) else f"{place}-of-a-test" for place in wanted]
    before = {parent: _listing(parent) for parent in ("/etc", "/usr/local", "/")}
    (tmp_path / "preload").write_text("")

    async def work(here: Box) -> None:
        volume = here.folder("volume")
        mounts = (Mount(str(tmp_path / "preload"), places[0], True), *(Mount(volume, place) for place in places[1:]))
        code, text = await here.run(
            f"for p in {' '.join(places)}; do ls -d $p; done; echo data > {places[3]}/file; cat {places[1]}/file; "
            "test -x /usr/bin/env && ls /etc/passwd /usr/local/lib -d", mounts=mounts)
        assert code == 0, text
        assert text.splitlines() == [*places, "data", "/etc/passwd", "/usr/local/lib"]
        assert Path(volume, "file").read_text() == "data\n"

    inside(work)
    assert {parent: _listing(parent) for parent in before} == before
    assert not any(os.path.lexists(place) for place in places)


def _listing(path: str) -> list[tuple[str, int]]:
    return sorted((entry.name, entry.stat(follow_symlinks=False).st_ino) for entry in os.scandir(path))


def test_the_host_sees_no_new_mounts_while_a_container_runs(inside: Inside) -> None:
    def mounts() -> list[str]:
        return Path("/proc/self/mounts").read_text().splitlines()

    async def work(here: Box) -> None:
        before = mounts()
        await here.start("sleep", "100", mounts=(Mount(here.folder("v"), "/usr/local/vgpu"),))
        assert mounts() == before

    inside(work)


def test_a_mount_inside_a_volume_is_made_in_the_volume_and_its_files_stay(inside: Inside) -> None:
    async def work(here: Box) -> None:
        outer, inner = here.folder("outer"), here.folder("inner")
        Path(inner, "hello").write_text("inner")
        code, text = await here.run("cat /data/sub/hello; echo; echo kept > /data/own", mounts=(
            Mount(inner, "/data/sub"), Mount(outer, "/data")))
        assert (code, text) == (0, "inner")
        assert Path(outer, "own").read_text() == "kept\n"

    inside(work)


def test_a_read_only_mount_refuses_writes(inside: Inside) -> None:
    async def work(here: Box) -> None:
        code, text = await here.run("echo x > /conf/file", mounts=(Mount(here.folder("ro"), "/conf", True),))
        assert code != 0
        assert "Read-only file system" in text

    inside(work)


def test_links_in_the_target_are_followed_inside_the_container(inside: Inside) -> None:
    if not os.path.islink("/var/run"):
        pytest.skip("/var/run is no link here")

    async def work(here: Box) -> None:
        volume = here.folder("token")
        Path(volume, "token").write_text("t")
        target = "/var/run/secrets/kubernetes.io/serviceaccount"
        assert await here.run(f"cat {target}/token; echo", mounts=(Mount(volume, target),)) == (0, "t")

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


def test_nothing_of_a_container_outlives_its_first_process(inside: Inside, tmp_path: Path) -> None:
    async def work(here: Box) -> None:
        pids = here.folder("pids")
        script = "(setsid sh -c 'echo $$ > /pids/far; exec sleep 300' &); sleep 300 & echo $! > /pids/near; sleep 0.2; exit 0"
        await here.run(script, mounts=(Mount(pids, "/pids"),))
        await _until(lambda: not any(_alive(int(Path(pids, name).read_text())) for name in ("far", "near")))

    inside(work)


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
            ident, ended = await here.start("sh", "-c", "sleep 300; true")
            await here.runtime.signal(ident, signal.SIGKILL)
            assert (await ended).code == 137

    asyncio.run(main())


_CLIENT = """
import asyncio, sys
from pathlib import Path
from pumice.cluster.runtime.process import ProcessRuntime
from pumice.cluster.runtime.spec import ContainerSpec

async def main():
    runtime = await ProcessRuntime.launch(Path(sys.argv[1]) / "containers", data_dir=Path(sys.argv[1]))
    script = "(setsid sleep 301 &); echo $$; exec sleep 301"
    env = {"PATH": "/usr/bin:/bin"}
    pid = await runtime.start(ContainerSpec(sys.argv[2], ("sh", "-c", script), env, sys.argv[1] + "/log"), print)
    print(pid, runtime._spawner.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def client(tmp_path: Path) -> Any:
    """A process with a runtime and one container; gives (process, container's id and pid, spawner's pid)."""
    ident = uuid.uuid4().hex
    process = subprocess.Popen([sys.executable, "-c", _CLIENT, str(tmp_path), ident], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, spawner = map(int, process.stdout.readline().split())
    yield process, ident, pid, spawner
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_kill_of_the_cluster_leaves_no_container_running(client: Any) -> None:
    process, ident, pid, spawner = client
    _wait_for(lambda: len(_marked(ident)) == 2)
    process.kill()
    _wait_for(lambda: not _alive(pid) and not _alive(spawner) and not _marked(ident))


def test_a_kill_of_the_spawner_ends_its_containers_and_another_one_takes_over(inside: Inside) -> None:
    async def work(here: Box) -> None:
        ident, ended = await here.start("sh", "-c", "(setsid sleep 302 &); exec sleep 302")
        await _until(lambda: len(_marked(ident)) == 2)
        spawner = here.runtime._spawner
        assert spawner is not None
        os.kill(spawner.pid, signal.SIGKILL)
        assert (await asyncio.wait_for(ended, 10)).code == 137
        await _until(lambda: not _marked(ident))
        assert await here.run("echo again") == (0, "again")

    inside(work)


def test_what_a_kill_of_everything_left_is_swept_at_the_next_start(tmp_path: Path) -> None:
    lost = uuid.uuid4().hex
    (tmp_path / "containers" / lost).mkdir(parents=True)
    stray = subprocess.Popen(["sleep", "303"], env={"PUMICE_CONTAINER": lost}, start_new_session=True)

    async def main() -> None:
        runtime = await ProcessRuntime.launch(tmp_path / "containers", data_dir=tmp_path)
        await runtime.close()

    asyncio.run(main())
    assert stray.wait(timeout=10) == -signal.SIGKILL
    assert [entry.name for entry in (tmp_path / "containers").iterdir()] == ["stage"]


def _marked(ident: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if f"PUMICE_CONTAINER={ident}".encode() in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not done():
        assert time.monotonic() < deadline, "it did not happen within 15 s"
        time.sleep(0.02)


async def _until(done: Callable[[], bool]) -> None:
    await asyncio.to_thread(_wait_for, done)
