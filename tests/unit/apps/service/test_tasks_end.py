"""No task outlives the daemon that began it, and none fails unseen."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from kit.faulty_cluster import faulty_cluster
from kit.objects import node, pod
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.effects.tasks import first
from pumice.effects.vocabulary import Bind
from pumice_jobs.apps.controller.daemon import Controller
from pumice_jobs.apps.controller.daemon import Settings as ControllerSettings


def own_tasks() -> set[str]:
    """Of the daemons; the embedded API server has tasks of its own."""
    found = (task.get_coro().__qualname__ for task in asyncio.all_tasks())  # type: ignore[union-attr]
    return {name for name in found if name.split(".")[0] in ("Scheduler", "Controller", "Binder", "WorkQueue", "Informers",
                                                             "Election", "StatusWriter", "Configuration")}


def test_a_controller_that_ends_as_a_stand_by_leaves_no_task_behind() -> None:
    async def story() -> None:
        clock, stop = VirtualClock(), [asyncio.Event(), asyncio.Event()]
        cluster = await faulty_cluster(clock)
        settings = ControllerSettings(listen="127.0.0.1:0", leader_elect=True)
        running = [asyncio.create_task(Controller(settings, cluster, clock, random.Random(i), stop[i]).run()) for i in (0, 1)]
        await clock.sleep(10)
        await create(cluster, pod("a", cpu="1"))
        await clock.sleep(0.05)
        for event, task in zip(stop, running, strict=True):
            event.set()
            await task
        assert own_tasks() == set()

    run_virtually(story())


def test_a_scheduler_that_ends_leaves_no_task_behind() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1), settings=replace(Settings(), leader_elect=True)) as running:
            await create(running.cluster, pod("a", mib=1000))
            await running.clock.sleep(1)
        assert own_tasks() == set()

    run_virtually(story())


def test_a_binding_whose_outcome_cannot_be_taken_ends_the_scheduler_with_its_error() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:

            def broken(effect: Bind, *reported: object) -> None:
                raise KeyError("what nobody thought of")

            running.scheduler.binder.done = broken
            await create(running.cluster, pod("a", mib=1000))
            with pytest.raises(KeyError):
                await asyncio.wait_for(asyncio.shield(running.task), 20)
            running.task = asyncio.create_task(asyncio.sleep(0))  # it has ended already

    run_virtually(story())


def test_a_wait_that_fails_is_told_to_whoever_waits_for_the_first() -> None:
    async def story() -> None:
        async def broken() -> None:
            raise OSError("the folder is gone")

        assert await first(asyncio.sleep(60), asyncio.sleep(1)) == 1
        with pytest.raises(OSError, match="the folder is gone"):
            await first(asyncio.sleep(60), broken())

    run_virtually(story())
