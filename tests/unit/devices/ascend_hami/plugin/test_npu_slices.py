"""The books of NPU slices are kept off the loop, by a driver that may be unhealthy."""

from __future__ import annotations

import subprocess
import sys

HANGS = """
import asyncio, threading, types
from pumice.devices.ascend_hami.plugin.daemon import NpuSlices
from pumice.ports.clock import SystemClock

async def story():
    inside = threading.Event()
    keeper = types.SimpleNamespace(sweep=lambda *_: inside.set() or threading.Event().wait())
    slices = NpuSlices(keeper, 60.0, types.SimpleNamespace(pods=[], clock=SystemClock()), lambda: None)
    start = asyncio.create_task(slices.start(()))
    await asyncio.to_thread(inside.wait)
    start.cancel()
    slices.close(0.1)
    print("ended")

asyncio.run(story())
"""


def test_a_driver_that_never_answers_does_not_keep_the_plugin_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
