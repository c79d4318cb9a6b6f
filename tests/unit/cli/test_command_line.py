"""The command ``pumice`` itself: an overview to begin with, help for each command, one line for a mistake."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pumice.cli.daemon import default_data_dir
from pumice.cli.laboratory import made_machines
from pumice.cli.main import COMMANDS, main, overview
from pumice.model.errors import PumiceError
from pumice_lab import machine as machines
from pumice_lab.cli.up import welcome
from pumice_lab.datadir import DataDir
from pumice_lab.machine import machine_of


def said_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int | str | None, str, str]:
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def test_the_overview_fits_a_terminal_of_eighty_columns_and_names_every_command() -> None:
    assert max(map(len, overview().splitlines())) <= 80
    commands, _, examples = overview().partition("Examples:")
    assert all(f"\n  {name} " in commands for name in COMMANDS)
    reported = re.findall(r"^  (pumice .*?   +)\S", examples, re.MULTILINE)
    assert len(reported) > 2
    assert len({len(line) for line in reported}) == 1  # what they do stands in one column


@pytest.mark.parametrize("words", [["-h", "run"], ["--help", "run"], ["help", "run"], ["run", "-h"]])
def test_help_may_be_asked_for_before_the_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: pumice run ")


@pytest.mark.parametrize("options", [["--kubeconfig", "/nowhere/k"], ["--kubeconfig=/nowhere/k"]])
@pytest.mark.parametrize("command", [["explain", "pod", "x"], ["dump"], ["queue", "list"]])
def test_options_may_stand_before_the_command_as_kubectl_takes_them(
    options: list[str], command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*options, *command])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "pumice: kubeconfig /nowhere/k: No such file or directory; name another with --kubeconfig\n"


def test_a_queue_is_not_made_under_a_name_that_nobody_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["queue", "create"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "pumice: queue name must be specified: write --name NAME\n"


@pytest.mark.parametrize("metadata", ["x", "[1]", "{name: 5}", "{}"])
@pytest.mark.parametrize(("command", "kind"), [(("jobflow", "create"), "JobFlow"), (("job", "run"), "Job")])
def test_a_file_whose_object_has_no_name_is_refused_in_one_line(
    command: tuple[str, str], kind: str, metadata: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "its.yaml").write_text(f"kind: {kind}\nmetadata: {metadata}\n")
    code, _, reported = said_of([*command, "-f", str(tmp_path / "its.yaml")], capsys)
    assert (code, reported) == (2, f"pumice: {tmp_path}/its.yaml: it holds no {kind} with a name\n")


@pytest.mark.parametrize(("text", "said"), [
    (None, "No such file or directory"),
    (b"\xff", "no UTF-8 text"),
    (b"kind: Job\nmetadata: {", "2: "),
    (b"kind: Job\nmetadata: {name: a}\n---\nkind: Job\nmetadata: {name: b}\n", "it holds 2 Jobs, and one is run at a time"),
], ids=["not there", "no text", "no YAML", "two of them"])  # fmt: skip
def test_a_file_of_which_no_job_can_be_made_is_named_once_with_the_reason(
    text: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    if text is not None:
        path.write_bytes(text)
    code, _, reported = said_of(["job", "run", "-f", str(path)], capsys)
    assert (code, reported.count(str(path)), reported.count("\n")) == (2, 1, 1)
    assert f"{path}:" in reported
    assert said in reported


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_that_fits_the_terminal(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, help_, _ = said_of(["help", name], capsys)
    assert max(map(len, help_.splitlines())) <= 80
    assert (code or 0) == 0
    assert f"pumice {name}" in help_
    assert re.search(r"^  Examples?:\n    ", help_, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], "there is no command 'rnu'; did you mean 'run'?"),
        (["ps", "--emulate"], "no such option: --emulate"),
        (["ps", "-o", "yaml"], "'yaml' is not one of 'text', 'wide', 'json'"),
        (["ps", "foo"], "unexpected extra argument"),
        (["top", "--every", "0"], "invalid value for '--every'"),
        (["limit"], "missing argument 'PID|ID'; see `pumice limit --help`"),
        (["limit", "r1"], "nothing to change"),
        (["up", "--nodes", "x"], "invalid value for '--nodes'"),
        (["vgpu", "stauts"], "did you mean 'status'"),
        (["burn", "--memroy", "3"], "no such option: --memroy; did you mean --memory?"),
        (["machine", "create"], "pumice machine create: missing argument 'DIRECTORY'; see `pumice machine create --help`"),
        (["mig", "assert", "--selected", "x"], "pumice mig assert: no such option: --selected; did you mean --selected-config?"),
        (["run"], "no command; write the command after --"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said_of(arguments, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words.lower() in err.lower()
    assert err.startswith("pumice")


def test_the_emulated_machine_is_named_to_every_command_as_to_run(tmp_path: Path) -> None:
    home = tmp_path / "pumice" / "machines"
    for name in ("1xTesla-T4", "2xTesla-T4"):
        machines.create(machine_of(name), home / name).close()
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    assert made_machines("", environment) == [home / "1xTesla-T4", home / "2xTesla-T4"]
    assert made_machines("2xTesla-T4", environment) == [home / "2xTesla-T4"]
    assert made_machines(str(home / "1xTesla-T4"), {}) == [home / "1xTesla-T4"]
    with pytest.raises(PumiceError, match="there are 1xTesla-T4, 2xTesla-T4"):
        made_machines("3xTesla-T4", environment)


def test_what_to_try_names_an_unusual_data_dir_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    facts: dict[str, object] = {"scheduler": "127.0.0.1:8080", "summary": "1 node"}
    usual = welcome(facts, DataDir(default_data_dir()), 1.0)
    assert usual.endswith("pumice down")
    assert len({line.index("  # ") for line in usual.splitlines() if "  # " in line}) == 1
    other = welcome(facts, DataDir(tmp_path / "other"), 1.0)
    assert other.endswith(f"pumice down --data-dir {tmp_path}/other")
    assert f"pumice status --data-dir {tmp_path}/other" in other
    with_page = welcome(facts | {"web": "127.0.0.1:9"}, DataDir(tmp_path / "other"), 1.0)
    assert "\n  the same in a browser: http://127.0.0.1:9" in with_page


def test_a_package_that_is_not_installed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outdated.py").write_text("import no_such_package.inner")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "outdated", ("outdated", ""))
    code, out, reported = said_of(["outdated"], capsys)
    assert (code, out, reported.count("\n")) == (2, "", 1)
    assert reported.startswith("pumice: `pumice outdated` needs the Python package no_such_package, which is not installed; ")


COMMAND = "main.COMMANDS['slow'] = ('slow', '')"
SLOW = {
    "while its streams are made ready": ("import time\ndef prepare(): print(flush=True); time.sleep(60)\n",
                                         "import slow; main.prepare = slow.prepare"),
    "while it is being loaded": ("import time\nprint(flush=True)\ntime.sleep(60)\n", COMMAND),
    "while it works": ("import time\nfrom pumice.cli.flags import App\napp = App()\n@app.command()\ndef slow() -> None:\n"
                       "    print(flush=True)\n    time.sleep(60)\n", COMMAND),
}  # fmt: skip


@pytest.mark.parametrize(("module", "changed"), SLOW.values(), ids=SLOW)
def test_an_interrupted_command_leaves_no_traceback_and_ends_by_the_signal(tmp_path: Path, module: str, changed: str) -> None:
    (tmp_path / "slow.py").write_text(module)
    program = subprocess.Popen(
        [sys.executable, "-c", f"from pumice.cli import main; {changed}; main.main(['slow'])"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert program.stdout is not None
    program.stdout.readline()
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=30)
    assert said == ""
    assert program.returncode == -signal.SIGINT


@pytest.mark.parametrize("name", COMMANDS)
def test_h_is_help_for_every_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, help_, _ = said_of([name, "-h"], capsys)
    assert (code or 0) == 0
    assert help_ == said_of([name, "--help"], capsys)[1]


@pytest.mark.parametrize("name", ["up", "down", "status", "top"])
def test_help_says_where_a_cluster_lies_unless_it_is_said(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    for module in ("pumice.cli.daemon", f"pumice.cli.{name}", f"pumice_lab.cli.{name}"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert "[default: (~/.local/share/pumice/cluster)]" in " ".join(said_of([name, "-h"], capsys)[1].split())


def test_the_rules_of_burn_are_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    reported = " ".join(said_of(["burn", "-h"], capsys)[1].split())
    for rule in ("kernels of 1 ms until Ctrl-C", "no end 100 kernels", "--kernels 0 launches none", "--seconds holds it"):
        assert rule in reported


def test_a_pod_is_named_with_or_without_a_blank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "case.json")
    requested = [["pod", "x"], ["pod/x"], ["pods/x"], ["po/n/x"]]
    said = {said_of(["explain", *words, "--from", missing], capsys)[2] for words in requested}
    assert said == {f"pumice: {missing}: No such file or directory\n"}
    for words in (["x"], ["pod"], ["pod/"], ["node/x"], ["node", "x"]):
        code, _, reported = said_of(["explain", *words, "--from", missing], capsys)
        assert (code, "write: pumice explain pod" in reported) == (2, True)


def test_files_without_a_mistake_are_told_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a}]}\n")
    assert said_of(["lint", str(tmp_path / "pod.yaml")], capsys)[:2] == (0, "1 file: nothing to say\n")
    assert said_of(["lint", str(tmp_path), "-o", "json"], capsys)[1] == "[]\n"
    (tmp_path / "none").mkdir()
    assert said_of(["lint", str(tmp_path / "none")], capsys)[1] == "no YAML or conf file there\n"


def test_a_fault_is_put_only_into_a_function_that_there_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    machines.create(machine_of("Tesla-T4"), tmp_path / "m").close()
    fault = ["machine", "faults", str(tmp_path / "m"), "--error", "CUDA_ERROR_OUT_OF_MEMORY", "--call"]
    assert said_of([*fault, "cuMemAlocc"], capsys)[2] == (
        "pumice: --call: 'cuMemAlocc' is no function of CUDA or NVML; did you mean \"cuMemAlloc\"?\n"
    )
    for call in ("cuMemAlloc", "cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"):
        assert said_of([*fault, call], capsys)[0] == 0


ASKING = (["explain", "pod", "x"], ["dump"], ["queue", "list"], ["job", "list"], ["doctor", "cluster"])


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_whoever_asks_a_cluster_asks_this_machines_own_where_no_other_is_named(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "XDG_DATA_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    own = tmp_path / ".local/share/pumice/cluster/kubeconfig"
    own.parent.mkdir(parents=True)
    own.write_text("nonsense: [")
    code, _, said = said_of(command, capsys)
    assert code == 2
    assert str(own) in said
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("nonsense: [")
    _, _, said = said_of(command, capsys)
    assert str(tmp_path / ".kube" / "config") in said
