"""The lock that some schedulers put on a node before they bind a pod there: no pod waits for one that was left behind."""

from __future__ import annotations

import asyncio

from kit.node_objects import NODE, A, gives, pod_object
from kit.plugin_world import World, in_a_world
from kit.virtual_time import VirtualClock

from pumice.ports.cluster import ApiError
from pumice.wire import names

NUMBER = names.VGPU_NUMBER
TIME = "2026-08-20T10:00:{:02}Z"


def set_lock(world: World, value: str | None) -> None:
    world.cluster.change("nodes", NODE, {"metadata": {"annotations": {names.NODE_LOCK_VGPU: value}}})


def locked(world: World) -> bool:
    return names.NODE_LOCK_VGPU in world.cluster.notes("nodes", NODE)


async def served(world: World) -> None:
    world.cluster.put(pod_object("p", gives(A), uid="u1"))
    await world.kubelet.allocate(NUMBER, 1)
    world.cluster.change("pods", "p", {"status": {"phase": "Running", "startTime": TIME.format(0)}})


@in_a_world
async def test_a_lock_that_the_watch_shows_after_its_pod_was_served_goes_before_a_scheduler_gives_up(world: World) -> None:
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        await served(world)
        set_lock(world, TIME.format(0))
        await world.cluster.until(lambda: not locked(world), 60)


@in_a_world
async def test_a_lock_that_could_not_be_taken_away_is_tried_again(world: World) -> None:
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        set_lock(world, TIME.format(0))

        async def refused(verb: str, path: str) -> None:
            if verb == "PATCH" and "/nodes/" in path:
                raise ApiError(500, "InternalError", "etcd is away")

        world.cluster.gate = refused
        await served(world)
        await asyncio.sleep(5)
        assert locked(world)
        world.cluster.gate = _open
        await world.cluster.until(lambda: not locked(world), 60)


@in_a_world
async def test_locks_that_come_and_go_are_left_to_those_who_take_them(world: World) -> None:
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        clock = VirtualClock()
        for taken in range(6):
            set_lock(world, TIME.format(taken * 10))
            until = clock.monotonic() + 10
            while clock.monotonic() < until:
                await asyncio.sleep(1)
                assert locked(world)
        await world.cluster.until(lambda: not locked(world), 60)


@in_a_world
async def test_a_lock_stays_while_the_kubelet_has_still_to_ask_for_a_pod(world: World) -> None:
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        set_lock(world, TIME.format(0))
        world.cluster.put(pod_object("p", gives(A), uid="u1"))
        await asyncio.sleep(120)
        assert locked(world)


async def _open(verb: str, path: str) -> None:
    return
