"""The plugin's keeper of MPS control daemons with the emulated program, driver and clients: killed, adopted, left, missing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.machines import Programs, cards_of

from pumice.adapters.mps import MOST_SERVERS, MpsPrograms
from pumice.apps.node.control_daemons import ControlDaemons
from pumice.model.errors import Unavailable
from pumice.node.mps import Bounds
from pumice.ports.clock import SystemClock
from pumice.ports.mps import folder_of
from pumice_lab.machine import Machine
from pumice_lab.machine.native import library_dir
from pumice_lab.machine.tools import MPS_CONTROL

EXCLUSIVE, DEFAULT = 3, 0


@dataclass
class World:
    """One card of an emulated machine, and its daemon's folder. ``keeper`` makes the plugin's part, anew each time."""

    machine: Machine
    programs: Programs
    root: Path
    control: MpsPrograms

    @property
    def card(self) -> str:
        return bytes(self.machine.card(0).uuid).decode()

    @property
    def pipe(self) -> Path:
        return self.root / folder_of(self.card) / "pipe"

    @property
    def pid(self) -> int:
        return self.control.look(self.card, ask=False).pid

    @property
    def mode(self) -> int:
        return int(self.machine.card(0).compute_mode)

    def keeper(self) -> ControlDaemons:
        keeper = ControlDaemons(self.control, SystemClock(), patience=3.0)
        keeper.wanted = lambda: {self.card: Bounds(1000, 40)}
        return keeper

    def tenant(self) -> subprocess.Popen[str]:
        """A client that holds memory until it is killed."""
        self.programs.environment["CUDA_MPS_PIPE_DIRECTORY"] = str(self.pipe)
        return self.programs.hold(100)

    def kill(self) -> int:
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        while self.pid:
            time.sleep(0.01)
        return pid

    def bounds(self) -> tuple[str, ...]:
        requested = "get_default_device_pinned_mem_limit 0", "get_default_active_thread_percentage"
        return tuple(self.control.say(self.card, *requested))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="pumice") as folder, cards_of("1xA100-SXM4-40GB") as (machine, _):
        program = machine.directory / "bin" / MPS_CONTROL
        if not program.exists():
            pytest.skip("the emulated control program is not built")
        root = Path(folder)
        control = MpsPrograms(root, str(program), patience=1.0)
        found = World(machine, Programs(machine), root, control)
        yield found
        for pid in (found.pid, *control.look(found.card, ask=False).left):
            if pid:
                os.kill(pid, signal.SIGKILL)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())


def commands_of(pid: int) -> bytes:
    """Nothing of a process that has ended, whether or not somebody has noticed."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def end(program: subprocess.Popen[str]) -> None:
    program.kill()
    program.communicate()


def test_a_card_is_closed_to_others_before_its_daemon_is_there_and_open_again_after_it(world: World) -> None:
    async def story() -> None:
        keeper = world.keeper()
        await keeper.look()
        assert keeper.closed() == {}
        assert world.mode == EXCLUSIVE
        assert world.bounds() == ("1000M", "40.0")
        await keeper.leave()
        assert world.pid == 0
        assert world.mode == DEFAULT

    play(story)


def test_a_server_that_runs_gets_the_wider_bounds_before_the_container_is_told_of_them(world: World) -> None:
    async def story() -> None:
        keeper = world.keeper()
        await keeper.look()
        tenant = world.tenant()
        await keeper.allocation(world.card, Bounds(9000, 80))
        (server,) = world.control.say(world.card, "get_server_list")
        reported = world.control.say(
            world.card, f"get_device_pinned_mem_limit {server} 0", f"get_active_thread_percentage {server}"
        )
        assert reported == ["9000M", "80"]
        end(tenant)
        await keeper.leave()

    play(story)


