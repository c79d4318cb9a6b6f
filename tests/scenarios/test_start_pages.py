"""The pages that begin: what somebody types who has nothing else, block by block, and what the pages promise is seen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.installing import program

ROOT = Path(__file__).parents[2]
START = ROOT / "docs" / "start"


def blocks(page: str, kind: str = "sh") -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (START / page).read_text("utf-8"), re.M | re.S)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pumice").symlink_to(Path(sys.executable).parent / "pumice")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    yield tmp_path
    subprocess.run([tmp_path / "bin" / "pumice", "down"], env={**os.environ, "HOME": str(tmp_path)}, capture_output=True)
    shutil.rmtree(tmp_path / ".local", ignore_errors=True)


def typed(home: Path, script: str) -> str:
    environ = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home)}
    done = subprocess.run(["bash", "-euc", script], cwd=home, env=environ, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_one_machine_in_three_minutes_prints_what_the_page_shows(home: Path) -> None:
    install, share, beyond, look = blocks("one-machine.md")
    assert install.splitlines() == ["make setup", "export PATH=$PWD/.venv/bin:$PATH"]
    assert [typed(home, share), typed(home, beyond)] == blocks("one-machine.md", "text")
    assert re.search(r"152/3000 MiB .* pumice burn --seconds 5", typed(home, look))


def test_a_cluster_on_a_laptop_shows_a_share_and_a_reason(home: Path) -> None:
    (home / "bin" / "kubectl").symlink_to(program("kubectl"))
    up, share, beyond, down = blocks("laptop.md")
    said = typed(home, "\n".join([up, share, beyond, down]))
    assert "2 emulated cards" in said
    assert re.search(r"0MiB / +3000MiB", said)
    assert "too-big: 0/1 nodes are unavailable" in said
    assert "ask for memory 11178 MiB instead of 16000" in said


def test_every_command_for_an_existing_cluster_stands_on_a_page_whose_commands_are_run() -> None:
    pages = ("docs/how-to/kubernetes.md", "docs/start/laptop.md", "README.md")
    tried = "\n".join((ROOT / page).read_text("utf-8") for page in pages)
    lines = [line for block in blocks("cluster.md") for line in block.splitlines()]
    assert [line for line in lines if line not in tried and not line.startswith("pumice explain pod ")] == []
    assert len(lines) == 8
