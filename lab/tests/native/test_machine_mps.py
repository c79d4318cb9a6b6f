"""The emulated MPS control daemon, and what the emulated driver lets its clients have."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.machines import Programs

from pumice_lab.machine import Machine, create, machine_of
from pumice_lab.machine.tools import MPS_CONTROL

MIB = 1 << 20


class Mps(Programs):
    """Programs on a machine of one card with a daemon of its own; ``say`` speaks its commands."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        super().__init__(machine)
        if not (machine.directory / "bin" / MPS_CONTROL).exists():
            pytest.skip("the emulated control program is not built")
        self.machine, self.pipe = machine, folder / "pipe"
        self.environment["CUDA_MPS_PIPE_DIRECTORY"] = str(self.pipe)
        self.start_daemon()

    def start_daemon(self) -> None:
        uuid = bytes(self.machine.card(0).uuid).decode()
        subprocess.run([MPS_CONTROL, "-d"], env={**self.environment, "CUDA_VISIBLE_DEVICES": uuid}, check=True, timeout=10)

    @property
    def pid(self) -> int:
        return int((self.pipe / f"{MPS_CONTROL}.pid").read_text())

    def say(self, *commands: str) -> str:
        text = "".join(f"{command}\n" for command in commands)
        done = subprocess.run([MPS_CONTROL], input=text, env=self.environment, capture_output=True, text=True, timeout=10)
        return (done.stdout + done.stderr).strip()

    def client(self, *words: str, code: int = 0, **variables: str) -> dict[str, object]:
        command = [sys.executable, "-m", "pumice.cli.burn", *words, "-o", "json"]
        done = subprocess.run(command, env={**self.environment, **variables}, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        got: dict[str, object] = json.loads(done.stdout)
        return got


@pytest.fixture(params=[False])
def mps(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Mps]:
    model = machine_of("2xA100-SXM4-40GB", virtual_time=request.param)
    with create(model, tmp_path / "machine") as machine:
        programs = Mps(machine, tmp_path)
        yield programs
        programs.say("quit")


virtual = pytest.mark.parametrize("mps", [True], indirect=True)


def refused(got: dict[str, object]) -> str:
    error = got["error"]
    assert isinstance(error, dict)
    return str(error["name"])


def test_a_client_gets_no_more_memory_than_its_own_variable_says(mps: Mps) -> None:
    got = mps.client("--memory", "8000", code=1, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=3000M")
    assert refused(got) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert 2000 * MIB < int(str(got["granted_bytes"])) <= 3000 * MIB


def test_a_client_that_says_nothing_is_held_to_the_daemons_bound(mps: Mps) -> None:
    assert mps.say("set_default_device_pinned_mem_limit 0 2G", "get_default_device_pinned_mem_limit 0") == "2048M"
    got = mps.client("--memory", "8000", code=1)
    assert refused(got) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert int(str(got["granted_bytes"])) <= 2048 * MIB
    wide = mps.client("--memory", "8000", code=1, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=30G")
    assert int(str(wide["granted_bytes"])) <= 2048 * MIB


def test_bounds_of_a_running_server_hold_for_clients_that_come_later(mps: Mps) -> None:
    mps.say(f"start_server -uid {os.getuid()}")
    server = mps.say("get_server_list")
    mps.say(f"set_device_pinned_mem_limit {server} 0 1000M", f"set_active_thread_percentage {server} 30")
    assert mps.say(f"get_device_pinned_mem_limit {server} 0", f"get_active_thread_percentage {server}") == "1000M\n30"
    assert int(str(mps.client("--memory", "8000", code=1)["granted_bytes"])) <= 1000 * MIB


@virtual
@pytest.mark.parametrize("percent", [25, 50, 90])
def test_a_portion_of_the_threads_is_that_portion_of_the_time(mps: Mps, percent: int) -> None:
    got = mps.client("--kernels", "200", "--kernel-ms", "1", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=str(percent))
    assert abs(float(str(got["busy_share"])) - percent / 100) < 0.01


def test_two_clients_of_half_the_threads_fill_the_card_together(mps: Mps) -> None:
    half = {**mps.environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    words = [sys.executable, "-m", "pumice.cli.burn", "--seconds", "1", "--kernel-ms", "1", "-o", "json"]
    both = [subprocess.Popen(words, env=half, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    shares = [json.loads(one.communicate(timeout=60)[0])["busy_share"] for one in both]
    assert all(0.35 < share < 0.55 for share in shares), shares


def test_the_daemon_knows_its_clients_and_they_outlive_it(mps: Mps) -> None:
    holder = mps.hold(100)
    server = mps.say("get_server_list")
    assert mps.say(f"get_client_list {server}") == str(holder.pid)
    os.kill(mps.pid, signal.SIGKILL)
    assert holder.poll() is None
    holder.kill()
    holder.wait()
    os.kill(int(server), signal.SIGKILL)


def test_a_card_for_one_process_takes_the_clients_of_one_server_and_nobody_beside_them(mps: Mps) -> None:
    mps.machine.card(0).compute_mode = 3
    holder = mps.hold(100)
    assert mps.client("--memory", "100")["error"] is None
    got = mps.client("--memory", "100", code=1, CUDA_MPS_PIPE_DIRECTORY="/nowhere")
    assert refused(got) == "CUDA_ERROR_DEVICE_UNAVAILABLE"
    holder.kill()
    holder.wait()


def test_a_client_sees_the_daemons_cards_alone(mps: Mps) -> None:
    got = mps.client("--memory", "10", "--device", "1", code=1)
    assert refused(got) == "CUDA_ERROR_INVALID_DEVICE"


def test_where_no_daemon_answers_programs_run_as_without_one(mps: Mps) -> None:
    mps.say("quit")
    assert not (mps.pipe / "control").exists()
    got = mps.client("--memory", "3000", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1G")
    assert got["error"] is None


def test_a_second_daemon_of_one_folder_does_not_start(mps: Mps) -> None:
    before = mps.pid
    done = subprocess.run([MPS_CONTROL, "-d"], env=mps.environment, capture_output=True, text=True, timeout=10)
    assert done.returncode == 1
    assert "already running" in done.stderr
    assert mps.pid == before


@pytest.mark.skipif(os.geteuid() != 0, reason="other users' programs need root")
def test_another_users_client_waits_until_the_first_users_have_ended(mps: Mps) -> None:
    holder = mps.hold(100)
    assert asks_as(65534, mps.pipe) == "wait"
    holder.kill()
    holder.wait()
    assert asks_as(65534, mps.pipe).startswith("server-")


def asks_as(user: int, pipe: Path) -> str:
    """Return the daemon's answer to a driver of that user."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.chdir(pipe)  # the folder may be closed to the user
        os.setuid(user)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect("control")
            connection.send(b"client\n")
            os.write(writer, connection.recv(100))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader) as answer:
        return answer.read().strip()


@pytest.mark.parametrize("command", [
    "set_default_device_pinned_mem_limit 0 lots", "set_default_device_pinned_mem_limit 9 1G",
    "set_default_active_thread_percentage 0", "set_default_active_thread_percentage 101", "start_server -uid x", "dance",
])  # fmt: skip
def test_what_the_daemon_does_not_take_is_told_and_changes_nothing(mps: Mps, command: str) -> None:
    assert mps.say(command)
    assert mps.say("get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0") == "100.0"


def test_nothing_that_is_said_to_its_sockets_ends_the_daemon_or_its_server(mps: Mps) -> None:
    holder, before, rng = mps.hold(100), mps.pid, random.Random(5)
    server = mps.say("get_server_list")
    commands = ["get_server_list", "start_server", "set_device_pinned_mem_limit", "get_client_list", "bounds",
                "set_default_device_pinned_mem_limit", "set_active_thread_percentage", "client", "join",
                "get_device_pinned_mem_limit", "percent", "memory", "clients"]  # fmt: skip
    words = [*commands, "-uid", "0", server, "1G", "-1M", "99999999999999G", "", "  ", "\t", "nan", "1e309", "x" * 300, "\x00"]
    for _ in range(400):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(mps.pipe / rng.choice(["control", f"server-{server}"])))
            connection.send(" ".join(rng.choices(words, k=rng.randrange(5))).encode() + b"\n")
            if rng.random() < 0.5:
                connection.recv(4096)
    assert (mps.pid, mps.say("get_server_list"), holder.poll()) == (before, server, None)
    holder.kill()
    holder.wait()
