"""Programs share the cards of one machine without a cluster, started as a person would, on an emulated machine."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.one_machine import MIB, PUMICE, OneMachine, wait_until

from pumice.adapters.bookings import book as booking


def test_two_programs_share_a_card_within_their_limits_and_a_third_is_refused(here: OneMachine) -> None:
    first = here.burn("--memory", "40%", "--cores", "40", memory=4000)
    second = here.burn("--memory", "40%", "--cores", "40", memory=4000)
    third = here.run("--memory", "40%", "--cores", "40", "--", "pumice", "burn")
    shares = [here.busy_share(program.pid, 1.0) for program in (first, second)]
    assert third.returncode == 2
    assert "card 0 has no room for 40 % of the memory and 40 % of the cores" in third.stderr
    for program in (first, second):
        assert f"pid {program.pid}  4471 MiB  40 %  pumice burn --memory 4000" in third.stderr
        share = here.machine.witness().of(program.pid, 0)
        assert share is not None
        assert 4000 * MIB <= share.peak <= 4471 * MIB
    assert "card 1 has room for it: --gpu 1, or --gpu auto" in third.stderr
    assert all(share < 0.43 for share in shares), shares
    for program in (first, second):
        here.gets(program.pid, 0.2)


def test_a_program_is_refused_the_first_byte_above_its_limit(here: OneMachine) -> None:
    done = here.run("--memory", "2000", "--", "pumice", "burn", "--memory", "2001", "--block", "1")
    assert done.returncode == 1  # the program's own exit code
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    assert max(share.peak for share in here.machine.witness().shares) <= 2000 * MIB


def test_auto_takes_the_card_where_most_is_free(here: OneMachine) -> None:
    here.burn("--memory", "60%", "--gpu", "auto")
    here.burn("--memory", "60%", "--gpu", "auto")
    assert sorted(card["card"] for share in here.ps() for card in share["cards"]) == [0, 1]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], -signal.SIGTERM),
        (["sh", "-c", "kill -PIPE $$"], -signal.SIGPIPE),
        (["no-such-program"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_the_exit_code_is_the_programs_own(here: OneMachine, command: list[str], code: int) -> None:
    done = here.run("--memory", "1000", "--", *command)
    assert done.returncode == code, done.stderr
    assert here.ps() == []


def test_a_program_is_given_words_that_are_not_utf_8_as_they_are_and_shown_without_them(here: OneMachine) -> None:
    """As names of files are that came from an older system."""
    word = os.fsdecode(b"caf\xe9.csv")
    program = here.start("--memory", "1000", "--", "sh", "-c", "echo there; while :; do sleep 0.1; done", word)
    assert program.stdout is not None
    assert program.stdout.readline() == "there\n", program.stderr
    assert Path(f"/proc/{program.pid}/cmdline").read_bytes().endswith(b"\0caf\xe9.csv\0")
    (share,) = here.ps()
    assert share["command"][-1] == "caf?.csv"


def test_a_machine_below_a_path_that_is_not_utf_8_is_refused_in_one_line(tmp_path: Path) -> None:
    below = tmp_path / os.fsdecode(b"caf\xe9")
    below.mkdir()
    machine = OneMachine(below / "m")
    done = machine.run("--memory", "1000", "--", "true")
    machine.close()
    assert done.returncode == 2
    assert re.fullmatch(r"(pumice run: on the emulated machine .*\n)?pumice run: .* a path that is not UTF-8 .*\n", done.stderr)


def test_signals_reach_the_program_itself(here: OneMachine) -> None:
    script = "trap 'exit 9' INT; echo memory: ready; while :; do sleep 0.05; done"
    program = here.start("--memory", "1000", "--", "sh", "-c", script)
    here.wait_for_memory(program)
    program.send_signal(signal.SIGINT)
    assert program.wait(timeout=60) == 9


def test_what_a_program_held_is_free_as_soon_as_it_is_killed(here: OneMachine) -> None:
    program = here.burn("--memory", "100%")
    assert here.run("--memory", "1", "--", "true").returncode == 2
    program.kill()
    program.wait()
    assert here.run("--memory", "100%", "--", "true").returncode == 0


def test_a_share_lives_as_long_as_any_process_in_it(here: OneMachine) -> None:
    burn = f"{sys.executable} -m pumice burn --memory 100 --kernel-ms 1 --seconds 60"
    leader = here.start("--memory", "100%", "--", "sh", "-c", f"{burn} & read line; exit 0")
    here.wait_for_memory(leader)
    leader.kill()
    leader.wait()
    (share,) = here.ps()
    assert share["pid"] == leader.pid
    assert share["pids"] != [leader.pid]
    assert here.run("--memory", "1", "--", "true").returncode == 2
    for pid in share["pids"]:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while here.ps() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert here.run("--memory", "100%", "--", "true").returncode == 0


DAEMON = """
import subprocess
left = subprocess.Popen(["sleep", "60"], env={}, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("memory: ready", left.pid, flush=True)
"""


def test_a_daemon_keeps_the_share_although_it_left_files_session_and_environment_behind(here: OneMachine) -> None:
    leader = here.start("--memory", "100%", "--", sys.executable, "-c", DAEMON)
    assert leader.stdout is not None
    daemon = int(leader.stdout.readline().split()[-1])
    assert leader.wait(timeout=60) == 0
    try:
        assert [(share["pid"], share["pids"]) for share in here.ps()] == [(leader.pid, [daemon])]
        assert here.run("--memory", "1", "--", "true").returncode == 2
    finally:
        os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: here.ps() == [])
    assert here.run("--memory", "100%", "--", "true").returncode == 0


@pytest.mark.parametrize("count", [20, pytest.param(64, marks=pytest.mark.soak)])
def test_many_programs_that_start_at_once_never_hold_more_than_the_cards_have(here: OneMachine, count: int) -> None:
    program = ("sh", "-c", "echo memory: mine; exec sleep 100")
    rivals = [here.start("--memory", "30%", "--gpu", "auto", "--", *program) for _ in range(count)]
    held = refused = 0
    for rival in rivals:
        assert rival.stdout is not None
        if rival.stdout.readline():
            held += 1
        else:
            refused += rival.wait() == 2
    assert (held, refused) == (6, count - 6)
    assert sorted(card["card"] for share in here.ps() for card in share["cards"]) == [0, 0, 0, 1, 1, 1]


def test_kills_at_any_instant_leave_whole_books_and_a_free_card(here: OneMachine) -> None:
    rng = random.Random(7)
    for _ in range(12):
        program = here.start("--memory", "100%", "--", "sleep", "60")
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(rng.uniform(0.05, 0.5))
        program.kill()
        program.communicate()
    assert here.run("--memory", "100%", "--", "true").returncode == 0
    assert here.ps() == []
    with booking.opened(here.directory / "run"):
        pass
    assert list((here.directory / "run" / "regions").iterdir()) == []


def test_where_the_disk_takes_no_region_one_line_says_so_and_nothing_is_left(here: OneMachine) -> None:
    cramped = ["sh", "-c", 'ulimit -f 1024; exec "$@"', "sh"]  # half a MiB for any file
    done = subprocess.run([*cramped, *PUMICE, "run", "--emulated", str(here.directory), "--", "true"],
                          capture_output=True, text=True, timeout=60, env=here.environment)  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(r"pumice run: .*/vgpu.cache: the region cannot be made: File too large\n", done.stderr)
    assert list((here.directory / "run" / "regions").iterdir()) == []
    assert here.ps() == []
    assert here.run("--memory", "100%", "--", "true").returncode == 0


BAD = [
    (["--memory", "3gx"], "did you mean 3GiB?"),
    (["--memory", "-1"], "MiB such as 3000"),
    (["--memory", "0"], "at least 1 MiB"),
    (["--memory", "120%"], "1% to 100%"),
    (["--memory", ""], "MiB such as 3000"),
    (["--cores", "101"], "percent of the card's compute"),
    (["--cores", "half"], "percent of the card's compute"),
    (["--gpu", "7"], "this machine has cards 0 to 1"),
    (["--gpu", "GPU-beef"], "this machine has cards 0 to 1"),
    (["--gpus", "3", "--memory", "1000"], "--gpus 3: this machine has 2; --gpus all takes every card"),
    (["--gpu", "1", "--gpus", "1"], "one of the two is enough"),
    (["--gpu", "first"], "the number of a card such as 0"),
    (["--priority", "2"], "0 is high, 1 is low"),
    (["--memroy", "3000"], "no such option: --memroy; did you mean --memory?"),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=[" ".join(options) for options, _ in BAD])
def test_a_mistake_is_one_line_and_exit_code_2(here: OneMachine, options: list[str], words: str) -> None:
    done = here.run(*options, "--", "true")
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


HIDDEN = [
    ("", "CUDA_VISIBLE_DEVICES=: CUDA shows a program no card then"),
    ("-1", "CUDA_VISIBLE_DEVICES=-1: CUDA shows a program no card then"),
    ("5", "CUDA_VISIBLE_DEVICES=5: this machine has cards 0 to 1"),
]


@pytest.mark.parametrize(("visible", "words"), HIDDEN)
def test_cards_that_the_environment_hides_are_not_shared(here: OneMachine, visible: str, words: str) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": visible}
    done = here.pumice("run", "--emulated", str(here.directory), "--", "true", env=hidden)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    named = here.pumice("run", "--emulated", str(here.directory), "--gpu", "1", "--", "true", env=hidden)
    assert named.returncode == 0, named.stderr


def test_a_program_that_has_others_start_its_container_is_told_that_nothing_is_limited_there(
    here: OneMachine, tmp_path: Path
) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    done = here.run("--memory", "3000", "--", str(docker), "run", "--rm", "cuda", "nvidia-smi")
    assert done.returncode == 0
    assert "docker has its program started by others or without this environment: there the share limits nothing" in done.stderr


DASHES = [
    (["--emulated", "true"], "--emulated took 'true' for a machine; write the command after --"),
    (["--emulated", "pumice", "burn"], "--emulated took 'pumice' for a machine; write the command after --"),
    (["--emulated", "--memory", "50", "%", "--", "true"], "%: command not found; it stands before the --"),
    (["--emulated", "--", "train.py"], "train.py: command not found; a file of this name is here, so perhaps: python train.py"),
]


@pytest.mark.parametrize(("arguments", "words"), DASHES, ids=[" ".join(arguments) for arguments, _ in DASHES])
def test_a_beginner_who_does_not_name_the_command_is_told(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "train.py").touch()
    environment = {"PATH": os.environ["PATH"], "XDG_DATA_HOME": str(tmp_path / "data")}
    done = subprocess.run([sys.executable, "-m", "pumice", "run", *arguments], capture_output=True, text=True, timeout=60,
                          cwd=tmp_path, env=environment)  # fmt: skip
    assert done.returncode in (2, 127)
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_what_cannot_be_run_on_is_one_line_and_exit_code_2(here: OneMachine, tmp_path: Path) -> None:
    for arguments in ([], ["--emulated", str(tmp_path), "--", "true"], ["--emulated", "2xNothing", "--", "true"]):
        done = here.pumice("run", *arguments)
        assert done.returncode == 2, arguments
        assert done.stderr.count("\n") == 1, done.stderr


def test_without_a_driver_the_emulated_machine_is_offered(here: OneMachine, tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a real driver")
    done = here.pumice("run", "--", "true", env={"PUMICE_RUN_DIR": str(tmp_path / "run")})
    assert done.returncode == 2
    assert "--emulated brings emulated ones" in done.stderr


def test_inside_a_share_no_other_is_opened(here: OneMachine) -> None:
    done = here.run("--memory", "1000", "--", *PUMICE, "run", "--emulated", str(here.directory), "--", "true")
    assert done.returncode == 2
    assert "already runs inside share r1" in done.stderr


def test_cards_that_a_node_plugin_hands_out_are_left_to_it(here: OneMachine) -> None:
    folder = here.directory.parent / "kubelet" / "device-plugins"
    folder.mkdir(parents=True)
    plugin = socket.socket(socket.AF_UNIX)
    os_dir = os.open(folder, os.O_PATH)
    plugin.bind(f"/proc/self/fd/{os_dir}/nvidia-vgpu-number.sock")
    os.close(os_dir)
    assert here.run("--memory", "1000", "--", "true").returncode == 0  # left over by a plugin that died
    program = here.burn("--memory", "2000")
    plugin.listen()
    done = here.run("--memory", "1000", "--", "true")
    less, more = (here.pumice("limit", str(program.pid), "--memory", amount, "--emulated", str(here.directory))
                  for amount in ("1900", "1950"))  # fmt: skip
    assert less.returncode == 0, less.stderr
    assert "r1 may hold less but not more" in more.stderr.replace("r2", "r1")
    plugin.close()
    assert done.returncode == 2
    assert "handed out by a node plugin" in done.stderr
    assert done.stderr.count("\n") == 1


def test_memory_that_strangers_hold_is_told(here: OneMachine) -> None:
    here.machine.set_stranger_memory(0, 8000)
    assert "of the 4000 MiB only 3178 may be had" in here.run("--memory", "4000", "--", "true").stderr
    assert "may be had" not in here.run("--memory", "3000", "--", "true").stderr


def test_the_users_own_emulated_machine_is_made_on_first_use(here: OneMachine) -> None:
    done = here.pumice("run", "--emulated", "--memory", "40%", "--", "nvidia-smi", "-L")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("NVIDIA GeForce GTX 1080 Ti") == 2
    assert "on the emulated machine" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_program_may_hold_shares_of_several_cards(here: OneMachine) -> None:
    program = here.burn("--gpu", "0,1", "--memory", "2000", "--cores", "50", memory=1000)
    (share,) = here.ps()
    assert [(card["card"], card["memoryLimitMiB"]) for card in share["cards"]] == [(0, 2000), (1, 2000)]
    seen = here.run("--gpu", "1,0", "--memory", "9000", "--", "nvidia-smi", "-L").stdout
    assert seen.count("GPU") >= 2
    refused = here.run("--gpus", "2", "--memory", "9500", "--", "true")
    assert refused.returncode == 2
    assert refused.stderr.count(f"pid {program.pid}  2000 MiB  50 %") == 2
    assert "what would fit on cards 0, 1: --memory 9178" in refused.stderr
    done = here.pumice("limit", str(program.pid), "--memory", "1500", "--emulated", str(here.directory))
    assert done.stdout.splitlines() == [
        f"r1 on card {card}: 1500 MiB and 50 % of the cores (was 2000 MiB and 50 %)" for card in (0, 1)
    ]


def test_each_card_of_a_program_holds_it_to_its_own_limit(here: OneMachine) -> None:
    two = ("--gpu", "1,0", "--memory", "2000,6000", "--cores", "20,50")
    for device, memory, code in ((0, 1700, 0), (0, 2500, 1), (1, 5500, 0), (1, 6500, 1)):
        done = here.run(*two, "--", "pumice", "burn", "--device", str(device), "--memory", str(memory))
        assert done.returncode == code, done.stdout + done.stderr
    program = here.burn(*two, memory=1000)  # its card 0 is the machine's card 1
    (share,) = here.ps()
    limits = [(card["card"], card["memoryLimitMiB"], card["coresLimitPercent"]) for card in share["cards"]]
    assert limits == [(1, 2000, 20), (0, 6000, 50)]
    done = here.pumice("limit", str(program.pid), "--memory", "1900,6500", "--emulated", str(here.directory))
    assert done.stdout.splitlines() == [
        "r5 on card 1: 1900 MiB and 20 % of the cores (was 2000 MiB and 20 %)",
        "r5 on card 0: 6500 MiB and 50 % of the cores (was 6000 MiB and 50 %)",
    ], done.stderr


def test_nvidia_smi_in_a_share_shows_its_limit_and_the_other_cards_as_they_are(here: OneMachine) -> None:
    sizes = ("--query-gpu=memory.total", "--format=csv,noheader,nounits")
    done = here.run("--gpu", "1", "--memory", "2000", "--", "nvidia-smi", *sizes)
    whole = here.machine.card(0).memory_bytes // MIB
    assert done.stdout.split() == [str(whole), "2000"], done.stderr


TOTAL = "nvidia-smi --query-gpu=memory.total,memory.used --format=csv,noheader,nounits"
KEPT = ("PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "PUMICE_MACHINE")
SCRUBBED = "env -i " + " ".join(f'{name}="${name}"' for name in KEPT)
SUBPROCESS = f"""import os, subprocess
kept = {{name: os.environ[name] for name in {KEPT}}}
subprocess.run("{TOTAL}", shell=True, env=kept)"""
ORPHAN = f"""import os, subprocess, sys, time
kept = {{name: os.environ[name] for name in {KEPT}}}
waits = "import os, subprocess, sys, time\\nwhile os.getppid() == int(sys.argv[1]): time.sleep(0.01)\\n"
ask = "subprocess.run('{TOTAL}', shell=True, stderr=subprocess.STDOUT)"
subprocess.Popen([sys.executable, "-c", waits + ask, str(os.getpid())], env=kept)"""


@pytest.mark.parametrize(
    "command", [("sh", "-c", f"{SCRUBBED} {TOTAL}"), (sys.executable, "-c", SUBPROCESS)], ids=["env -i", "and without its files"]
)
def test_who_loses_the_environment_but_not_the_library_keeps_to_the_share(here: OneMachine, command: tuple[str, ...]) -> None:
    common = Path("/tmp/cudevshr.cache")  # where a region lies that nobody knows a place for
    was_there = common.exists()
    with contextlib.ExitStack() as after:
        after.callback(lambda: was_there or common.unlink(missing_ok=True))
        done = here.run("--memory", "2000", "--", *command)
        assert "2000, 0" in done.stdout.splitlines(), done.stderr
        assert done.stderr.count("\n") == 1  # that the machine is an emulated one
        assert common.exists() == was_there


def test_who_has_lost_every_trace_of_the_share_gets_no_memory_and_is_told(here: OneMachine) -> None:
    done = here.run("--memory", "2000", "--", sys.executable, "-c", ORPHAN)
    assert "the share of `pumice run` that this process belongs to cannot be found" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-2:] == ["0, 0", "0, 0"]


def test_after_a_change_of_the_limit_the_next_program_of_the_share_has_it_and_says_nothing(here: OneMachine) -> None:
    flag = here.directory.parent / "go"
    program = here.start("--memory", "2000", "--", "sh", "-c", f"until [ -e {flag} ]; do sleep 0.05; done; {TOTAL}")
    wait_until(lambda: len(here.ps()) == 1)
    done = here.pumice("limit", str(program.pid), "--memory", "1500", "--emulated", str(here.directory))
    assert done.returncode == 0, done.stderr
    flag.touch()
    shown, said = program.communicate(timeout=60)
    assert "1500, 0" in shown.splitlines()
    assert said.count("\n") == 1  # that the machine is an emulated one


def test_a_share_in_which_no_context_fits_is_told_in_words(here: OneMachine) -> None:
    assert "takes 150 to 500 MiB by itself, so in 100 MiB it can hardly begin" in here.run("--memory", "100", "--", "true").stderr
    assert "hardly" not in here.run("--memory", "1000", "--", "true").stderr
