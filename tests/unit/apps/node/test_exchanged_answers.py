"""Answers by guess, where the runtime has no CDI: the record says whose they are, and what they mount is exchanged then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from kit.admitting import AdmittingKubelet, Refused
from kit.node_objects import NODE, A, B, container, gives, pod_object
from kit.plugin_world import World, in_a_world

from pumice.ports.cluster import ApiError
from pumice.wire import limits_page, names, variables

NUMBER = names.VGPU_NUMBER


def put(world: World, name: str, devices: str | None, *containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = pod_object(name, devices, *containers, uid=f"uid-{name}", **more)
    world.cluster.put(made)
    return made


def page_of(seen: Any) -> list[tuple[str, int]]:
    page = limits_page.parse(Path(seen.mounts[limits_page.PATH]).read_bytes())
    assert page is not None
    return [(card.uuid, card.memory >> 20) for card in page.cards]


async def ready(kubelet: AdmittingKubelet) -> None:
    await kubelet.until(NUMBER, lambda units: len(units) == 20)


def by_guess(test: Callable[[World, AdmittingKubelet], Awaitable[None]]) -> Callable[[], None]:
    """Two pods, ``first`` and ``second`` in the plugin's order; the kubelet asks for whom the test says."""

    async def story(world: World) -> None:
        assert isinstance(world.kubelet, AdmittingKubelet)
        await test(world, world.kubelet)

    run = in_a_world(story, kubelet=lambda folder: AdmittingKubelet(folder, random.Random(5)))
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def on_two_cards(world: World, kubelet: AdmittingKubelet) -> tuple[dict[str, Any], dict[str, Any]]:
    """Admit the second pod, which has another card, before the first, for which the plugin takes the call."""
    await ready(kubelet)
    first, second = put(world, "first", gives(A, 1000), time=1), put(world, "second", gives(B, 1000), time=2)
    for pod in (second, first):
        await kubelet.admit(pod, NUMBER)
    return first, second


def guessed(world: World) -> AbstractAsyncContextManager[None]:
    return world.plugin(named_shares="off")


@by_guess
async def test_a_wrong_guess_on_the_same_card_starts_with_its_own_amounts_and_folder_and_so_does_the_one_that_was_guessed(
    world, kubelet
):
    async with guessed(world):
        await ready(kubelet)
        first, second = put(world, "first", gives(A, 8000, 30), time=1), put(world, "second", gives(A, 1000, 10), time=2)
        for pod in (second, first):
            await kubelet.admit(pod, NUMBER)
        seen = {name: await kubelet.start_container(pod, pod["spec"]["containers"][0])
                for name, pod in (("second", second), ("first", first))}  # fmt: skip
        assert page_of(seen["second"]) == [(A, 1000)]
        assert page_of(seen["first"]) == [(A, 8000)]
        for name, one in seen.items():
            assert Path(one.mounts["/tmp/vgpu"]).name == f"uid-{name}_train"
            assert Path(one.mounts[one.env[variables.SHARED_CACHE]]).parent == Path(one.mounts["/tmp/vgpu"])
            assert world.cluster.notes("pods", name)[names.BIND_PHASE] == "success"
        await world.cluster.until(lambda: world.cluster.notes("nodes", NODE)[names.HANDED_OUT].splitlines() == [
            f"uid-first {gives(A, 8000, 30)}", f"uid-second {gives(A, 1000, 10)}"], 5)  # fmt: skip


@by_guess
async def test_a_wrong_guess_on_another_card_ends_the_pod_with_its_reason_and_the_one_guessed_gets_its_own_share(world, kubelet):
    async with guessed(world):
        first, second = await on_two_cards(world, kubelet)
        with pytest.raises(Refused, match=f"was taken for pod ns1/first's .*NVIDIA_VISIBLE_DEVICES is '{A}' and not '{B}'"):
            await kubelet.start_container(second, second["spec"]["containers"][0])
        assert world.cluster.found("pods", "second")["spec"]["activeDeadlineSeconds"] == 1
        assert page_of(await kubelet.start_container(first, first["spec"]["containers"][0])) == [(A, 1000)]


