"""Answers that name a CDI device which is used once: whose it is the kubelet's record says, and what it is follows from that."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.admitting import AdmittingKubelet, Refused
from kit.node_objects import NODE, A, B, container, gives, pod_object
from kit.node_world import node_cluster, plugin_served
from kit.plugin_world import World, in_a_world
from kit.virtual_time import VirtualClock, run_virtually
from tests.scenarios.toy_device_type.node import SLICE, ToyCards, toy
from tests.scenarios.toy_device_type.words import ASSIGNED, RESOURCE, render

from pumice.apps.node.device_type import PluginSettings
from pumice.apps.node.naming import unnamed
from pumice.node.protocol import Answer
from pumice.ports.cluster import ApiError
from pumice.wire import cdi, limits_page, names, variables
from pumice.wire.objects import NodeInfo

NUMBER = names.VGPU_NUMBER


def by_name(test: Callable[[World, AdmittingKubelet], Awaitable[None]]) -> Callable[[], None]:
    async def story(world: World) -> None:
        assert isinstance(world.kubelet, AdmittingKubelet)
        await test(world, world.kubelet)

    run = in_a_world(story, kubelet=lambda folder: AdmittingKubelet(folder, random.Random(5), folder.parent / "cdi"))
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def served(world: World) -> AbstractAsyncContextManager[None]:
    return world.plugin(named_shares="on", cdi_folder=world.root / "cdi")


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


@by_name
async def test_the_share_is_booked_and_the_nodes_lock_given_back_before_any_container_starts(world, kubelet):
    async with served(world):
        await ready(kubelet)
        world.cluster.change("nodes", NODE, {"metadata": {"annotations": {names.NODE_LOCK_VGPU: "2026-01-01T00:00:00Z"}}})
        pod = put(world, "p", gives(A, 1000))
        await kubelet.admit(pod, NUMBER)
        await world.cluster.until(lambda: world.cluster.notes("pods", "p")[names.BIND_PHASE] == "success", 5)
        await world.cluster.until(lambda: names.NODE_LOCK_VGPU not in world.cluster.notes("nodes", NODE), 5)
        assert len(list((world.root / "cdi").glob("pumice.io-share_*.json"))) == 1


@by_name
async def test_the_answer_to_allocate_holds_a_name_and_nothing_that_opens_a_card(world, kubelet):
    async with served(world):
        await ready(kubelet)
        await kubelet.admit(put(world, "p", gives(A, 1000)), NUMBER)
        (allocated,) = kubelet.pod_devices.entries.values()
        answer = allocated.response
        assert dict(answer.envs) == {variables.NVIDIA_VISIBLE_DEVICES: "void"}
        assert not [*answer.mounts, *answer.devices]
        assert cdi.share_number([device.name for device in answer.cdi_devices])


@by_name
async def test_what_a_pods_own_environment_says_of_its_limits_and_cards_does_not_count(world, kubelet):
    async with served(world):
        await ready(kubelet)
        mine = [{"name": variables.memory_limit_of(0), "value": "0"}, {"name": variables.NVIDIA_VISIBLE_DEVICES, "value": "all"}]
        pod = put(world, "p", gives(A, 1000), container("c", 1, 1000, 50, env=mine))
        await kubelet.admit(pod, NUMBER)
        seen = await kubelet.start_container(pod, pod["spec"]["containers"][0])
        limits = seen.env[variables.memory_limit_of(0)], seen.env[variables.NVIDIA_VISIBLE_DEVICES]
        assert limits == ("1000m", A)


@by_name
async def test_after_a_restart_of_the_kubelet_a_container_starts_though_nobody_is_asked(world, kubelet):
    async with served(world):
        await ready(kubelet)
        pod = put(world, "p", gives(A, 1000))
        await kubelet.admit(pod, NUMBER)
        await asyncio.sleep(1)
        await kubelet.stop()
        seen = await kubelet.start_container(pod, pod["spec"]["containers"][0], pre_start=False)
        assert page_of(seen) == [(A, 1000)]
        await kubelet.start()


@by_name
async def test_a_name_without_its_share_keeps_the_container_from_starting_until_the_plugin_is_back(world, kubelet):
    async with served(world):
        await ready(kubelet)
        pod = put(world, "p", gives(A, 1000))

        async def away(verb: str, path: str) -> None:
            if verb == "PATCH" and "/pods" in path:
                raise ApiError(503, "ServiceUnavailable", "away")

        world.cluster.gate = away
        await kubelet.admit(pod, NUMBER)
    shutil.rmtree(world.root / "cdi", ignore_errors=True)  # it was killed before it made the share
    with pytest.raises(Refused, match="unresolvable CDI devices"):
        await kubelet.start_container(pod, pod["spec"]["containers"][0], pre_start=False)
    world.cluster.gate = _open
    kubelet.registered.clear()
    async with served(world):
        await ready(kubelet)
        assert page_of(await kubelet.start_container(pod, pod["spec"]["containers"][0])) == [(A, 1000)]
        assert world.cluster.notes("pods", "p")[names.BIND_PHASE] == "success"


@by_name
async def test_after_a_boot_that_emptied_the_folder_every_share_is_there_again_and_the_same(world, kubelet):
    async with served(world):
        await ready(kubelet)
        pods = [put(world, name, devices) for name, devices in (("p", gives(A, 1000)), ("q", gives(B, 2000)))]
        for pod in pods:
            await kubelet.admit(pod, NUMBER)
        before = [await kubelet.start_container(pod, pod["spec"]["containers"][0]) for pod in pods]
    shutil.rmtree(world.root / "cdi")
    kubelet.registered.clear()
    async with served(world):
        await ready(kubelet)
        again = [await kubelet.start_container(pod, pod["spec"]["containers"][0], pre_start=False) for pod in pods]
        assert again == before
        assert [page_of(seen) for seen in again] == [[(A, 1000)], [(B, 2000)]]


@by_name
async def test_an_init_container_and_the_container_that_takes_over_its_ids_each_have_their_own_share(world, kubelet):
    async with served(world):
        await ready(kubelet)
        inits = (container("i", 1, 1000, 50),)
        pod = put(world, "p", gives(A, 1000) + gives(B, 1000), container("c", 2, 1000, 50), inits=inits)
        other = put(world, "q", gives(B, 500), inits=inits)
        for each in (pod, other):
            await kubelet.admit(each, NUMBER)
        ids = [allocated.ids for key, allocated in kubelet.pod_devices.entries.items() if key[0] == "uid-q"]
        assert ids[0] == ids[1]
        pages = {}
        for each in (pod, other):
            for one in (*each["spec"]["initContainers"], *each["spec"]["containers"]):
                seen = await kubelet.start_container(each, one)
                pages[seen.mounts[limits_page.PATH]] = page_of(seen)
        assert list(pages.values()) == [[(A, 1000)], [(A, 1000), (B, 1000)], [(B, 500)], [(B, 500)]]


@by_name
async def test_a_number_is_used_once_although_chance_repeats_itself_and_the_kubelet_uses_its_ids_again(world, kubelet):
    numbers = []
    for name in ("p", "q", "r"):
        async with served(world):  # each process draws the same numbers
            await ready(kubelet)
            pod = put(world, name, gives(A, 1000))
            await kubelet.admit(pod, NUMBER)
            await kubelet.start_container(pod, pod["spec"]["containers"][0])
            (allocated,) = (
                allocated for key, allocated in kubelet.pod_devices.entries.items() if key[0] == pod["metadata"]["uid"]
            )
            numbers.append(cdi.share_number([device.name for device in allocated.response.cdi_devices]))
            if name == "p":
                kubelet.leave("uid-p")
                world.cluster.remove("pods", "p")
            kubelet.registered.clear()
    assert len(set(numbers)) == 3


async def running_without_record(world: World, kubelet: AdmittingKubelet) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a pod and its container, which runs, and of which the kubelet's checkpoint says nothing any more."""
    await ready(kubelet)
    pod = put(world, "p", gives(A, 1000))
    await kubelet.admit(pod, NUMBER)
    one = pod["spec"]["containers"][0]
    await kubelet.start_container(pod, one)
    runs = {"phase": "Running", "containerStatuses": [{"name": one["name"], "state": {"running": {}}}]}
    world.cluster.change("pods", "p", {"status": runs})
    (world.root / "plugins/kubelet_internal_checkpoint").write_text(json.dumps({"Data": {"PodDeviceEntries": []}}))
    return pod, one


