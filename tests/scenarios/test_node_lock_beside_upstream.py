"""The scheduler with node locks beside a plugin that works as upstream's does: one pod at a time, and it removes the lock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit.objects import group, node, pod
from kit.scheduler_daemon import CONF, Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.wire import kinds, names
from pumice.wire.node_lock import parse_lock, render_lock

LOCKED = CONF.replace("deviceshare.VGPUEnable: true", "deviceshare.VGPUEnable: true\n      deviceshare.NodeLockEnable: true")
SERVES_IN = 2.0
"""Seconds that the plugin takes for a pod."""


@dataclass
class Plugin:
    """Serves the pods that are bound and waiting, and removes the lock after each. ``together`` is the most pods of one node
    that it ever saw waiting: it could take one for the other."""

    running: Daemon
    together: int = 0
    served: list[str] = field(default_factory=list)
    values: set[str] = field(default_factory=set)

    async def work(self) -> None:
        cluster, clock = self.running.cluster, self.running.clock
        while True:
            waiting: dict[str, list[str]] = {}
            for obj in (await cluster.pods()).values():
                if obj["metadata"].get("annotations", {}).get(names.BIND_PHASE) == "allocating":
                    waiting.setdefault(obj["spec"]["nodeName"], []).append(obj["metadata"]["name"])
            for place, pods in waiting.items():
                self.together = max(self.together, len(pods))
                self.values.add(await lock_of(self.running, place))
                await clock.sleep(SERVES_IN)
                done = {"metadata": {"annotations": {names.BIND_PHASE: "success"}}}
                await cluster.patch(kinds.PODS, pods[0], done, "default")
                self.served.append(pods[0])
                await set_lock(self.running, place, None)
            await clock.sleep(0.1)


@asynccontextmanager
async def beside(running: Daemon) -> AsyncIterator[Plugin]:
    plugin = Plugin(running)
    task = asyncio.create_task(plugin.work())
    try:
        yield plugin
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def lock_of(running: Daemon, name: str) -> str:
    found = await running.cluster.get(kinds.NODES, name)
    return str(found["metadata"].get("annotations", {}).get(names.NODE_LOCK_VGPU, ""))


async def set_lock(running: Daemon, name: str, value: str | None) -> None:
    await running.cluster.patch(kinds.NODES, name, {"metadata": {"annotations": {names.NODE_LOCK_VGPU: value}}})


def play(story: Coroutine[Any, Any, None]) -> None:
    run_virtually(story)


def test_a_gang_on_one_node_passes_and_the_plugin_never_sees_two_pods_at_once() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2), conf=LOCKED) as running, beside(running) as plugin:
            gang = [f"g-{i}" for i in range(4)]
            await create(running.cluster, group("g", minimum=4), *(pod(name, mib=2000, group="g") for name in gang))
            await running.until(lambda: _served(plugin, 4), 60)
            assert sorted(plugin.served) == gang
            assert plugin.together == 1
            assert all(parse_lock(value) is not None for value in plugin.values)
            assert await lock_of(running, "n1") == ""
            await running.audit()

    play(story())


def test_pods_on_different_nodes_do_not_wait_for_each_other() -> None:
    async def story() -> None:
        async with daemon(*(node(f"n{i}", cards=1) for i in range(4)), conf=LOCKED) as running:
            await create(running.cluster, *(pod(f"p{i}", mib=8000) for i in range(4)))  # one card each
            await running.until(lambda: running.bound(*(f"p{i}" for i in range(4))), 2)

    play(story())


def test_a_lock_of_somebody_else_holds_the_pod_back_until_it_is_gone() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1), conf=LOCKED) as running:
            await set_lock(running, "n1", render_lock(running.clock.now()))
            await create(running.cluster, pod("a", mib=2000))
            await running.clock.sleep(20)
            assert not await running.bound("a")
            await set_lock(running, "n1", None)
            await running.until(lambda: running.bound("a"), 10)

    play(story())


def test_a_lock_that_nobody_removes_is_told_to_the_pod_and_ends_after_five_minutes() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1), conf=LOCKED) as running:
            await set_lock(running, "n1", render_lock(running.clock.now()))
            await create(running.cluster, pod("a", mib=2000))
            await running.clock.sleep(120)
            assert "node n1 has been locked within 5 minutes" in await running.condition("a")
            assert not await running.bound("a")
            await running.until(lambda: running.bound("a"), 400)

    play(story())


def test_a_stale_lock_and_one_with_a_suffix_are_taken_over_at_once() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1), conf=LOCKED) as running:
            await set_lock(running, "n1", f"{render_lock(running.clock.now() - 301)}_default/old")
            await create(running.cluster, pod("a", mib=2000))
            await running.until(lambda: running.bound("a"), 2)
            assert parse_lock(await lock_of(running, "n1")) is not None

    play(story())


def test_a_pod_that_is_deleted_before_its_binding_leaves_no_lock() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1), conf=LOCKED) as running:
            await set_lock(running, "n1", render_lock(running.clock.now()))
            await create(running.cluster, pod("a", mib=2000))
            await running.clock.sleep(5)
            await running.cluster.delete(kinds.PODS, "a", "default")
            await set_lock(running, "n1", None)
            await running.clock.sleep(10)
            assert await lock_of(running, "n1") == ""
            await create(running.cluster, pod("b", mib=2000))
            await running.until(lambda: running.bound("b"), 5)

    play(story())


@pytest.mark.parametrize("ends", ["is deleted", "fails"])
def test_a_pod_that_is_over_before_the_plugin_was_asked_leaves_its_node_to_the_next_one(ends: str) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1), conf=LOCKED) as running:
            await create(running.cluster, pod("a", mib=2000))
            await running.until(lambda: running.bound("a"), 5)
            if ends == "fails":  # as by its kubelet, when no plugin is registered there
                await running.cluster.patch(kinds.PODS, "a", {"status": {"phase": "Failed"}}, "default", subresource="status")
            else:
                await running.cluster.delete(kinds.PODS, "a", "default", grace=0)
            await create(running.cluster, pod("b", mib=2000))
            await running.until(lambda: running.bound("b"), 10)

    play(story())


def test_a_pod_that_was_served_and_goes_leaves_the_lock_that_another_took_in_the_same_second() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1), conf=LOCKED) as running:
            await create(running.cluster, pod("a", mib=2000), pod("b", mib=2000))
            await running.until(lambda: _any_bound(running, "a", "b"), 5)
            first = "a" if await running.bound("a") else "b"
            second, value = {"a": "b", "b": "a"}[first], await lock_of(running, "n1")
            await set_lock(running, "n1", None)
            await running.until(lambda: running.bound(second), 5)
            await set_lock(running, "n1", value)
            await running.cluster.delete(kinds.PODS, first, "default", grace=0)
            await running.clock.sleep(5)
            assert await lock_of(running, "n1") == value

    play(story())


def test_pods_without_cards_take_no_lock() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1), conf=LOCKED) as running:
            await set_lock(running, "n1", render_lock(running.clock.now()))
            await create(running.cluster, pod("plain", cpu="1"))
            await running.until(lambda: running.bound("plain"), 2)

    play(story())


async def _any_bound(running: Daemon, *names: str) -> bool:
    return any([await running.bound(name) for name in names])


async def _served(plugin: Plugin, count: int) -> bool:
    return len(plugin.served) == count
