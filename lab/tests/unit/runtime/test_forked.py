"""Answers from a forked child: it sees this process as it is, and changes nothing in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest

from pumice.apps.scheduler import forked


def children() -> set[str]:
    """Processes of ours that live or have not been waited for."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found.update((task / "children").read_text().split())
    return found


def test_the_child_sees_what_is_here_and_its_changes_stay_its_own() -> None:
    books = {"here": 1}

    def work() -> bytes:
        books["here"] += 1
        return f"{books['here']} {os.getpid()}".encode()

    answer = asyncio.run(forked.ask(work))
    assert answer is not None
    value, child = answer.split()
    assert value == b"2"
    assert int(child) != os.getpid()
    assert books == {"here": 1}


def test_an_answer_may_be_longer_than_a_pipe() -> None:
    assert asyncio.run(forked.ask(lambda: b"x" * 3_000_000)) == b"x" * 3_000_000


def test_a_child_that_fails_is_no_answer_and_leaves_no_process() -> None:
    def work() -> bytes:
        raise RuntimeError("told to")

    before = children()
    assert asyncio.run(forked.ask(work)) is None
    assert children() <= before


def test_nobody_waits_longer_than_he_wants_and_the_child_ends() -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.2):
            await forked.ask(lambda: time.sleep(600) or b"")

    before = children()
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
    while children() - before and time.monotonic() - begin < 60:
        time.sleep(0.01)
    assert children() <= before
    assert time.monotonic() - begin < 60


def test_the_loop_goes_on_while_the_child_works(tmp_path: Path) -> None:
    word = tmp_path / "word"

    def work() -> bytes:
        for _ in range(3000):
            if word.exists():
                return b"done"
            time.sleep(0.01)
        return b"nobody said a word"

    async def both() -> bytes | None:
        question = asyncio.create_task(forked.ask(work))
        for _ in range(3):
            await asyncio.sleep(0.01)
        assert not question.done()
        word.touch()
        return await question

    assert asyncio.run(both()) == b"done"
