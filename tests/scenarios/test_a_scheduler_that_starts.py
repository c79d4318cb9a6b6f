"""A scheduler's use of its machine from its start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kit.engine_world import conf


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_a_scheduler_starts_no_thread_for_arithmetic_that_it_never_does(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(conf())
    (tmp_path / "kubeconfig").write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
    }))  # fmt: skip
    words = ("scheduler", "--kubeconfig", str(tmp_path / "kubeconfig"), "--scheduler-conf", str(tmp_path / "conf"))
    command = [sys.executable, "-m", "pumice", *words, "--listen-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as scheduler:
        try:
            assert scheduler.stderr is not None
            assert any("listening on" in line for line in scheduler.stderr)
            threads = len(list(Path(f"/proc/{scheduler.pid}/task").iterdir()))
        finally:
            scheduler.kill()
    assert threads == 1
