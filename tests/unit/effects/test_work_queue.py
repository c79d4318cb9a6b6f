"""The work queue, and its delayed keys."""

from __future__ import annotations

import asyncio
import random

from kit.virtual_time import VirtualClock, run_virtually

from pumice.effects.work_queue import WorkQueue


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


def test_what_may_be_put_off_waits_while_others_are_busy_but_not_longer_than_its_time() -> None:
    async def story() -> None:
        clock, done, busy = VirtualClock(), list[str](), [True]
        queue = queue_of(clock, done)
        queue.others_busy = lambda: busy[0]
        queue.add_later("x", "soon", 0.1, put_off=2)
        queue.add_later("x", "patient", 0.1, put_off=60)
        assert await order_of(queue, done, 10) == ["soon"]
        busy[0] = False
        assert await order_of(queue, done, 2) == ["soon", "patient"]

    run_virtually(story())


def test_one_key_wakes_one_worker() -> None:
    async def story() -> None:
        clock, done, looks = VirtualClock(), list[str](), []
        queue = queue_of(clock, done)
        queue.others_busy = lambda: bool(looks.append(1))  # asked at each look that finds nothing urgent
        task = asyncio.create_task(queue.run(32))
        await clock.sleep(1)
        looks.clear()
        queue.add("x", "a")
        await clock.sleep(5)
        assert done == ["a"]
        assert len(looks) == 1, "the worker itself, when it is through"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtually(story())