def test_a_daemon_that_was_killed_comes_back_with_its_bounds(world: World) -> None:
    async def story() -> None:
        keeper, heard = world.keeper(), []
        keeper.changed = lambda: heard.append(keeper.closed())
        await keeper.look()
        before = world.kill()
        await keeper.look()
        assert "has ended" in keeper.closed()[world.card]
        assert heard[-1] == keeper.closed()
        await asyncio.sleep(1.1)
        await keeper.look()
        assert keeper.closed() == {}
        assert world.pid not in (0, before)
        assert world.bounds() == ("1000M", "40.0")
        assert heard[-1] == {}
        await keeper.leave()

    play(story)


def test_while_programs_of_a_dead_daemon_run_their_card_takes_no_others(world: World) -> None:
    async def story() -> None:
        keeper = world.keeper()
        await keeper.look()
        tenant = world.tenant()
        world.kill()
        with pytest.raises(Unavailable, match="programs that it served still run"):
            async with asyncio.timeout(30):
                await keeper.allocation(world.card, Bounds(1, 1))
        assert tenant.poll() is None
        assert world.pid == 0
        (server,) = world.control.look(world.card, ask=False).left
        end(tenant)
        await keeper.allocation(world.card, Bounds(1, 1))
        assert not commands_of(server), "the idle server of the dead daemon was left beside the new one"
        await keeper.leave()

    play(story)


def test_a_plugin_that_goes_leaves_who_is_served_and_the_next_one_finds_them(world: World) -> None:
    async def story() -> None:
        first = world.keeper()
        await first.look()
        tenant, before = world.tenant(), world.pid
        await first.leave()
        assert world.pid == before
        assert world.mode == EXCLUSIVE
        assert tenant.poll() is None
        second = world.keeper()
        await second.look()
        assert world.pid == before
        assert second.closed() == {}
        end(tenant)
        await asyncio.sleep(0.2)
        await second.leave()
        assert world.pid == 0

    play(story)


def test_a_node_that_shares_otherwise_now_ends_what_was_left_once_nobody_is_served(world: World) -> None:
    async def story() -> None:
        first = world.keeper()
        await first.look()
        tenant = world.tenant()
        await first.leave()
        second = ControlDaemons(world.control, SystemClock())
        await second.look()
        assert second.closed() == {world.card: "programs that share it by MPS still run"}
        end(tenant)
        await asyncio.sleep(0.2)
        await second.look()
        assert second.closed() == {}
        assert (world.pid, world.mode) == (0, DEFAULT)
        assert world.control.known() == ()

    play(story)


def test_a_card_on_which_programs_run_without_mps_is_not_taken_from_them(world: World) -> None:
    async def story() -> None:
        tenant = world.programs.hold(100)
        keeper = world.keeper()
        await keeper.look()
        assert f"programs run on it that do not share it by MPS (pid {tenant.pid})" in keeper.closed()[world.card]
        assert (world.pid, world.mode) == (0, DEFAULT)
        end(tenant)
        await keeper.allocation(world.card, Bounds(1, 1))
        assert keeper.closed() == {}
        await keeper.leave()

    play(story)


def test_without_the_control_program_the_card_takes_nobody_and_says_so(world: World) -> None:
    async def story() -> None:
        keeper = ControlDaemons(MpsPrograms(world.root, "/nowhere/nvidia-cuda-mps-control"), SystemClock())
        keeper.wanted = lambda: {world.card: Bounds()}
        await keeper.look()
        assert "nvidia-cuda-mps-control is not on this node" in keeper.closed()[world.card]

    play(story)


def test_a_daemon_that_answers_nothing_is_ended_and_made_anew(world: World) -> None:
    async def story() -> None:
        keeper = world.keeper()
        await keeper.look()
        stuck = world.pid
        os.kill(stuck, signal.SIGSTOP)
        keeper.wanted = lambda: {world.card: Bounds(2000, 40)}
        async with asyncio.timeout(60):
            while world.pid == stuck:
                await keeper.look()
            assert keeper.closed()
            while keeper.closed():
                await asyncio.sleep(0.3)
                await keeper.look()
        assert world.bounds() == ("2000M", "40.0")
        await keeper.leave()

    play(story)


