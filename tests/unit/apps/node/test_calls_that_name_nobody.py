"""The kubelet asks for a pod that went, or a watch is behind: nobody who is there is given what is another's, or nothing."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from kit.node_objects import A, B, container, gives, pod_object
from kit.plugin_world import World, in_a_world

from pumice.ports.cluster import ApiError
from pumice.wire import names

NUMBER = names.VGPU_NUMBER


def written(world: World, *entries: tuple[str, str, str]) -> None:
    """The kubelet's record: (pod UID, container, id)."""
    world.kubelet.write_record(NUMBER, *entries)


async def ready(world: World) -> None:
    await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
    written(world)


def lose_the_watch(world: World, *, lists: bool = True) -> None:
    async def away(verb: str, path: str) -> None:
        if verb == "WATCH" or (verb == "GET" and not lists):
            raise ApiError(503, "ServiceUnavailable", "away")

    world.cluster.gate = away
    world.cluster.hang_up(forget=True)


@in_a_world
async def test_the_share_that_a_pod_that_went_was_given_is_the_next_ones_still_and_so_is_the_order_behind_it(world):
    async with world.plugin():
        await ready(world)
        world.cluster.put(pod_object("q", gives(A, 2000), uid="u2", time=2), pod_object("r", gives(B, 3000), uid="u3", time=3))
        await world.kubelet.allocate(NUMBER, 1, [f"{A}-0"])  # for p of UID u1, deleted before anybody else heard of it
        written(world, ("u1", "train", f"{A}-0"))
        for uid, card, limit in (("u2", A, "2000m"), ("u3", B, "3000m")):
            answer = await world.kubelet.allocate(NUMBER, 1)
            assert (answer.envs["NVIDIA_VISIBLE_DEVICES"], answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"]) == (card, limit)
            written(world, ("u1", "train", f"{A}-0"), ("u2", "train", f"{A}-1"), (uid, "train", f"{card}-1"))


@in_a_world
async def test_a_call_while_the_api_server_is_away_is_refused_for_that_and_not_for_a_scheduler(world):
    async with world.plugin():
        await ready(world)
        lose_the_watch(world, lists=False)
        world.cluster.put(pod_object("p", gives(A, 1000), uid="u1", time=1))
        with pytest.raises(grpc.aio.AioRpcError, match="does not say who is on this node, and no pod of this node waits"):
            await world.kubelet.allocate(NUMBER, 1)


@in_a_world
async def test_an_init_container_of_a_pod_that_went_unseen_is_not_answered_for(world):
    async with world.plugin():
        await ready(world)
        first = pod_object("p", gives(A, 1000), uid="u1", time=1, inits=(container("i", 1, 1000, 50),))
        world.cluster.put(first)
        await asyncio.sleep(1)
        lose_the_watch(world)
        world.cluster.remove("pods", "p")
        world.cluster.put(pod_object("q", gives(A, 2000), uid="u2", time=2))
        answer = await world.kubelet.allocate(NUMBER, 1)
        assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "2000m"


@in_a_world
async def test_a_pod_that_is_there_is_not_passed_over_for_the_next_one_because_a_write_met_a_conflict(world):
    async with world.plugin():
        await ready(world)
        world.cluster.put(pod_object("p", gives(A, 1000), uid="u1", time=1), pod_object("q", gives(A, 2000), uid="u2", time=2))
        conflicts = [1]

        async def once(verb: str, path: str) -> None:
            if verb == "PATCH" and "/pods/" in path and conflicts and conflicts.pop():
                raise ApiError(409, "Conflict", "somebody is quicker")

        world.cluster.gate = once
        answer = await world.kubelet.allocate(NUMBER, 1)
        assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"


@in_a_world
async def test_while_nobody_says_who_is_there_no_other_pod_is_served_in_place_of_one_that_seems_to_be_gone(world):
    async with world.plugin():
        await ready(world)
        world.cluster.put(pod_object("p", gives(A, 1000), uid="u1", time=1), pod_object("q", gives(A, 2000), uid="u2", time=2))

        async def odd(verb: str, path: str) -> None:
            if verb in ("PATCH", "GET", "WATCH") and "/pods" in path:
                raise ApiError(409 if verb == "PATCH" else 503, "Conflict", "somebody is quicker")

        world.cluster.gate = odd
        with pytest.raises(grpc.aio.AioRpcError, match="pod ns1/p: it seems to be gone"):
            await world.kubelet.allocate(NUMBER, 1)


@in_a_world
async def test_who_has_its_devices_by_the_kubelets_record_is_not_served_anew_while_the_watch_is_behind(world):
    async with world.plugin():
        await ready(world)
        world.cluster.put(pod_object("p", gives(A, 1000), uid="u1", time=1), pod_object("q", gives(B, 2000), uid="u2", time=2))
        await asyncio.sleep(1)
        lose_the_watch(world)
        assert (await world.kubelet.allocate(NUMBER, 1)).envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
        written(world, ("u1", "train", f"{A}-0"))
        await world.kubelet.stop()
        await world.kubelet.start()
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        assert (await world.kubelet.allocate(NUMBER, 1)).envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "2000m"


@in_a_world
async def test_the_last_container_of_a_pod_ends_its_service_although_the_watch_and_a_new_kubelet_know_little_of_the_others(world):
    async with world.plugin():
        await ready(world)
        several = [container(f"c{at}", 1, 1000, 10) for at in range(3)]
        world.cluster.put(pod_object("p", ";".join([gives(A, 1000, 10)] * 3), *several, uid="u1"))
        await asyncio.sleep(1)
        lose_the_watch(world)
        for at in range(2):
            await world.kubelet.allocate(NUMBER, 1)
            written(world, *(("u1", f"c{k}", f"{A}-{k}") for k in range(at + 1)))
        await world.kubelet.stop()
        await world.kubelet.start()
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        await world.kubelet.allocate(NUMBER, 1)
        assert world.cluster.notes("pods", "p")[names.BIND_PHASE] == "success"


@in_a_world
async def test_a_pod_that_ended_while_it_was_served_is_marked_once_the_api_server_takes_it(world):
    async with world.plugin():
        await ready(world)

        async def refused(verb: str, path: str) -> None:
            if verb == "PATCH" and "/pods/" in path:
                raise ApiError(500, "InternalError", "etcd is away")

        world.cluster.gate = refused
        world.cluster.put(pod_object("p", gives(A), uid="u1", phase="Failed"))
        await asyncio.sleep(30)
        world.cluster.gate = _open
        await world.cluster.until(lambda: world.cluster.notes("pods", "p")[names.BIND_PHASE] == "failed", 30)


async def _open(verb: str, path: str) -> None:
    return


@in_a_world
async def test_an_api_server_that_hangs_holds_up_the_node_for_moments_and_not_for_minutes(world):
    async with world.plugin():
        await ready(world)
        world.cluster.put(pod_object("p", gives(A), uid="u1"))
        await asyncio.sleep(1)

        async def hanging(verb: str, path: str) -> None:
            if verb != "WATCH":
                await asyncio.sleep(3600)

        world.cluster.gate = hanging
        with pytest.raises(grpc.aio.AioRpcError, match=r"pod ns1/p: .* has not answered"):
            await asyncio.wait_for(world.kubelet.allocate(NUMBER, 1), 30)
        world.cluster.gate = _open
        world.cluster.put(pod_object("q", gives(B), uid="u2"))
        assert (await world.kubelet.allocate(NUMBER, 1)).envs["NVIDIA_VISIBLE_DEVICES"] == B


@in_a_world
async def test_pods_that_only_a_list_brought_are_served_in_the_order_of_their_bindings_and_not_of_their_names(world):
    """Bound while the watch was away: z on card B, a second later a on card A. The kubelet asks in that order."""
    for relisted in (False, True):
        async with world.plugin():
            await ready(world)
            lose_the_watch(world, lists=not relisted)
            later = pod_object("a", gives(A, 8000), uid="u2", time=2)
            world.cluster.put(later, pod_object("z", gives(B, 1000), uid="u1", time=1))
            if relisted:
                world.cluster.hang_up(forget=True)
                world.cluster.gate = _open
                await asyncio.sleep(20)
            for uid, card, limit in (("u1", B, "1000m"), ("u2", A, "8000m")):
                answer = await world.kubelet.allocate(NUMBER, 1, [f"{card}-0"])
                given = answer.envs["NVIDIA_VISIBLE_DEVICES"], answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"]
                assert given == (card, limit), relisted
                written(world, ("u1", "train", f"{B}-0"), (uid, "train", f"{card}-0"))
            written(world)
            world.cluster.gate = _open
            for name in ("a", "z"):
                world.cluster.remove("pods", name)
            await asyncio.sleep(1)


@in_a_world
async def test_a_pod_whose_write_meets_two_conflicts_in_a_row_is_served_all_the_same(world):
    async with world.plugin():
        await ready(world)
        world.cluster.put(pod_object("p", gives(A, 1000), uid="u1", time=1))
        conflicts = [1, 1]

        async def twice(verb: str, path: str) -> None:
            if verb == "PATCH" and "/pods/" in path and conflicts:
                conflicts.pop()
                raise ApiError(409, "Conflict", "somebody is quicker")

        world.cluster.gate = twice
        answer = await world.kubelet.allocate(NUMBER, 1)
        assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
        assert world.cluster.notes("pods", "p")[names.BIND_PHASE] == "success"
