"""The commands of a page of documentation, run as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[1]
TELLS = "pumice() { command pumice \"$@\" || [ $? -eq 1 ]; }\n"
"""Our commands that look at something end with 1 where there is something to say."""


def blocks(page: str, title: str = "") -> list[str]:
    """What stands in the shell blocks of a page below docs, or of its part of that title; those of a list's items, too."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    if title:
        (text,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return [dedent(block) for block in re.findall(r"^(?:\d\. )?```sh\n(.*?)^ *```", text, re.M | re.S)]


def titles(page: str) -> list[str]:
    return re.findall(r"^## (.*)$", (ROOT / "docs" / page).read_text("utf-8"), re.M)


def run(script: str, folder: Path, kubeconfig: Path, *programs: Path) -> str:
    """All lines, the first that fails ends it. What was printed. ``programs``: folders of programs that count first."""
    path = os.pathsep.join(map(str, [*programs, Path(sys.executable).parent, os.environ["PATH"]]))
    environ = {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", TELLS + script], cwd=folder, env=environ, capture_output=True,
                          text=True, timeout=200)  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