@by_name
async def test_ids_that_the_record_has_lost_start_nothing_and_are_answered_anew_for_whoever_holds_the_share(world, kubelet):
    async with served(world):
        pod, one = await running_without_record(world, kubelet)
        (allocated,) = kubelet.pod_devices.entries.values()
        with pytest.raises(Refused, match="does not say yet whose these are"):
            await kubelet.start_container(pod, one)
        kubelet.pod_devices.entries.clear()  # the kubelet asks again, outside an admission, and takes what ids it finds
        await kubelet.admit(pod, NUMBER)
        (anew,) = kubelet.pod_devices.entries.values()
        assert anew.response != allocated.response
        assert page_of(await kubelet.start_container(pod, one)) == [(A, 1000)]


@by_name
async def test_a_container_that_starts_anew_after_its_kubelet_lost_its_record_has_the_region_that_its_page_names(world, kubelet):
    """The page of one that runs stays as it was: what that names must be mounted, or its program could remove it."""
    async with served(world):
        pod, one = await running_without_record(world, kubelet)
        kubelet.pod_devices.entries.clear()
        await kubelet.admit(pod, NUMBER)
        seen = await kubelet.start_container(pod, one)
        page = limits_page.parse(Path(seen.mounts[limits_page.PATH]).read_bytes())
        assert page is not None
        assert page.region in seen.mounts


