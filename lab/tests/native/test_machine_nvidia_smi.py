"""The emulated machine's ``nvidia-smi``: it shows the machine's cards, says what it is, and runs nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.machines import MachineMaker, Programs
from kit.vgpu_kit import on_a_switch

from pumice_lab.machine import create


def test_the_list_names_every_card_with_its_uuid(make_machine: MachineMaker) -> None:
    machine = make_machine(["A100-SXM4-40GB", "GeForce-GTX-1080-Ti"])
    uuids = [card.uuid.decode() for card in machine.cards()]
    assert Programs(machine).smi("-L").splitlines() == [
        f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {uuids[0]})",
        f"GPU 1: NVIDIA GeForce GTX 1080 Ti (UUID: {uuids[1]})",
    ]


def test_the_table_says_that_the_machine_is_emulated(make_machine: MachineMaker) -> None:
    table = Programs(make_machine("GeForce-GTX-1080-Ti")).smi()
    assert "Emulated machine" in table.splitlines()[1]
    assert "NVIDIA-SMI (emulated)" in table
    assert "Driver Version: 580.95.05" in table
    assert "CUDA Version: 13.0" in table
    assert "0MiB /  11178MiB" in table
    assert "No running processes found" in table
    framed = [line for line in table.splitlines() if line[:1] in "|+" and line]
    assert len({len(line) for line in framed}) == 1


def test_the_long_report_has_the_common_sections(make_machine: MachineMaker) -> None:
    report = Programs(make_machine("Tesla-T4")).smi("-q")
    for line in ("Product Name", "FB Memory Usage", "Utilization", "ECC Mode", "Max Clocks", "Attached GPUs"):
        assert line in report
    assert "15360 MiB" in report


def test_a_query_prints_csv_with_or_without_heading_and_units(make_machine: MachineMaker) -> None:
    run = Programs(make_machine("2xTesla-T4"))
    fields = "--query-gpu=index,name,memory.total,mig.mode.current"
    assert run.smi(fields, "--format=csv").splitlines() == [
        "index, name, memory.total [MiB], mig.mode.current",
        "0, Tesla T4, 15360 MiB, [N/A]",
        "1, Tesla T4, 15360 MiB, [N/A]",
    ]
    assert run.smi(fields, "--format=csv,noheader,nounits", "-i", "1") == "1, Tesla T4, 15360, [N/A]\n"


def test_a_wrong_field_names_the_nearest(make_machine: MachineMaker) -> None:
    text = Programs(make_machine("L4")).smi("--query-gpu=memory.totl", "--format=csv", code=2)
    assert 'Field "memory.totl" is not a valid field to query; did you mean "memory.total"?' in text


def test_a_program_shows_up_with_its_memory(make_machine: MachineMaker) -> None:
    machine = make_machine("L4")
    run = Programs(machine)
    holder = run.hold(2000)
    try:
        apps = run.smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
        pid, used = apps.split(", ")
        assert int(pid) == holder.pid
        assert int(used) >= 2000
        assert f"{holder.pid}      C" in run.smi()
    finally:
        holder.kill()
        holder.communicate()


def test_mig_mode_and_instances_follow_the_driver(make_machine: MachineMaker) -> None:
    run = Programs(make_machine("A100-SXM4-40GB"))
    assert "No MIG-enabled devices found." in run.smi("mig", "-lgip", code=6)
    assert "Enabled MIG Mode for GPU 00000000:07:00.0" in run.smi("-i", "0", "-mig", "1")
    assert "7/7" in run.smi("mig", "-lgip")
    assert "Profile ID 14 Placements: {0,2,4}:2" in run.smi("mig", "-lgipp")
    made = run.smi("mig", "-cgi", "9,3g.20gb", "-C")
    assert made.count("Successfully created GPU instance") == 2
    refused = run.smi("mig", "-cgi", "19", code=6)
    assert "Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Resources" in refused
    assert run.smi("-L").count("MIG 3g.20gb") == 2
    assert "In use" in run.smi("mig", "-dgi", code=6)
    run.smi("mig", "-dci")
    run.smi("mig", "-dgi")
    assert "No GPU instances found" in run.smi("mig", "-lgi", code=6)
    assert "Disabled MIG Mode" in run.smi("-mig", "0")


def test_who_is_shown_an_instance_sees_that_one_alone(make_machine: MachineMaker) -> None:
    """As in a container that was given it: nvidia-smi lists nothing else, and programs run inside it."""
    run = Programs(make_machine("2xA100-SXM4-40GB"))
    run.smi("-i", "0", "-mig", "1")
    run.smi("mig", "-i", "0", "-cgi", "1g.5gb:6,2g.10gb:0,1g.5gb:4", "-C")
    uuid = next(line.split()[-1].rstrip(")") for line in run.smi("-L").splitlines() if "2g.10gb" in line)
    run.environment["NVIDIA_VISIBLE_DEVICES"] = uuid
    card, mine = run.smi("-L").splitlines()
    assert card.startswith("GPU 0: ")
    assert mine.split()[:4] == ["MIG", "2g.10gb", "Device", "0:"]
    assert uuid in mine
    run.burn("--memory", "9000", "--seconds", "0.01")
    assert "CUDA_ERROR_OUT_OF_MEMORY" in run.burn("--memory", "9900", "--seconds", "0.01", code=1)
    run.environment["NVIDIA_VISIBLE_DEVICES"] = "MIG-00000000-0000-5000-8000-000000000000"
    assert run.smi("-L").strip() == ""


def test_a_card_without_mig_says_so(make_machine: MachineMaker) -> None:
    assert "Not Supported" in Programs(make_machine("Tesla-T4")).smi("-mig", "1", code=1)


@pytest.mark.parametrize("named", ["nothing", ""])
def test_where_there_is_no_emulated_machine_it_refuses(tmp_path: Path, named: str) -> None:
    environment = {**os.environ, "PUMICE_MACHINE": str(tmp_path / named)}
    words = (sys.executable, "-m", "pumice_lab.machine.nvidia_smi")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 9
    assert "no emulated machine here" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_matrix_shows_links_bridges_and_the_processors_that_are_near(
    make_machine: MachineMaker, tmp_path: Path
) -> None:
    plain = Programs(make_machine("2xTesla-T4")).smi("topo", "-m").splitlines()[1].split("\t")
    assert plain[2] in ("PIX", "PXB", "PHB", "NODE", "SYS")
    run = Programs(create(on_a_switch("2xA100-SXM4-40GB"), tmp_path / "linked"))
    heading, first, second, *legend = run.smi("topo", "-m").splitlines()
    assert heading.split("\t") == ["", "GPU0", "GPU1", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    assert [row.split("\t")[:3] for row in (first, second)] == [["GPU0", " X ", "NV12"], ["GPU1", "NV12", " X "]]
    assert "Legend:" in legend
    _, only = run.smi("topo", "-m", "-i", "1").splitlines()[:2]
    assert only.split("\t")[:2] == ["GPU1", " X "]


def test_sections_of_the_long_report_can_be_chosen(make_machine: MachineMaker) -> None:
    run = Programs(make_machine("Tesla-T4"))
    report = run.smi("-q", "-d", "MEMORY,compute")
    assert "FB Memory Usage" in report
    assert "Compute Mode" in report
    for other in ("Utilization", "Product Name", "Processes", "Clocks"):
        assert other not in report
    assert 'did you mean "UTILIZATION"?' in run.smi("-q", "-d", "UTILISATION", code=2)


def test_a_query_in_a_loop_has_one_heading_and_goes_on_until_it_is_stopped(make_machine: MachineMaker) -> None:
    run = Programs(make_machine("Tesla-T4"))
    for words in (("-lms", "50"), ("--loop-ms=50",), ("-l", "0.05")):
        program = run.start("nvidia-smi", "--query-gpu=index,memory.total", "--format=csv", *words)
        assert program.stdout is not None
        lines = [program.stdout.readline() for _ in range(4)]
        program.kill()
        program.communicate()
        assert lines == ["index, memory.total [MiB]\n", *["0, 15360 MiB\n"] * 3]


def test_monitors_print_a_line_for_each_card_and_each_process(make_machine: MachineMaker) -> None:
    run = Programs(make_machine("2xA100-SXM4-40GB"))
    heading, units, *cards = run.smi("dmon", "-c", "2", "-d", "0.1").splitlines()
    assert " ".join(heading.split()) == "# gpu pwr gtemp mtemp sm mem enc dec jpg ofa mclk pclk"
    assert units.split()[:4] == ["#", "Idx", "W", "C"]
    assert [line.split()[0] for line in cards] == ["0", "1", "0", "1"]
    assert all(len(line.split()) == 12 for line in cards)
    assert run.smi("dmon", "-c", "1", "-s", "m", "-i", "1").splitlines()[-1].split()[:2] == ["1", "0"]
    assert "these are: p, u, c, m" in run.smi("dmon", "-c", "1", "-s", "x", code=2)
    idle = run.smi("pmon", "-c", "1").splitlines()
    assert [line.split()[:3] for line in idle[2:]] == [["0", "-", "-"], ["1", "-", "-"]]
    holder = run.hold(2000)
    try:
        busy = run.smi("pmon", "-c", "1", "-s", "um", "-i", "0").splitlines()[-1].split()
    finally:
        holder.kill()
        holder.communicate()
    assert busy[:3] == ["0", str(holder.pid), "C"]
    assert int(busy[9]) >= 2000


def test_the_versions_are_told(make_machine: MachineMaker) -> None:
    reported = dict(line.split(": ") for line in Programs(make_machine("L4")).smi("--version").splitlines())
    assert {name.strip(): value for name, value in reported.items()} == {
        "NVIDIA-SMI version": "580.95.05 (emulated)",
        "NVML version": "13.580.95.05",
        "DRIVER version": "580.95.05",
        "CUDA Version": "13.0",
    }
