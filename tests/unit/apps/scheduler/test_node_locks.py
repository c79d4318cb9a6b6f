"""The node lock around Bindings: a gang passes, foreign locks are respected, failures give it back (D-33, D-35, D-36)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from kit.direct_cluster import DirectCluster, memory_cluster
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.binder import Binder, Outcome
from pumice.apps.scheduler.node_locks import NodeLocks
from pumice.apps.scheduler.volume_wait import VolumeWait
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.effects.vocabulary import Bind
from pumice.model.cards import Allocation
from pumice.scheduler.state.state import State
from pumice.wire import names
from pumice.wire.kinds import NODES, PODS
from pumice.wire.node_lock import render_lock

KEY = names.NODE_LOCK_VGPU


def bind(name: str, gang: str = "") -> Bind:
    return Bind(f"uid-{name}", "default", name, "n1", {}, (Allocation("nvidia-vgpu", "n1", ()),), gang, lock=NvidiaVgpu.lock)


class World:
    """A node, pods, a binder with locks, and what became of each Binding."""

    def __init__(self, cluster: DirectCluster) -> None:
        self.cluster, self.clock = cluster, VirtualClock()
        self.outcomes: dict[str, tuple[Outcome, str]] = {}
        self.order: list[str] = []
        locks = NodeLocks(cluster, self.clock, random.Random(1))
        self.binder = Binder(cluster, self.clock, random.Random(1), self._done,
                             VolumeWait(cluster, self.clock, State(), lambda: 0.0), 32, lambda: locks)  # fmt: skip

    def _done(self, effect: Bind, outcome: Outcome, error: str) -> None:
        self.outcomes[effect.name] = (outcome, error)
        self.order.append(effect.name)

    async def start(self, lock: str | None = None, *pods: str) -> World:
        notes = {KEY: lock} if lock is not None else {}
        await self.cluster.create(NODES, {"metadata": {"name": "n1", "annotations": notes}})
        for name in pods:
            spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "x"}]}
            await self.cluster.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")
        return self

    async def lock(self) -> str | None:
        node = await self.cluster.get(NODES, "n1")
        found: str | None = node["metadata"].get("annotations", {}).get(KEY)
        return found

    async def unlock(self) -> None:
        """The plugin's steps after serving a pod."""
        await self.cluster.patch(NODES, "n1", {"metadata": {"annotations": {KEY: None}}})

    async def uid(self, name: str) -> str:
        return str((await self.cluster.get(PODS, name, "default"))["metadata"]["uid"])

    async def send(self, name: str) -> None:
        effect = bind(name)
        self.binder.send(Bind(await self.uid(name), "default", name, "n1", {}, effect.allocations, lock=effect.lock))


def play(story: Coroutine[Any, Any, None]) -> None:
    run_virtually(story)


def test_two_pods_on_one_node_pass_one_after_the_other() -> None:
    async def story() -> None:
        world = await World(await memory_cluster(VirtualClock())).start(None, "a", "b")
        await world.send("a")
        await world.send("b")
        await asyncio.sleep(3)
        assert world.order == ["a"]
        assert await world.lock() is not None
        await world.unlock()
        await world.binder.drain()
        assert world.outcomes == {"a": (Outcome.BOUND, ""), "b": (Outcome.BOUND, "")}

    play(story())


def test_a_lock_of_somebody_else_is_waited_for_and_then_refused_in_upstreams_words() -> None:
    async def story() -> None:
        world = await World(await memory_cluster(VirtualClock())).start(render_lock(VirtualClock().now()), "a")
        await world.send("a")
        await world.binder.drain()
        outcome, error = world.outcomes["a"]
        assert outcome is Outcome.FAILED
        assert "node n1 has been locked within 5 minutes" in error

    play(story())


def test_an_expired_lock_and_an_unreadable_one_do_not_block_for_ever() -> None:
    async def story() -> None:
        world = await World(await memory_cluster(VirtualClock())).start(render_lock(VirtualClock().now() - 400), "a", "b")
        await world.send("a")
        await world.binder.drain()
        assert world.outcomes["a"][0] is Outcome.BOUND
        await world.cluster.patch(NODES, "n1", {"metadata": {"annotations": {KEY: "rubbish"}}})
        for _ in range(6):
            await world.send("b")
            await world.binder.drain()
        assert world.outcomes["b"][0] is Outcome.BOUND

    play(story())


def test_a_failed_binding_gives_the_lock_back_unless_it_is_somebody_elses_by_now() -> None:
    async def story() -> None:
        world = await World(await memory_cluster(VirtualClock())).start()
        world.binder.send(bind("nobody"))
        await world.binder.drain()
        assert world.outcomes["nobody"][0] is Outcome.GONE
        assert await world.lock() is None

    play(story())


def test_a_quicker_scheduler_keeps_its_lock() -> None:
    """Between our look and our write somebody else writes: the write conflicts, and we wait."""

    class Slow(DirectCluster):
        overtaken = False

        async def patch(self, resource: Any, name: str, body: Any, *rest: Any, **named: Any) -> Any:
            if not self.overtaken and resource == NODES:
                self.overtaken = True
                await super().patch(NODES, "n1", {"metadata": {"annotations": {KEY: render_lock(self.clock.now())}}})
            return await super().patch(resource, name, body, *rest, **named)

    async def story() -> None:
        plain = await memory_cluster(VirtualClock())
        world = await World(Slow(plain.api, plain.clock)).start(None, "a")
        await world.send("a")
        await asyncio.sleep(5)
        assert world.outcomes == {}
        await world.unlock()
        await world.binder.drain()
        assert world.outcomes["a"][0] is Outcome.BOUND

    play(story())




def test_the_lock_of_npus_names_the_pod_that_holds_it() -> None:
    async def story() -> None:
        world = await World(await memory_cluster(VirtualClock())).start(None, "a")
        effect = Bind("uid-a", "default", "a", "n1", lock=names.NODE_LOCK_HAMI)
        for _ in range(2):  # its own lock does not keep a pod away
            taken, why = await NodeLocks(world.cluster, world.clock, random.Random(1)).take(effect)
            assert (taken is not None, why) == (True, "")
        node = await world.cluster.get(NODES, "n1")
        assert node["metadata"]["annotations"][names.NODE_LOCK_HAMI].endswith(",default,a")

    play(story())