@by_name
async def test_a_record_that_somebody_deleted_keeps_nobody_from_starting_again_until_it_is_written_anew(world, kubelet):
    async with served(world):
        await ready(kubelet)
        pod, other = put(world, "p", gives(A, 1000)), put(world, "q", gives(B, 1000))
        await kubelet.admit(pod, NUMBER)
        one = pod["spec"]["containers"][0]
        await kubelet.start_container(pod, one)
        (world.root / "plugins/kubelet_internal_checkpoint").unlink()
        assert page_of(await kubelet.start_container(pod, one)) == [(A, 1000)]
        await kubelet.admit(other, NUMBER)
        for each, page in ((pod, [(A, 1000)]), (other, [(B, 1000)])):
            assert page_of(await kubelet.start_container(each, each["spec"]["containers"][0])) == page


@by_name
async def test_where_only_one_pod_can_be_meant_that_must_not_be_served_it_is_rejected_at_once(world, kubelet):
    async with served(world):
        await ready(kubelet)
        with pytest.raises(Refused, match="was not placed by the scheduler"):
            await kubelet.admit(put(world, "stranger", None), NUMBER)
        world.cluster.change("pods", "stranger", {"status": {"phase": "Failed"}})
        with pytest.raises(Refused, match="no pod of this node waits for exactly 1 vGPU"):
            await kubelet.admit(pod_object("nobody", None), NUMBER)


@by_name
async def test_among_several_pods_the_one_that_must_not_be_served_never_starts_and_is_ended_with_its_reason(world, kubelet):
    async with served(world):
        await ready(kubelet)
        good, bad = put(world, "good", gives(A, 1000)), put(world, "bad", None)
        for pod in (bad, good):
            await kubelet.admit(pod, NUMBER)
        assert page_of(await kubelet.start_container(good, good["spec"]["containers"][0])) == [(A, 1000)]
        with pytest.raises(Refused, match=r"pod ns1/bad: it asks for .* but was not placed by the scheduler"):
            await kubelet.start_container(bad, bad["spec"]["containers"][0])
        ended = world.cluster.found("pods", "bad")
        assert ended["spec"]["activeDeadlineSeconds"] == 1
        assert "was not placed by the scheduler" in ended["metadata"]["annotations"][names.DEVICES_REFUSED]


@by_name
async def test_a_pod_that_the_kubelet_rejects_before_it_asks_leaves_the_next_ones_share_alone(world, kubelet):
    async with served(world):
        await ready(kubelet)
        put(world, "big", gives(A, 8000), time=1)  # an unsafe sysctl: rejected, and not a word yet of that
        small = put(world, "small", gives(A, 1000), time=2)
        await kubelet.admit(small, NUMBER)
        assert page_of(await kubelet.start_container(small, small["spec"]["containers"][0])) == [(A, 1000)]


