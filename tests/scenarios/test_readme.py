"""The commands of the README, typed one after the other by somebody who has nothing else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit.installing import program

ROOT = Path(__file__).parents[2]
ALONE, FIRST_POD = (
    [re.sub(r"  +# .*", "", line) for line in block.splitlines()]
    for block in re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)[1:]
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('trained')\n")
    for name in ("python", "pumice"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(sys.executable if name == "python" else Path(sys.executable).parent / "pumice")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def shell(home: Path, script: str, **more: str) -> str:
    environ = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home), **more}
    done = subprocess.run(["bash", "-euc", script], cwd=home, env=environ, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_commands_of_one_machine(home: Path) -> None:
    """Those that need a card find the emulated machine's in its place."""
    share, burn, look = ALONE
    shell(home, "pumice machine create m --cards GeForce-GTX-1080-Ti")
    assert "trained\n" in shell(home, share, PUMICE_MACHINE=str(home / "m"))
    environ = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home)}
    with subprocess.Popen(burn.split(), env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program_:
        assert program_.stdout is not None
        assert "card 0" in program_.stdout.readline()
        assert shell(home, look).count("pumice burn") == 2, "once by ps, once by top"
        program_.send_signal(signal.SIGINT)
        assert program_.wait(30) in (0, 130, -signal.SIGINT)


def test_the_first_pod(home: Path) -> None:
    (home / "bin/kubectl").symlink_to(program("kubectl"))
    lines = list(FIRST_POD)
    placed = lines.index("kubectl get pods -o wide")
    lines.insert(placed, "kubectl wait --for=condition=Ready pod/hami-pod --timeout=60s")
    explained = next(at for at, line in enumerate(lines) if line.startswith("pumice explain"))
    lines[explained] = f"for i in $(seq 60); do {lines[explained]} > said && break || sleep 0.5; done; cat said"
    try:
        said = shell(home, "\n".join(lines))
    finally:
        shell(home, "pumice down || true")
        shutil.rmtree(home / ".local", ignore_errors=True)
    assert re.search(r"^hami-pod +1/1 +Running", said, re.M)
    assert "too-big: 0/1 nodes are unavailable" in said
    assert "What would let it in" in said
