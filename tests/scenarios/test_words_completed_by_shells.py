"""Words completed by the shells themselves, at a terminal as a person would."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
CASES = (
    ("pumice stat", "pumice status"), ("pumice up --control-p", "pumice up --control-plane"),
    ("pumice job vi", "pumice job view"),
    ("pumice queue list -o ya", "pumice queue list -o yaml"), ("pumice run --gpus 2 --mem", "pumice run --gpus 2 --memory"),
    ("pumice completion fi", "pumice completion fish"), ("vcctl jobt", "vcctl jobtemplate"),
    ("vcctl job susp", "vcctl job suspend"), ("vjobs --all-n", "vjobs --all-namespaces"),
)  # fmt: skip


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the commands as an installation has them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in (("pumice", "pumice.cli.main"), ("vcctl", "pumice_jobs.cli.vcctl"), ("vjobs", "pumice_jobs.cli.vcctl")):
        (folder / name).write_text(f"#!{sys.executable}\nfrom {module} import main\nmain()\n")
        (folder / name).chmod(0o755)
    return folder


def _typed(shell: str, programs: Path, before: str, begun: str, wanted: Callable[[str], bool]) -> str:
    """Return the terminal's text after ``begun`` and a press of the tabulator."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PATH=f"{programs}:{os.environ['PATH']}", TERM="dumb", PS1="> ", HOME=str(programs))
        os.execvp(shell, SHELLS[shell])
    seen = ""

    def read(enough: Callable[[str], bool]) -> None:
        nonlocal seen
        deadline = time.monotonic() + 60
        while not enough(seen) and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536).decode(errors="replace")

    try:
        os.write(terminal, f"{before}; echo rea''dy\n".encode())
        read(lambda text: "ready\r\n" in text)
        seen = ""
        os.write(terminal, f"{begun}\t".encode())
        read(wanted)
        return seen
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_kubectl_finishes_the_words_of_its_plugin(programs: Path) -> None:
    kubectl = Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / "kubectl"
    if not kubectl.is_file():
        pytest.skip("kubectl is not here")
    for name, function in (("kubectl-pumice", "main"), ("kubectl_complete-pumice", "complete_for_kubectl")):
        (programs / name).write_text(f"#!{sys.executable}\nfrom pumice.cli.main import {function}\n{function}()\n")
        (programs / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(programs)}
    requested = [kubectl, "__complete", "pumice", "queue", "op"]
    done = subprocess.run(requested, env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout == "operate\tOpen or close a queue, or change its weight.\n:0\n", done.stderr


@pytest.mark.parametrize(("begun", "whole"), CASES)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_finishes_the_word(shell: str, begun: str, whole: str, programs: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = "pumice" if begun.startswith("pumice") else "vcctl"
    before = {"bash": "", "zsh": "autoload -Uz compinit; compinit -u -D; "}[shell] + f"source <({program} completion {shell})"
    seen = _typed(shell, programs, before, begun, lambda text: whole in text)
    assert whole in seen, seen


@pytest.mark.parametrize(("begun", "whole"), CASES)
def test_fish_offers_the_word(begun: str, whole: str, programs: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    program = "pumice" if begun.startswith("pumice") else "vcctl"
    done = subprocess.run(["fish", "--no-config", "-c", f"{program} completion fish | source; complete -C '{begun}'"],
                          capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(programs)})  # fmt: skip
    assert whole.split()[-1] in [line.split("\t")[0] for line in done.stdout.splitlines()], done.stderr
