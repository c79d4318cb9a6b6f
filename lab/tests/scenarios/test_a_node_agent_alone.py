"""A node's agent, of whose cluster nothing is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pumice_lab import node_agent


def test_an_agent_ends_with_the_cluster_that_was_killed(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}],
    }))  # fmt: skip
    settings = node_agent.AgentSettings("n1", "127.0.0.1", str(tmp_path), str(kubeconfig), str(tmp_path), nvml="missing.so")
    command = [sys.executable, "-m", "pumice_lab.node_agent", str(node_agent.settings_file(settings))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as agent:
        with pytest.raises(subprocess.TimeoutExpired):
            agent.wait(3)  # it waits for its API server
        assert agent.stdin is not None
        agent.stdin.close()  # as the kernel does for one that is killed
        assert agent.wait(20) == 0
