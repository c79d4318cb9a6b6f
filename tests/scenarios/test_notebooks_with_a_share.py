"""``pumice jupyter install``: a kernel of Jupyter has its share from its start to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.native import foreign_suites as venv
from tests.scenarios.test_shares_from_python import CARD_MIB, MEMORY

import pumice
from pumice_lab import machine as machines
from pumice_lab.machine import machine_of

JUPYTER = venv.Suite("jupyter", ("ipykernel==7.4.0", "jupyter_client==8.10.0"), "", (), (), {})
INSTALL = [sys.executable, "-m", "pumice", "jupyter", "install"]
STANDS_IN = "import sys; assert sys.argv[1:] == ['-f', 'c.json'], sys.argv\n" + MEMORY + "\nprint(sys.prefix)\n"
REAL = """
import jupyter_client, sys
manager = jupyter_client.KernelManager(kernel_name="half")
manager.start_kernel(stderr=sys.stderr)
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=120)
def said(code):
    texts = []
    client.execute_interactive(code, timeout=60, output_hook=lambda m: texts.append(m["content"].get("text", "")))
    return "".join(texts).split()[-1]
print(said(MEMORY), flush=True)
sys.stdin.readline()
client.execute("import time; print('sleeps', flush=True); time.sleep(600)")
while client.get_iopub_msg(timeout=60)["content"].get("text") != "sleeps\\n":
    pass
manager.interrupt_kernel()
print(client.get_shell_msg(timeout=60)["content"]["ename"])
manager.restart_kernel()
client.wait_for_ready(timeout=120)
print(said(MEMORY))
manager.shutdown_kernel()
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    machines.create(machine_of("GeForce-GTX-1080-Ti"), tmp_path / "machine").close()
    monkeypatch.setenv("PUMICE_MACHINE", str(tmp_path / "machine"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("JUPYTER_DATA_DIR", raising=False)
    return tmp_path / "machine"


@pytest.fixture
def ipykernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that stands in for ipykernel: prints what it sees of the card."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "ipykernel.py").write_text("")
    (folder / "ipykernel_launcher.py").write_text(STANDS_IN)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")


def install(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*INSTALL, *options], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.usefixtures("ipykernel")
def test_a_kernel_of_the_installed_specification_sees_its_share_of_the_card(tmp_path: Path) -> None:
    done = install("--memory", "25%", "--cores", "50", "--python", sys.executable)
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = (tmp_path / "data/jupyter/kernels/pumice").iterdir()
    spec = json.loads(file.read_text())
    assert spec["display_name"] == "Python 3 (25 % of the memory and 50 % of the cores)"
    argv = [word.replace("{connection_file}", "c.json") for word in spec["argv"]]
    kernel = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert kernel.stdout.split() == [str(CARD_MIB // 4), sys.prefix]


@pytest.mark.usefixtures("ipykernel")
def test_a_kernel_finds_its_emulated_machine_from_the_folder_of_any_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert install("--emulated", "machine", "--python", sys.executable).returncode == 0
    argv = json.loads((tmp_path / "data/jupyter/kernels/pumice/kernel.json").read_text())["argv"]
    assert f"--emulated={tmp_path}/machine" in argv


@pytest.mark.usefixtures("ipykernel")
def test_a_kernel_of_the_same_name_is_replaced_and_one_below_a_prefix_is_another(tmp_path: Path) -> None:
    for options in (["--memory", "1000"], ["--memory", "2000", "--gpus", "2", "--priority", "0", "--display-name", "two"],
                    ["--memory", "3000", "--prefix", str(tmp_path / "venv")]):  # fmt: skip
        assert install(*options, "--name", "Half", "--python", sys.executable).returncode == 0
    user, venv = (json.loads((tmp_path / below / "kernels/half/kernel.json").read_text())
                  for below in ("data/jupyter", "venv/share/jupyter"))  # fmt: skip
    assert user["display_name"] == "two"
    assert user["argv"][4:8] == ["--memory=2000", "--gpus=2", "--priority=0", "--"]
    assert venv["argv"][4:6] == ["--memory=3000", "--"]


@pytest.mark.usefixtures("ipykernel")
@pytest.mark.parametrize(("options", "why"), [
    (["--memory", "0"], "--memory 0"),
    (["--memory", "120%"], "a percentage of the card's memory is 1% to 100%"),
    (["--cores", "many"], "many"),
    (["--name", "../x"], "letters, digits, dots, underscores and hyphens only"),
    (["--python", "/nowhere/python"], "/nowhere/python: no such program"),
    (["--python", "/bin/true --x"], "no such program"),
    (["--python", "/bin/false"], "not a Python that works"),
])  # fmt: skip
def test_what_would_make_no_kernel_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, options: list[str], why: str
) -> None:
    done = install(*options, *([] if "--python" in options else ["--python", sys.executable]))
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data/jupyter").exists()


def test_a_python_without_ipykernel_is_refused_with_the_command_that_installs_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=60)
    done = install("--python", str(tmp_path / "venv/bin/python"))
    assert done.returncode == 2
    assert f"`{tmp_path}/venv/bin/python -m pip install ipykernel`" in done.stderr


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_jupyters_own_client_starts_interrupts_and_restarts_the_kernel_within_one_share() -> None:
    venv.install(JUPYTER)
    python = str(JUPYTER.python)
    done = install("--memory", "50%", "--name", "half", "--python", python)
    assert done.returncode == 0, done.stderr
    script = f"MEMORY = {MEMORY!r}\n{REAL}"
    with subprocess.Popen([python, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as notebook:
        assert notebook.stdout is not None
        assert notebook.stdin is not None
        assert notebook.stdout.readline().split() == [str(CARD_MIB // 2)]
        (share,) = pumice.shares(emulated=True)
        assert "ipykernel_launcher" in " ".join(share.command)
        notebook.stdin.write("\n")
        notebook.stdin.flush()
        assert notebook.stdout.read().split() == ["KeyboardInterrupt", str(CARD_MIB // 2)]
    assert pumice.shares(emulated=True) == []
