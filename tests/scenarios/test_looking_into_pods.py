"""The page about reaching, looking into and measuring pods: its commands, as they stand there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kit.local_cluster import local_cluster

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "look-into-pods.md"


def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    built = os.environ.get("KUBEBUILDER_ASSETS", "")
    path = f"{built}:{os.environ['PATH']}" if built else os.environ["PATH"]
    if not shutil.which("kubectl", path=path) or not shutil.which("curl"):
        pytest.skip("kubectl is neither in KUBEBUILDER_ASSETS nor on the PATH, or curl is missing")
    lines = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    ")]
    commands = [line for line in lines if line.startswith(("kubectl", "curl"))]
    assert len(commands) == 10
    script = "\n".join(["set -e", "trap 'kill $(jobs -p)' EXIT", *(f"echo '== {line.split()[1]}'\n{line}" for line in commands)])
    with local_cluster(tmp_path / "d") as cluster:
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(cluster.data.kubeconfig), "HOME": str(tmp_path)}
        done = subprocess.run(["bash", "-c", script], env=environment, text=True, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    said = {part.split("\n", 1)[0]: part for part in done.stdout.split("== ")}
    assert "Directory listing" in said["--silent"]
    assert "here is" in said["logs"]
    assert "Python 3" in said["exec"]
    measured = [part for part in done.stdout.split("== ") if part.startswith("top")]
    assert "web" in measured[0]
    assert "MEMORY" in measured[1]