@pytest.mark.parametrize("text", ["", "nonsense", "-4", "1", str(1 << 40), pytest.param(str(os.getpid()), id="the plugin's own")])
def test_a_pid_that_is_none_of_mps_is_no_daemon(world: World, text: str) -> None:
    world.pipe.mkdir(parents=True)
    (world.pipe / f"{MPS_CONTROL}.pid").write_text(text)
    assert world.pid == 0
    assert world.control.look(world.card, ask=True).left == ()


@pytest.mark.parametrize("make", ["pipe", "endless", "huge", "folder"])
def test_what_a_container_leaves_in_place_of_the_pid_keeps_nobody_waiting(world: World, make: str) -> None:
    world.pipe.mkdir(parents=True)
    path = world.pipe / f"{MPS_CONTROL}.pid"
    match make:
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "huge":
            path.touch()
            os.truncate(path, 1 << 42)
        case _:
            path.mkdir()
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(world.pid), daemon=True)
    asking.start()
    asking.join(10.0)
    assert found == [0]


@pytest.mark.parametrize("said", ["²", "9" * 5000, "\\377\\n", "7\\n" * 1000])
def test_whatever_answers_in_a_daemons_place_is_asked_of_a_few_servers_at_most(world: World, said: str) -> None:
    program = world.root / MPS_CONTROL
    program.write_text(f"#!/bin/sh\nprintf '{said}'\n")
    program.chmod(0o755)
    assert len(MpsPrograms(world.root, str(program)).servers(world.card)) <= MOST_SERVERS


def test_a_daemon_of_another_card_is_not_taken_for_this_ones_and_not_ended_in_its_place(world: World) -> None:
    async def story() -> None:
        keeper = world.keeper()
        await keeper.look()
        other = "GPU-of-somebody-else"
        forged = world.root / folder_of(other) / "pipe" / f"{MPS_CONTROL}.pid"
        forged.parent.mkdir(parents=True)
        forged.write_text(str(world.pid))
        assert world.control.look(other, ask=False).pid == 0
        world.control.kill(other, world.pid)
        assert commands_of(world.pid)
        await keeper.leave()

    play(story)


KEEPER = """
import asyncio, sys
from pathlib import Path
from pumice.adapters.mps import MpsPrograms
from pumice.adapters.nvml import NvmlCards
from pumice.apps.node.control_daemons import ControlDaemons
from pumice.node.mps import Bounds
from pumice.ports.clock import SystemClock

async def keep(card, keeper):
    keeper.wanted = lambda: {card: Bounds(1000, 40)}
    print("begun", flush=True)
    while True:
        await keeper.look()
        await asyncio.sleep(0.01)

cards = NvmlCards(sys.argv[4])
asyncio.run(keep(sys.argv[1], ControlDaemons(MpsPrograms(Path(sys.argv[2]), sys.argv[3], patience=1.0), SystemClock())))
"""


def test_a_plugin_that_is_killed_at_any_moment_leaves_its_card_to_the_next_one(world: World) -> None:
    """And so is its daemon, now and then; never who is served by one that lives."""
    rng, served = random.Random(11), None
    program = str(world.machine.directory / "bin" / MPS_CONTROL)
    for round_ in range(10):
        plugin = world.programs.start(
            sys.executable, "-c", KEEPER, world.card, str(world.root), program, str(library_dir())
        )
        assert plugin.stdout is not None
        assert plugin.stdout.readline() == "begun\n"
        time.sleep(rng.random() * 0.15)
        end(plugin)
        if served is None and rng.random() < 0.5 and world.pid:
            world.kill()
        if round_ == 5:
            asyncio.run(world.keeper().allocation(world.card, Bounds(1000, 40)))
            served = world.tenant()
    assert served is not None
    assert served.poll() is None, served.communicate()

    async def last() -> None:
        keeper = world.keeper()
        await keeper.look()
        assert keeper.closed() == {}
        assert (world.bounds(), world.mode) == (("1000M", "40.0"), EXCLUSIVE)
        assert world.control.look(world.card, ask=True).clients == 1
        end(served)
        await asyncio.sleep(0.2)
        await keeper.leave()
        assert (world.pid, world.mode) == (0, DEFAULT)

    play(last)
