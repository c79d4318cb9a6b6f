"""What a reader of README.md and docs/start/one-machine.md types first, in a checkout that nothing was installed in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kit import page_commands
from kit.page_commands import ROOT

NAME = "tests/e2e/test_a_fresh_checkout.py"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # it installs what the tests run in, and compiles


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh") / "pumice"
    folder.mkdir()
    names = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(names, cwd=ROOT, capture_output=True, check=True)
    there = [name for name in listed.stdout.split(b"\0") if name and os.path.lexists(ROOT / name.decode())]
    packed = subprocess.run(
        ["tar", "-c", "--null", "-T", "-"], cwd=ROOT, input=b"\0".join(there), capture_output=True, check=True)  # fmt: skip
    subprocess.run(["tar", "-x"], cwd=folder, input=packed.stdout, check=True)
    return folder


def script(page: str) -> str:
    """The blocks of a page that name this file."""
    blocks = page_commands.blocks((ROOT / page).read_text("utf-8"))
    return "".join(block.text for block in blocks if NAME in (block.not_run or ""))


def typed(page: str, checkout: Path, more: str = "") -> str:
    """Type the blocks of a page that name this file, and what follows; return all that they print."""
    ours = ("MAKE", "MFLAGS", "PUMICE", "PYTHON", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {"HOME": str(checkout.parent)}
    done = subprocess.run(["bash", "-ec", script(page) + more], cwd=checkout, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_one_machine_is_installed_and_shares_a_card(checkout: Path) -> None:
    shares = "command -v pumice\npumice run --emulated --memory 2000 -- pumice burn --kernels 1\n"
    printed = typed("docs/start/one-machine.md", checkout, shares)
    assert f"\n{checkout}/.venv/bin/pumice\n" in "\n" + printed
    assert "card 0: NVIDIA GeForce GTX 1080 Ti, 2000 MiB" in printed
    assert script("docs/start/laptop.md") == script("docs/start/one-machine.md"), "one installation, on both pages"


def test_the_demo_of_the_readme_is_as_the_guides_say(checkout: Path) -> None:
    """README.md"""
    assert "Everything is as the guides say" in typed("README.md", checkout)
