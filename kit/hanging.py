"""The report of a test that hangs, and a way to end it that breaks nothing else.

``pytest-timeout`` throws an exception into whatever runs when the time is up. Inside an event loop that tells nothing of the
tasks that wait, and has crashed the interpreter. Here a report comes first: every task with the chain of its awaits, every
thread, every child process. Then the test's main task is cancelled, as Ctrl-C would do it; a test without a loop, or one that
does not heed this, is failed by an exception as before. What holds the interpreter itself is ended by ``faulthandler``.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

HEED_SECONDS = 10.0
"""Seconds that a cancelled test may take to clean up before an exception is thrown into it."""
LAST_SECONDS = 60.0
"""After these the process ends: not even signal handlers run any more."""

HUNG = pytest.StashKey[str]()


def watch(item: pytest.Item, seconds: float, errors: int) -> None:
    """From now on ``item`` has so many seconds. ``errors`` is the descriptor for what nobody can catch any more."""

    def too_late(_: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        main = _main_task(frame)
        if HUNG not in item.stash:
            item.stash[HUNG] = f"hung: not done after {seconds:g} s\n\n{story()}"
            os.write(errors, f"\n{item.nodeid} {item.stash[HUNG]}\n".encode())  # now: the process may end without a word
            if main is not None:
                signal.setitimer(signal.ITIMER_REAL, HEED_SECONDS)
                main.get_loop().call_soon_threadsafe(main.cancel, "the test hangs")
                return
        pytest.fail(f"hung: not done after {seconds:g} s", pytrace=True)

    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + HEED_SECONDS + LAST_SECONDS, exit=True, file=errors)


def done() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.cancel_dump_traceback_later()


def at_the_end(errors: int) -> None:
    """The tests are over: should a thread of theirs keep the interpreter from ending, it ends all the same, with a trace."""
    faulthandler.dump_traceback_later(LAST_SECONDS, exit=True, file=errors)


def story() -> str:
    """Everything that waits in this process and below it."""
    return "\n".join([*_tasks(), *_threads(), *_children()])


def _main_task(frame: FrameType | None) -> asyncio.Task[Any] | None:
    """The task that ``run_until_complete`` of this thread waits for, if a loop runs."""
    while frame is not None:
        if frame.f_code.co_name == "run_until_complete" and frame.f_code.co_filename == asyncio.base_events.__file__:
            found = frame.f_locals.get("future")
            return found if isinstance(found, asyncio.Task) else None
        frame = frame.f_back
    return None


def _tasks() -> Iterator[str]:
    every = asyncio.tasks._all_tasks if sys.version_info < (3, 12) else asyncio.tasks._scheduled_tasks
    for task in sorted(every, key=lambda task: task.get_name()):  # of every loop
        if not task.done():
            yield f"task {task.get_name()!r}"
            yield from (f"    {line}" for line in _awaits(task.get_coro()))


def _awaits(waits: Any) -> Iterator[str]:
    """The chain from a coroutine down to the future that it waits for."""
    while waits is not None:
        if type(waits).__name__ in ("async_generator_asend", "async_generator_athrow"):  # they do not say of what
            waits = next((found for found in gc.get_referents(waits) if hasattr(found, "ag_frame")), waits)
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "ag_frame", None) or getattr(waits, "gi_frame", None)
        if frame is None:
            yield f"on {waits!r:.300}"
            return
        yield f"{_short(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_qualname}"
        waits = getattr(waits, "cr_await", None) or getattr(waits, "ag_await", None) or getattr(waits, "gi_yieldfrom", None)


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)!r}"
        for line in [line for line in traceback.extract_stack(frame) if line.filename != __file__][-12:]:
            yield f"    {_short(line.filename)}:{line.lineno} {line.name}: {line.line}"


def _children() -> Iterator[str]:
    """Descendants of this process with the word of the kernel on what they do."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    for pid in sorted(ours - {os.getpid()}):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            at = Path(f"/proc/{pid}/wchan").read_text() or "-"
            yield f"process {pid} {state} in {at}: {words[:200]}"


def _short(path: str) -> str:
    return os.path.relpath(path) if path.startswith(os.getcwd()) else path