@by_name
async def test_shares_of_other_plugins_are_left_in_the_folder_and_those_of_pods_that_left_go(world, kubelet):
    async with served(world):
        await ready(kubelet)
        pod = put(world, "p", gives(A, 1000))
        await kubelet.admit(pod, NUMBER)
        await kubelet.start_container(pod, pod["spec"]["containers"][0])
        (mine,) = (world.root / "cdi").iterdir()
        other = world.root / "cdi" / cdi.share_file_name("0" * 40)
        other.write_bytes(mine.read_bytes())
        await asyncio.sleep(130)
        assert {mine, other} == set((world.root / "cdi").iterdir())
        kubelet.leave("uid-p")
        kubelet.pod_devices.save(kubelet.directory)
        world.cluster.remove("pods", "p")
        await asyncio.sleep(130)
        assert {other} == set((world.root / "cdi").iterdir())


@by_name
async def test_a_pod_that_went_before_its_share_was_made_is_nobodys_business_any_more(world, kubelet):
    async with served(world):
        await ready(kubelet)
        other = put(world, "other", gives(B, 1000))
        gone = put(world, "gone", gives(A, 1000))
        world.cluster.remove("pods", "gone")
        await kubelet.admit(gone, NUMBER)  # the kubelet hears of it later
        await asyncio.sleep(5)
        requested = [0]

        async def count(verb: str, path: str) -> None:
            requested[0] += verb == "GET" and path.endswith("/pods")

        world.cluster.gate = count
        await asyncio.sleep(60)
        assert requested == [0]
        with pytest.raises(Refused, match="the API server does not name its pod"):
            await kubelet.start_container(gone, gone["spec"]["containers"][0])
        await kubelet.admit(other, NUMBER)
        assert page_of(await kubelet.start_container(other, other["spec"]["containers"][0])) == [(B, 1000)]


def test_a_share_that_takes_longer_than_the_kubelet_waits_is_made_all_the_same_and_the_next_try_starts():
    async def story(folder: Path) -> None:
        clock, cluster = VirtualClock(), node_cluster()
        (folder / "plugins").mkdir()
        kubelet = AdmittingKubelet(folder / "plugins", random.Random(5), folder / "cdi")
        await kubelet.start()
        slow = [40.0]

        async def prepare(answer: Answer) -> None:
            await asyncio.sleep(slow.pop() if slow else 0)

        device_type = replace(toy(ToyCards({"X": 4 * SLICE})), prepare=prepare)
        settings = PluginSettings(NODE, kubelet.directory, booking_dirs=(), named_shares="on", cdi_folder=folder / "cdi")
        asking = {"name": "c", "resources": {"limits": {RESOURCE: "2"}}}
        pod = pod_object("p", None, asking, annotations={ASSIGNED: render({"X": 2})})
        cluster.put(pod)
        async with plugin_served(settings, device_type, cluster, clock):
            await kubelet.until(RESOURCE, lambda units: len(units) == 4)
            await kubelet.admit(pod, RESOURCE)
            with pytest.raises(Refused, match="its share is still being made"):
                await kubelet.start_container(pod, asking)
            await asyncio.sleep(30)
            assert (await kubelet.start_container(pod, asking)).env["TOY_CARDS"] == "X"
        await kubelet.stop()

    with tempfile.TemporaryDirectory(prefix="pumice") as folder:
        run_virtually(story(Path(folder)))


@pytest.mark.parametrize(
    ("runtime", "kubelet", "heeds"),
    [("containerd://2.4.2", "v1.36.1", True), ("containerd://1.6.20", "v1.36.1", False),
     ("containerd://1.7.27", "v1.33.0", False), ("cri-o://1.31.0", "v1.31.2", True),
     ("containerd://2.0.0", "v1.28.1", False), ("docker://28.0.0", "v1.33.0", False),
     ("", "", False)],
)  # fmt: skip
def test_by_itself_a_plugin_names_shares_only_where_the_nodes_runtime_is_known_to_heed_cdi(runtime, kubelet, heeds, tmp_path):
    shm = Path("/dev/shm")
    settings = PluginSettings(NODE, cdi_folder=shm if shm.is_dir() else tmp_path)
    assert (unnamed(settings, NodeInfo(runtime, kubelet)) == "") == heeds
    assert unnamed(replace(settings, named_shares="on"), NodeInfo(runtime, kubelet)) == ""
    assert unnamed(replace(settings, named_shares="off"), NodeInfo(runtime, kubelet)) == "--cdi is off"


async def _open(verb: str, path: str) -> None:
    return
