"""``pumice machine`` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.machines import MachineMaker

from pumice.cli.main import main


def pumice(*words: str) -> int:
    """Runs ``pumice WORDS`` in this process; the exit code."""
    try:
        main(["machine", *words])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_machine_is_made_from_presets_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "m"
    assert pumice("create", str(directory), "--cards", "2xA100-SXM4-40GB", "--cards", "Tesla-T4") == 0
    assert f"export PUMICE_MACHINE={directory}" in capsys.readouterr().out
    assert pumice("show", str(directory), "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [card["name"] for card in shown["cards"]] == ["NVIDIA A100-SXM4-40GB"] * 2 + ["Tesla T4"]
    assert (shown["name"], shown["time"], shown["processes"]) == ("m", "real", [])


def test_the_directory_may_come_from_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pumice("create", str(tmp_path / "m"), "--cards", "L4")
    monkeypatch.setenv("PUMICE_MACHINE", str(tmp_path / "m"))
    assert pumice("show") == 0
    assert "NVIDIA L4" in capsys.readouterr().out


def test_a_machine_is_made_from_a_model_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.yaml").write_text("machine: lab\ntime: virtual\ncards: [{preset: H200, count: 8, nvlink: switch}]\n")
    assert pumice("create", str(tmp_path / "m"), "--model", str(tmp_path / "m.yaml"), "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["name"], shown["time"], len(shown["cards"])) == ("lab", "virtual", 8)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "{}/none"), "none: no emulated machine here; make one with `pumice machine create`"),
        (("create", "{}/m"), "say which machine: either --model FILE or --cards PRESET"),
        (("create", "{}/m", "--cards", "A100"), "A100: say which: A100-SXM4-40GB, A100-SXM4-80GB, A100-PCIE-40GB, "),
        (("create", "{}/m", "--cards", "A100-SXM4-8GB"), 'no such card; did you mean "A100-SXM4-80GB"'),
        (("create", "{}/m", "--model", "{}/none.yaml"), "none.yaml: cannot be read: No such file"),
        (("set", "{}/l4", "--card", "3"), "card 3: the machine has cards 0 to 0"),
        (("set", "{}/l4", "--strangers", "99999"), "card 0: strangers can use 0 to"),
        (("faults", "{}/l4", "--call", "cuMemAlloc"), "--call: the fault does nothing"),
        (
            ("faults", "{}/l4", "--call", "cuMemAlloc", "--error", "OUT_OF_MEMORY"),
            'did you mean "CUDA_ERROR_OUT_OF_MEMORY"',
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    pumice("create", str(tmp_path / "l4"), "--cards", "L4")
    capsys.readouterr()
    assert pumice(*(word.format(tmp_path) for word in words)) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1


def test_a_running_machine_is_changed(make_machine: MachineMaker, capsys: pytest.CaptureFixture[str]) -> None:
    machine = make_machine(["A30", "L4"])
    words = ("set", str(machine.directory), "--card", "1", "--strangers", "100", "--temperature", "70", "--lost")
    assert pumice(*words, "--xid", "79", "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["cards"][1]["state"], shown["cards"][1]["used MiB"]) == ("lost", 100)
    assert machine.card(1).temperature_c == 70
    assert [(event.card, event.xid) for event in machine.xids()] == [(1, 79)]


def test_faults_are_added_listed_and_cleared(make_machine: MachineMaker, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(make_machine("L4").directory)
    pumice("faults", directory, "--call", "cuMemAlloc", "--error", "CUDA_ERROR_OUT_OF_MEMORY", "--first", "3")
    pumice("faults", directory, "--call", "nvmlDeviceGetMemoryInfo", "--delay-ms", "200", "--count", "0")
    capsys.readouterr()
    pumice("faults", directory, "-o", "json")
    listed = json.loads(capsys.readouterr().out)
    assert [(row["call"], row["answer"], row["of calls"], row["delay ms"]) for row in listed] == [
        ("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "3-3", 0.0),
        ("nvmlDeviceGetMemoryInfo", "-", "1-", 200.0),
    ]
    pumice("faults", directory, "--clear")
    assert capsys.readouterr().out == "no faults\n"


def test_time_is_pushed_only_where_it_is_virtual(
    make_machine: MachineMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    virtual = make_machine("L4", virtual_time=True)
    before = virtual.clock.now_ns()
    assert pumice("set", str(virtual.directory), "--advance-ms", "1500") == 0
    assert virtual.clock.now_ns() - before == 1_500_000_000
    assert pumice("set", str(make_machine("L4").directory), "--advance-ms", "1") == 2
    assert "lives in real time" in capsys.readouterr().err


def test_npus_are_put_into_a_machine_made_ill_lost_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(tmp_path / "m")
    assert pumice("npus", directory, "--make", "2x310P3", "--make", "910B4") == 0
    assert f"export PUMICE_MACHINE={directory}" in capsys.readouterr().out
    assert pumice("npus", directory, "--chip", "1", "--health", "alarm", "--code", "0x80E01801", "--lost", "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(chip["name"], chip["health"], chip["lost"], chip["codes"]) for chip in shown] == [
        ("310P3", "ok", False, []), ("310P3", "alarm", True, ["0x80E01801"]), ("910B4", "ok", False, []),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--make", "3x310P"], '310P: no such NPU; did you mean "310P3"?'),
        (["--make", "310P3", "--chip", "1"], "--chip: 1 is none of its 1 NPUs"),
        (["--make", "310P3", "--code", "1"], "--code goes with --health"),
        (["--make", "310P3", "--health", "alarm", "--code", "zz"], "--code: 'zz' is no error code; write it as 0x80E01801"),
        (["--make", "310P3", "--call", "dcmi_init"], "the fault does nothing; give it --error or --crash"),
        (["--make", "310P3", "--error", "-8020"], "--error and --crash need --call"),
        ([], "no emulated NPUs here"),
    ],
)
def test_npus_that_cannot_be_meant_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert pumice("npus", str(tmp_path / "m"), *words) == 2
    reported = capsys.readouterr().err
    assert sentence in reported
    assert reported.count("\n") == 1