@by_guess
async def test_a_pod_is_ended_in_the_end_though_the_writes_that_end_it_are_refused_for_a_while(world, kubelet):
    async with guessed(world):
        first, second = await on_two_cards(world, kubelet)
        refused, request = [], world.cluster.request

        async def refusing(verb: str, path: str, **more: Any) -> Any:
            if verb == "PATCH" and path.endswith("/pods/second") and len(refused) < 3:
                refused.append(path)
                raise ApiError(403, "Forbidden", "not now")
            return await request(verb, path, **more)

        world.cluster.request = refusing
        with pytest.raises(Refused, match="was taken for pod ns1/first's"):
            await kubelet.start_container(second, second["spec"]["containers"][0])
        await world.cluster.until(lambda: "activeDeadlineSeconds" in world.cluster.found("pods", "second")["spec"], 10)
        assert len(refused) == 3
        assert page_of(await kubelet.start_container(first, first["spec"]["containers"][0])) == [(A, 1000)]


@by_guess
async def test_a_pod_of_which_one_call_was_taken_for_anothers_is_ended_once_the_kubelet_has_asked_for_all_of_it(world, kubelet):
    async with guessed(world):
        await ready(kubelet)
        first = put(world, "first", gives(A, 1000), time=1)
        several = [container(name, 1, 500, 10) for name in ("c0", "c1", "c2")]
        second = put(world, "second", ";".join([gives(B, 500, 10)] * 3), *several, time=2)
        await kubelet.admit(second, NUMBER)
        await kubelet.admit(first, NUMBER)
        answers = {
            key: allocated.response.envs[variables.NVIDIA_VISIBLE_DEVICES]
            for key, allocated in kubelet.pod_devices.entries.items()
        }
        assert answers == {("uid-second", "c0"): A, ("uid-second", "c1"): B, ("uid-second", "c2"): B, ("uid-first", "train"): A}
        assert "activeDeadlineSeconds" not in world.cluster.found("pods", "second")["spec"]
        await asyncio.sleep(4)
        assert world.cluster.found("pods", "second")["spec"]["activeDeadlineSeconds"] == 1


@by_guess
async def test_without_the_plugin_nobody_starts_whose_answer_was_not_looked_at_and_it_is_exchanged_when_the_plugin_is_back(
    world, kubelet
):
    async with guessed(world):
        await ready(kubelet)
        put(world, "first", gives(A, 8000), time=1)
        second = put(world, "second", gives(A, 1000), time=2)
        answering = asyncio.create_task(kubelet.admit(second, NUMBER))
        while not kubelet.pod_devices.entries:
            await asyncio.sleep(0)
    await answering
    one = second["spec"]["containers"][0]
    with pytest.raises(Refused, match="failed to mkdir"):
        await kubelet.start_container(second, one, pre_start=False)
    kubelet.registered.clear()
    async with guessed(world):
        await ready(kubelet)
        assert page_of(await kubelet.start_container(second, one, pre_start=False)) == [(A, 1000)]


@by_guess
async def test_what_was_exchanged_stays_so_over_restarts_of_containers_and_plugin_and_goes_with_its_pod(world, kubelet):
    links = world.root / "hook/vgpu/answers"
    async with guessed(world):
        await ready(kubelet)
        put(world, "first", gives(A, 8000), time=1)
        second = put(world, "second", gives(A, 1000), time=2)
        await kubelet.admit(second, NUMBER)
        one = second["spec"]["containers"][0]
        before = await kubelet.start_container(second, one)
        Path(before.mounts[before.env[variables.SHARED_CACHE]]).write_bytes(b"in use")
    kubelet.registered.clear()
    async with guessed(world):
        await ready(kubelet)
        again = await kubelet.start_container(second, one)
        assert again == before
        assert Path(before.mounts[before.env[variables.SHARED_CACHE]]).read_bytes() == b"in use"
        kubelet.leave("uid-second")
        kubelet.pod_devices.save(kubelet.directory)
        for name in ("first", "second"):
            world.cluster.remove("pods", name)
        await asyncio.sleep(130)
        assert list(links.iterdir()) == []
