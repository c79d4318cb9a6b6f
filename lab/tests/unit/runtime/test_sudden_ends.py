"""Whoever is killed, no process of a container is left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from lab.tests.unit.runtime.box import Box, Inside, alive, marked, processes_with, until, wait_for

from pumice_lab.runtime.proc import home_of
from pumice_lab.runtime.process import ProcessRuntime
from pumice_lab.runtime.spec import Mount, StartFailed


def test_nothing_of_a_container_outlives_its_first_process(inside: Inside, tmp_path: Path) -> None:
    async def work(here: Box) -> None:
        pids = here.folder("pids")
        script = "(setsid sh -c 'echo $$ > /pids/far; exec sleep 300' &); sleep 300 & echo $! > /pids/near; sleep 0.2; exit 0"
        await here.run(script, mounts=(Mount(pids, "/pids"),))
        await until(lambda: not any(alive(int(Path(pids, name).read_text())) for name in ("far", "near")))

    inside(work)


_CLIENT = """
import asyncio, sys
from pathlib import Path
from pumice_lab.runtime.proc import home_of
from pumice_lab.runtime.process import ProcessRuntime
from pumice_lab.runtime.spec import ContainerSpec

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
    wait_for(lambda: len(marked(ident)) == 2)
    process.kill()
    wait_for(lambda: not alive(pid) and not alive(spawner) and not marked(ident))


def test_a_kill_of_the_spawner_ends_its_containers_and_another_one_takes_over(inside: Inside) -> None:
    async def work(here: Box) -> None:
        ident, ended = await here.start("sh", "-c", "(setsid sleep 302 &); exec sleep 302")
        await until(lambda: len(marked(ident)) == 2)
        spawner = here.runtime._spawner
        assert spawner is not None
        os.kill(spawner.pid, signal.SIGKILL)
        assert (await asyncio.wait_for(ended, 60)).code == 137
        await until(lambda: not marked(ident))
        assert await here.run("echo again") == (0, "again")

    inside(work)


def test_what_a_kill_of_everything_left_is_swept_at_the_next_start(tmp_path: Path) -> None:
    lost = uuid.uuid4().hex
    (tmp_path / "containers" / lost).mkdir(parents=True)
    marks = {"PUMICE_CONTAINER": lost, "PUMICE_CONTAINERS": home_of(tmp_path / "containers")}
    stray = subprocess.Popen(["sleep", "303"], env=marks, start_new_session=True)

    async def main() -> None:
        runtime = await ProcessRuntime.launch(tmp_path / "containers", data_dir=tmp_path)
        await runtime.close()

    asyncio.run(main())
    assert stray.wait(timeout=60) == -signal.SIGKILL
    assert [entry.name for entry in (tmp_path / "containers").iterdir()] == ["stage"]


def test_a_copy_of_the_folder_ends_nothing_of_the_cluster_that_it_is_a_copy_of(client: Any, tmp_path: Path) -> None:
    _, ident, pid, _ = client
    copy = tmp_path.parent / f"{tmp_path.name}-copy"
    shutil.copytree(tmp_path / "containers", copy / "containers")
    assert (copy / "containers" / ident).is_dir()

    async def main() -> None:
        runtime = await ProcessRuntime.launch(copy / "containers", data_dir=copy)
        await runtime.close()

    asyncio.run(main())
    assert alive(pid)


def test_a_spawner_that_cannot_be_started_again_at_once_is_tried_for_until_it_can(inside: Inside, monkeypatch: Any) -> None:
    async def work(here: Box) -> None:
        here.runtime.respawn_seconds = 0.01
        really, refusals = asyncio.create_subprocess_exec, 2

        async def sometimes(*words: Any, **options: Any) -> Any:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise BlockingIOError(11, "Resource temporarily unavailable")
            return await really(*words, **options)

        monkeypatch.setattr(asyncio, "create_subprocess_exec", sometimes)
        spawner = here.runtime._spawner
        assert spawner is not None
        os.kill(spawner.pid, signal.SIGKILL)
        await spawner.wait()
        assert await here.run("echo again") == (0, "again")
        assert not refusals

    inside(work)


def test_a_spawner_that_does_not_answer_fails_the_start_and_the_late_container_is_ended(inside: Inside) -> None:
    async def work(here: Box) -> None:
        here.runtime.answer_seconds = 0.2
        spawner = here.runtime._spawner
        assert spawner is not None
        os.kill(spawner.pid, signal.SIGSTOP)
        with pytest.raises(StartFailed, match="did not answer") as late:
            await here.start("sleep", "304", env={"LATE": "yes"})
        assert late.value.transient
        assert not here.runtime.running()
        os.kill(spawner.pid, signal.SIGCONT)
        here.runtime.answer_seconds = 60
        assert await here.run("echo next") == (0, "next")
        await until(lambda: not processes_with("LATE=yes"))

    inside(work)
