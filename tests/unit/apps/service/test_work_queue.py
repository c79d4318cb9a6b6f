"""What waits to be reconciled, and what may wait longer."""

from __future__ import annotations

import asyncio
import random

from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.service.work_queue import WorkQueue


async def order_of(queue: WorkQueue, done: list[str], seconds: float, workers: int = 1) -> list[str]:
    task = asyncio.create_task(queue.run(workers))
    await queue.clock.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return done


def queue_of(clock: VirtualClock, done: list[str]) -> WorkQueue:
    async def reconcile(kind: str, key: str) -> None:
        await clock.sleep(1.0)
        done.append(key)

    return WorkQueue(clock, random.Random(0), reconcile)


def test_what_may_be_put_off_comes_when_nothing_else_is_to_be_done() -> None:
    async def story() -> None:
        clock, done = VirtualClock(), list[str]()
        queue = queue_of(clock, done)
        queue.add_later("x", "patient", 0.1, put_off=60)
        for key in "abc":
            queue.add("x", key)
        assert await order_of(queue, done, 10) == ["a", "b", "c", "patient"]

    run_virtually(story())


def test_what_was_put_off_for_long_enough_comes_first() -> None:
    async def story() -> None:
        clock, done = VirtualClock(), list[str]()
        queue = queue_of(clock, done)
        queue.add_later("x", "patient", 0.1, put_off=1.5)
        for key in "abcd":
            queue.add("x", key)
        assert await order_of(queue, done, 10) == ["a", "b", "patient", "c", "d"]

    run_virtually(story())


def test_what_is_done_for_another_reason_need_not_be_done_once_more() -> None:
    async def story() -> None:
        clock, done = VirtualClock(), list[str]()
        queue = queue_of(clock, done)
        queue.add_later("x", "a", 0.1, put_off=60)
        for key in ("first", "a", "b"):
            queue.add("x", key)
        assert await order_of(queue, done, 10) == ["first", "a", "b"]

    run_virtually(story())


def test_what_may_be_put_off_waits_while_many_are_at_work() -> None:
    async def story() -> None:
        clock, done = VirtualClock(), list[str]()
        queue = queue_of(clock, done)
        queue.add_later("x", "patient", 0.1, put_off=60)
        for key in "abcdefgh":
            queue.add("x", key)
        assert (await order_of(queue, done, 3, workers=8))[-1] == "patient"
        assert len(done) == 9

    run_virtually(story())
