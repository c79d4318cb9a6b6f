"""A test that hangs tells what it waits for, and the ones after it run all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = '''
import asyncio, pytest, subprocess

async def the_word_that_never_comes(event):
    await event.wait()

async def words(event):
    await the_word_that_never_comes(event)
    yield "word"

async def listener():
    async for _ in words(asyncio.Event()):
        pass

@pytest.mark.timeout(1)
def test_of_a_loop():
    async def story():
        await asyncio.gather(asyncio.create_task(listener(), name="the listener"))
    asyncio.run(story())

@pytest.mark.timeout(1)
def test_of_a_child():
    subprocess.run(["sleep", "61.25"])

def test_that_is_well():
    pass
'''


def test_a_test_that_hangs_tells_what_it_waits_for_and_the_next_ones_run(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kit.pytest_plugin"]\n')
    (tmp_path / "test_hanging.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "60", str(tmp_path)],
                          capture_output=True, text=True, timeout=200, cwd=tmp_path)  # fmt: skip
    assert "2 failed, 1 passed" in done.stdout
    of_a_loop, of_a_child = done.stdout.split("test_of_a_child", 1)
    assert "task 'the listener'" in of_a_loop
    assert "test_hanging.py:5 the_word_that_never_comes" in of_a_loop
    assert "hung: not done after 1 s" in of_a_child
    assert "sleep 61.25" in of_a_child
