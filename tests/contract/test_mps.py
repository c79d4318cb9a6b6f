"""The plugin's assumptions about MPS: on the emulated control program and driver, and on NVIDIA's where there is one.

It was never run on a real card so far. It needs a card that nobody else uses.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.machines import Programs

from pumice.ports.mps import PROGRAM
from pumice_lab.machine import create, machine_of
from tests.contract.test_cards import outside, why_no_real_card

MIB = 1 << 20


@pytest.fixture(params=["emulated", "real"])
def environment(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """That of a program beside a daemon of its own."""
    with tempfile.TemporaryDirectory(prefix="pumice") as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        if request.param == "real":
            if why := why_no_real_card() or ("" if shutil.which(PROGRAM) else f"{PROGRAM} is not on this computer"):
                pytest.skip(why)
            found = {**outside(), **places}
        else:
            with create(machine_of("A100-SXM4-40GB"), Path(folder, "machine")) as machine:
                found = {**Programs(machine).environment, **places}
                if not (machine.directory / "bin" / PROGRAM).exists():
                    pytest.skip("the emulated control program is not built")
        for name in ("pipe", "log"):
            Path(folder, name).mkdir()
        subprocess.run([PROGRAM, "-d"], env=found, check=True, timeout=30)
        yield found
        say(found, "quit")


def say(environment: dict[str, str], *commands: str) -> list[str]:
    text = "".join(f"{command}\n" for command in commands)
    done = subprocess.run([PROGRAM], input=text, env=environment, capture_output=True, text=True, timeout=30)
    return done.stdout.split()


def burn(environment: dict[str, str], *words: str) -> dict[str, object]:
    command = [sys.executable, "-m", "pumice.cli.burn", "-o", "json", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_pid_file_names_the_daemon_and_the_kernel_names_it_as_mps(environment: dict[str, str]) -> None:
    pid = int(Path(environment["CUDA_MPS_PIPE_DIRECTORY"], f"{PROGRAM}.pid").read_text())
    assert Path(f"/proc/{pid}/comm").read_text().startswith("nvidia-cuda-mps")


def test_defaults_that_were_set_bound_a_program_that_says_nothing(environment: dict[str, str]) -> None:
    say(environment, "set_default_device_pinned_mem_limit 0 2000M", "set_default_active_thread_percentage 50")
    assert float(say(environment, "get_default_active_thread_percentage")[-1]) == 50
    got = burn(environment, "--memory", "6000")
    assert got["error"] is not None
    assert int(str(got["granted_bytes"])) <= 2000 * MIB


def test_a_program_is_bounded_by_its_own_variables_further(environment: dict[str, str]) -> None:
    say(environment, "set_default_device_pinned_mem_limit 0 4000M")
    got = burn({**environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2000M"}, "--memory", "6000")
    assert got["error"] is not None
    assert int(str(got["granted_bytes"])) <= 2000 * MIB


def test_servers_and_clients_are_listed_by_pid_and_a_servers_environment_names_its_pipes(environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "pumice.cli.burn", "--memory", "200", "--seconds", "30"]
    client = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not (servers := say(environment, "get_server_list")) or not say(environment, f"get_client_list {servers[0]}"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert say(environment, f"get_client_list {servers[0]}") == [str(client.pid)]
        pipes = f"CUDA_MPS_PIPE_DIRECTORY={environment['CUDA_MPS_PIPE_DIRECTORY']}".encode()
        assert pipes in Path(f"/proc/{servers[0]}/environ").read_bytes().split(b"\0")
        assert os.stat(f"/proc/{servers[0]}").st_uid == os.getuid()
    finally:
        client.kill()
        client.wait()
