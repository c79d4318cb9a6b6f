"""A cluster that is stopped while it comes up leaves nobody behind and waits for nobody."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pumice_lab import node_agent, up
from pumice_lab.datadir import DataDir
from pumice_lab.spec import ClusterSpec


def test_an_agent_that_was_just_being_started_is_told_to_end_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was waited for in vain, and killed after ten seconds."""
    started: list[asyncio.subprocess.Process] = []

    async def story() -> None:
        data = DataDir(tmp_path)
        data.logs.mkdir(parents=True)
        cluster = up.Cluster(ClusterSpec(nodes=()), data)
        start = asyncio.create_subprocess_exec

        async def start_slowly(*_: Any, **options: Any) -> asyncio.subprocess.Process:
            await cluster._stop.wait()
            started.append(await start(sys.executable, "-c", "import time; time.sleep(60)", **options))
            return started[0]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start_slowly)
        settings = node_agent.AgentSettings("n1", "127.0.0.1", str(tmp_path), "", str(tmp_path))
        cluster._daemon("agent n1", lambda: cluster._agent_process(settings, asyncio.Event()))
        await asyncio.sleep(0.01)
        await cluster.stop()

    asyncio.run(story())
    assert started[0].returncode == -signal.SIGTERM
