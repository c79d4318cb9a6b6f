"""``pumice burn`` on an emulated card, and what the machine's witness says of it."""

from __future__ import annotations

import json
import re
import signal
import time

import pytest
from kit.machines import MachineMaker, Programs

from pumice_lab.machine import FaultModel

MIB = 1 << 20


def test_burn_gets_what_fits_and_the_witness_saw_the_same(make_machine: MachineMaker) -> None:
    machine = make_machine("GeForce-GTX-1080-Ti")
    got = json.loads(Programs(machine).burn("--memory", "1000", "--kernels", "20", "--kernel-ms", "1", "-o", "json"))
    assert got["granted_bytes"] == 1000 * MIB
    assert got["kernels"] == 20
    assert got["error"] is None
    (share,) = machine.witness().shares
    assert share.peak >= 1000 * MIB
    assert share.busy_ns == 20_000_000
    assert share.launches == 20
    assert (share.live, share.killed, share.bytes) == (False, False, 0)


@pytest.mark.parametrize("shape", ["linear", "pitched", "async"])
def test_memory_beyond_the_card_is_refused_by_name_with_what_was_got(make_machine: MachineMaker, shape: str) -> None:
    machine = make_machine("GeForce-GTX-1080-Ti")
    got = json.loads(Programs(machine).burn("--memory", "20000", "--shape", shape, "-o", "json", code=1))
    assert got["error"]["name"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert 10_000 * MIB < got["granted_bytes"] < 11_178 * MIB
    text = Programs(machine).burn("--memory", "20000", "--shape", shape, code=1)
    assert "of 20000 MiB granted" in text
    assert "refused: CUDA_ERROR_OUT_OF_MEMORY (2) by cuMemAlloc" in text


def test_two_programs_share_a_card_by_time(make_machine: MachineMaker) -> None:
    """Two processes of 100 kernels of 10 ms on one card take 2 s of machine time, 1 s each."""
    machine = make_machine("A100-SXM4-40GB", virtual_time=True)
    begun = machine.clock.now_ns()
    load = ("--kernels", "100", "--kernel-ms", "10", "-o", "json")
    both = [Programs(machine).start_burn(*load) for _ in range(2)]
    for program in both:
        out, err = program.communicate(timeout=60)
        assert program.returncode == 0, out + err
    assert [share.busy_ns for share in machine.witness().shares] == [1_000_000_000] * 2
    assert machine.clock.now_ns() - begun == pytest.approx(2e9, rel=0.01)


def test_strangers_memory_is_not_to_be_had(make_machine: MachineMaker) -> None:
    machine = make_machine("Tesla-T4")
    machine.set_stranger_memory(0, 14_000)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in Programs(machine).burn("--memory", "2000", code=1)


def test_an_injected_fault_is_met_and_counted(make_machine: MachineMaker) -> None:
    machine = make_machine("L4")
    machine.set_fault(FaultModel("cuMemAlloc", code=2, first=3))
    got = json.loads(Programs(machine).burn("--memory", "512", "--block", "64", "-o", "json", code=1))
    assert got["granted_bytes"] == 2 * 64 * MIB
    (fault,) = machine.faults()
    assert (fault.calls, fault.hits) == (3, 1)
    machine.clear_faults()
    assert machine.faults() == ()
    Programs(machine).burn("--memory", "512")


def test_a_lost_card_takes_no_more_work(make_machine: MachineMaker) -> None:
    machine = make_machine("2xL4")
    machine.lose_card(0)
    text = Programs(machine).burn("--memory", "10", "--device", "1", code=1)
    assert "CUDA_ERROR_INVALID_DEVICE" in text


def test_a_killed_program_gives_its_memory_back(make_machine: MachineMaker) -> None:
    machine = make_machine("Tesla-T4")
    holder = Programs(machine).hold(10_000)
    assert [share.bytes > 10_000 * MIB for share in machine.witness().live()] == [True]
    holder.kill()
    holder.communicate(timeout=60)
    (share,) = machine.witness().shares
    assert (share.killed, share.live) == (True, False)
    Programs(machine).burn("--memory", "10000")


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        (("--memory", "-1"), "MiB such as 3000"),
        (("--memory", "3gx"), "did you mean 3GiB?"),
        (("--streams", "0"), "a whole number from 1 on, not '0'"),
        (("--seconds", "nan"), "a number from 0 on, not 'nan'"),
        (("--shape", "round"), "'round' is not one of 'linear', 'pitched', 'async'"),
        (("--kernel-ms", "1", "--kernel-us", "1"), "both give the length of a kernel"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    make_machine: MachineMaker, words: tuple[str, ...], mistake: str
) -> None:
    reported = Programs(make_machine("L4")).burn(*words, code=2)
    assert mistake in reported
    assert reported.count("\n") == 1


def test_the_witness_sees_a_running_program_as_of_now(make_machine: MachineMaker) -> None:
    """Work that was given to the card is seen being served while its program does nothing but wait."""
    machine = make_machine("A30")
    program = Programs(machine).start_burn("--kernels", "1", "--kernel-ms", "60000")
    try:
        seen: list[int] = []
        deadline = time.monotonic() + 40
        while len(seen) < 2:
            assert program.poll() is None
            assert time.monotonic() < deadline
            for share in machine.witness().live():
                if share.busy_ns > (seen[-1] if seen else 0):
                    seen.append(share.busy_ns)
        assert seen[1] < 60e9
    finally:
        program.kill()
        program.communicate()


def test_with_nothing_asked_of_it_burn_keeps_the_card_busy_until_it_is_interrupted(make_machine: MachineMaker) -> None:
    machine = make_machine("A30")
    program = Programs(machine).start_burn()
    try:
        deadline = time.monotonic() + 40
        while not any(share.busy_ns > 50_000_000 for share in machine.witness().live()):
            assert program.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        program.send_signal(signal.SIGINT)
        printed, _ = program.communicate(timeout=60)
        assert program.returncode == 0
        assert "kernels: " in printed
    finally:
        program.kill()
        program.communicate()


@pytest.mark.parametrize("load", [("--kernels", "60000"), ("--memory", "10", "--seconds", "60")], ids=" ".join)
def test_an_interrupted_load_ends_at_once_and_tells_what_it_did(make_machine: MachineMaker, load: tuple[str, ...]) -> None:
    machine = make_machine("A30")
    program = Programs(machine).start_burn(*load)
    try:
        assert program.stdout is not None
        while "memory:" not in (line := program.stdout.readline()) and "--kernels" not in load:
            assert line
        deadline = time.monotonic() + 40
        while "--kernels" in load and not any(share.busy_ns > 50_000_000 for share in machine.witness().live()):
            assert time.monotonic() < deadline
        program.send_signal(signal.SIGINT)
        printed, said = program.communicate(timeout=60)
        assert program.returncode == 130
        assert "Traceback" not in said
        if "--kernels" in load:
            busy = re.search(r"kernels: \d+ of .* a second, ([0-9.]+)% busy", printed)
            assert busy is not None
            assert 0 < float(busy[1]) <= 100
    finally:
        program.kill()
        program.communicate()


def test_with_only_a_time_burn_keeps_the_card_busy_for_it(make_machine: MachineMaker) -> None:
    got = json.loads(Programs(make_machine("A30")).burn("--seconds", "0.2", "-o", "json"))
    assert got["busy_share"] > 0.5
