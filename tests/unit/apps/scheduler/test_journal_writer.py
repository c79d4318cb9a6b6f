"""The writer of a journal is a process of its own that can be killed or hang: what waits for it is bounded, scheduling goes on,
and what it wrote is played."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from kit.objects import node, pod, queue
from kit.scheduler_daemon import CONF, create, daemon
from kit.virtual_time import run_virtually
from tests.unit.apps.scheduler.test_journal import parts, placed

from pumice import __version__
from pumice.adapters.segments import Segments
from pumice.apps.scheduler import journal as module
from pumice.apps.scheduler.daemon import Settings
from pumice.apps.scheduler.journal import Journal
from pumice.effects.vocabulary import Bind
from pumice.journal.recorder import Doorway
from pumice.journal.records import FORM, Head
from pumice.ports.clock import SystemClock
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import Configure, DropPod, Put, PutPod
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.volcano import Queue

LONG = "x" * 4096
"""A label: a pod takes so many bytes on its way to the writer."""
BOUND = 64 << 10
KERNEL = 512 << 10
"""More bytes than the kernel keeps for a reader that takes nothing."""


class Told:
    """A journal that pods are told to, one at a time: each comes, is placed and goes."""

    def __init__(self, folder: Path) -> None:
        self.enter, self.now, self.rng, self.bound = Doorway(Engine()), 1000.0, Random(1), 0
        first = Head(FORM, __version__, "run", 0.0, 0, True, ["volcano"])
        self.journal = Journal(Segments(folder, 4 << 20), self.enter, SystemClock(), first)
        self.journal.begin()
        self.enter(Configure(CONF, "test", False, None))
        self.enter(Put("Queue", convert(Queue, queue("default"))))
        self.enter(Put("Node", convert(Node, node("n1", cards=2))))

    def pod(self, name: str) -> None:
        self.now += 1
        made = convert(Pod, pod(name, mib=1000, labels={"long": LONG}))
        self.enter(PutPod(made, self.now))
        plan = self.enter.cycle(self.now, self.rng)
        self.bound += sum(isinstance(effect, Bind) for effect in plan.effects)
        self.enter(DropPod(made))
        if self.enter.notes is not None:
            self.enter.notes.flush()  # not many at once: the bounds are small


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(240):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", BOUND)
    monkeypatch.setattr(module, "RETRY", 0.2)


def test_what_waits_for_a_writer_that_is_slow_is_bounded_and_a_new_file_begins_when_it_has_caught_up(
    tmp_path: Path, small: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        told = Told(tmp_path)
        running = asyncio.create_task(told.journal.run())
        told.pod("before")
        await until(lambda: placed(parts(tmp_path)[0]))
        os.kill(told.journal._writer, signal.SIGSTOP)
        number = 0
        while not told.journal._notes.thin:
            told.pod(f"p{number}")
            number += 1
            await asyncio.sleep(0.005)
            assert number * len(LONG) < 4 * (KERNEL + BOUND)
        assert told.bound == number + 1, "scheduling goes on"
        assert told.journal.waiting <= 2 * BOUND
        os.kill(told.journal._writer, signal.SIGCONT)
        await until(lambda: "journal goes on" in caplog.text)
        told.pod("after")
        running.cancel()
        await told.journal.finish()  # playing again and again until it is there would starve the writer, which yields to all

    with caplog.at_level(logging.INFO, "pumice.scheduler.journal"):
        asyncio.run(story())
    assert "cause=it cannot be written as quickly as the scheduler decides" in caplog.text
    found, _ = parts(tmp_path)
    assert [part.snapshot is not None for part in found] == [False, True]
    assert [placed([part]) > 0 for part in found] == [True, True]


def test_a_writer_that_takes_nothing_stops_the_journal_and_no_more_than_the_bound_waits_for_it(
    tmp_path: Path, small: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        told, most = Told(tmp_path), 0
        running = asyncio.create_task(told.journal.run())
        told.pod("before")
        await until(lambda: placed(parts(tmp_path)[0]))
        os.kill(told.journal._writer, signal.SIGSTOP)
        for number in range(3 * (KERNEL + BOUND) // len(LONG)):
            told.pod(f"p{number}")
            most = max(most, told.journal.waiting)
            await asyncio.sleep(0.002)
        assert told.bound == number + 2, "scheduling goes on"
        assert not told.journal.recording
        assert most <= BOUND + 2 * len(LONG)
        os.kill(told.journal._writer, signal.SIGKILL)
        running.cancel()
        await told.journal.finish()

    asyncio.run(story())
    assert caplog.text.count("cause=it cannot be written as quickly as the scheduler decides") == 1
    assert placed(parts(tmp_path)[0]), "what it wrote before is played"


def test_a_writer_that_is_killed_ends_the_journal_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4), settings=Settings(journal=tmp_path)) as running:
            await create(running.cluster, pod("a", mib=4000))
            await running.bind_all("a")
            while not placed(parts(tmp_path)[0]):  # its writer takes true time
                await running.clock.sleep(1)
            assert running.scheduler.journal is not None
            os.kill(running.scheduler.journal._writer, signal.SIGKILL)
            await create(running.cluster, pod("b", mib=4000))
            await running.bind_all("b")
            while "\npumice_journal_recording 0" not in (await running.page("/metrics"))[1]:
                await create(running.cluster, pod(f"c{running.clock.monotonic():.0f}", mib=100))
                await running.clock.sleep(1)

    run_virtually(story())
    assert "cause=its writer has ended" in caplog.text
    assert placed(parts(tmp_path)[0]) == 1, "what it wrote before is played"


def test_what_cannot_be_written_ends_the_journal_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        told = Told(tmp_path)
        told.pod("before")
        grace = convert(Pod, pod("b", mib=1000))
        grace.metadata.deletion_grace_period_seconds = 10**30
        told.enter(PutPod(grace, told.now))
        told.enter(DropPod(grace))
        told.journal._notes.flush()
        told.pod("after")
        assert told.bound == 2, "scheduling goes on"
        await told.journal.finish()

    asyncio.run(story())
    assert "journal ended" in caplog.text
