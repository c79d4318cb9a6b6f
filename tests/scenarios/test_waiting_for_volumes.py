"""A pod is bound when its volumes are there; until then it keeps its place, in nobody's way (Volcano
pkg/scheduler/cache/cache.go)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kit.objects import group, node, pod
from kit.scheduler_daemon import CONF, Daemon, create, daemon
from kit.storage_objects import ZONE, Json, claim, storage_class, using, volume
from kit.virtual_time import run_virtually

from pumice.apps.scheduler.binder import BROKEN_GANG
from pumice.apps.scheduler.volume_wait import VolumeWait
from pumice.scheduler.explaining.explain import explain_known
from pumice.wire import kinds

SELECTED = "volume.kubernetes.io/selected-node"
CLAIMS = kinds.PERSISTENT_VOLUME_CLAIMS
PATIENT = CONF.replace("  - name: proportion\n", "").replace("  - name: predicates\n",
                       "  - name: predicates\n    arguments:\n      volumebinding.bindTimeoutSeconds: 30\n")  # fmt: skip


@asynccontextmanager
async def cluster_with(*storage: Json, cpu: str = "4") -> AsyncIterator[Daemon]:
    async with daemon(node("n1", cpu=cpu, labels={ZONE: "a"}), conf=PATIENT) as running:
        stored = {"StorageClass": kinds.STORAGE_CLASSES, "PersistentVolumeClaim": CLAIMS,
                  "PersistentVolume": kinds.PERSISTENT_VOLUMES}  # fmt: skip
        local = storage_class("local", "kubernetes.io/no-provisioner")
        for obj in (storage_class("later"), local, *storage):
            await running.cluster.create(stored[obj["kind"]], obj, obj["metadata"].get("namespace", ""))
        await running.clock.sleep(1)
        yield running


async def provide(running: Daemon, name: str, made: Json | None = None) -> None:
    """The volume controller's part: a volume for the claim, and both bound to each other."""
    made = made or volume(f"v-{name}", claimed=name)
    await running.cluster.create(kinds.PERSISTENT_VOLUMES, made)
    body: Json = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                  "spec": {"volumeName": made["metadata"]["name"]}}  # fmt: skip
    await running.cluster.patch(CLAIMS, name, body, "default")


async def selected(running: Daemon, name: str) -> str:
    found = await running.cluster.get(CLAIMS, name, "default")
    return str(found["metadata"].get("annotations", {}).get(SELECTED, ""))


def test_the_pod_is_bound_when_its_volumes_are_and_others_pass_it_meanwhile() -> None:
    async def story() -> None:
        order: list[str] = []
        async with cluster_with(claim("c"), claim("d", kind="local"), volume("v", kind="local")) as running:
            free = {"status": {"phase": "Available"}}
            await running.cluster.patch(kinds.PERSISTENT_VOLUMES, "v", free, subresource="status")
            await running.clock.sleep(1)

            def notice(verb: str, path: str) -> Any:
                if verb == "POST" and path.endswith("/binding"):
                    order.append(path.split("/")[-2])

            running.cluster.fault = notice
            await create(running.cluster, using("p", "c", "d"))
            await running.clock.sleep(5)
            assert await selected(running, "c") == "n1"
            given = await running.cluster.get(kinds.PERSISTENT_VOLUMES, "v")
            assert given["spec"]["claimRef"]["name"] == "d"
            await create(running.cluster, pod("other", cpu="3"), pod("large", cpu="4"))
            await running.bind_all("other")
            assert not await running.bound("p")
            await running.clock.sleep(1)
            assert "Insufficient cpu" in await running.condition("large")  # p keeps its place
            await provide(running, "c")
            await running.clock.sleep(3)
            assert not await running.bound("p")  # one of two is not enough
            reported = explain_known(running.scheduler.engine, "default", "p")
            assert reported is not None
            assert reported.summary == "has its place on n1 and waits for the volumes of its claims there: d"
            body: Json = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v"}}
            await running.cluster.patch(CLAIMS, "d", body, "default")
            await running.bind_all("p")
        assert order == ["other", "p"]

    run_virtually(story())


def test_a_volume_that_does_not_come_in_time_frees_the_place_with_a_reason() -> None:
    async def story() -> None:
        async with cluster_with(claim("c"), cpu="1") as running:
            await create(running.cluster, using("p", "c"))
            await running.clock.sleep(20)
            await create(running.cluster, pod("other", cpu="1"))
            await running.clock.sleep(5)
            assert not await running.bound("other")
            await running.bind_all("other")
            text = "failed to bind to node n1: its volumes were not there within 30 s"
            assert text in await running.events("FailedScheduling")
            assert not await running.bound("p")

    run_virtually(story())


def test_a_driver_that_takes_the_node_off_the_claim_is_heard_at_once() -> None:
    """So a provisioner says that it cannot make the volume there."""

    async def story() -> None:
        async with cluster_with(claim("c"), cpu="1") as running:
            await create(running.cluster, using("p", "c"))
            await running.clock.sleep(3)
            await running.cluster.patch(CLAIMS, "c", {"metadata": {"annotations": {SELECTED: None}}}, "default")
            await running.clock.sleep(2)
            said = await running.events("FailedScheduling")
            assert any("no volume could be made for claim c there" in text for text in said)
            await provide(running, "c")
            await running.bind_all("p")

    run_virtually(story())


def test_a_volume_that_was_made_elsewhere_binds_nobody() -> None:
    async def story() -> None:
        async with cluster_with(claim("c")) as running:
            await create(running.cluster, using("p", "c"))
            await running.clock.sleep(2)
            await provide(running, "c", volume("v", claimed="c", nodes=("n9",)))
            await running.clock.sleep(5)
            assert not await running.bound("p")
            said = await running.events("FailedScheduling")
            assert "failed to bind to node n1: volume v of claim c cannot be used on node n1" in said
            assert "volume node affinity conflict" in await running.condition("p")

    run_virtually(story())


def test_a_pod_that_is_deleted_while_its_volume_is_made_leaves_nothing() -> None:
    async def story() -> None:
        async with cluster_with(claim("c"), cpu="1") as running:
            await create(running.cluster, using("p", "c"))
            await running.clock.sleep(2)
            await running.cluster.delete(kinds.PODS, "p", "default", grace=0)
            await create(running.cluster, pod("other", cpu="1"))
            await running.bind_all("other")
            await running.clock.sleep(2)
            assert running.scheduler.binder.volumes.waiting == 0
            assert await running.events("FailedScheduling") == []

    run_virtually(story())


def test_a_gang_is_bound_when_the_volumes_of_all_are_there() -> None:
    async def story() -> None:
        async with cluster_with(claim("c0"), claim("c1")) as running:
            await create(running.cluster, group("g", minimum=3), using("g-0", "c0", group="g"), using("g-1", "c1", group="g"),
                         pod("g-2", cpu="1", group="g"))  # fmt: skip
            await running.clock.sleep(3)
            await provide(running, "c0")
            await running.clock.sleep(3)
            assert not any([await running.bound(f"g-{i}") for i in range(3)])
            await provide(running, "c1")
            await running.bind_all("g-0", "g-1", "g-2")

    run_virtually(story())


def test_a_gang_of_which_one_volume_does_not_come_is_not_bound_at_all() -> None:
    async def story() -> None:
        async with cluster_with(claim("c0"), cpu="2") as running:
            await create(running.cluster, group("g", minimum=2), using("g-0", "c0", group="g"), pod("g-1", cpu="1", group="g"))
            await running.clock.sleep(31)
            assert not any([await running.bound(f"g-{i}") for i in range(2)])
            said = await running.events("FailedScheduling")
            assert "failed to bind to node n1: its volumes were not there within 30 s" in said
            assert "failed to bind to node n1: of another pod of its gang its volumes were not there within 30 s" in said
            assert any(words.startswith(BROKEN_GANG) for words in said)

    run_virtually(story())


def test_an_error_of_ours_over_one_members_volume_leaves_no_other_member_waiting() -> None:
    async def story() -> None:
        async with cluster_with(claim("c0"), cpu="2") as running:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(VolumeWait, "_look", lambda *_: 1 / 0)
                await create(running.cluster, group("g", minimum=2), using("g-0", "c0", group="g"),
                             pod("g-1", cpu="1", group="g"))  # fmt: skip
                await running.clock.sleep(5)
            said = await running.events("FailedScheduling")
            assert any("of another pod of its gang its volumes could not be waited for" in words for words in said), said
            await running.clock.sleep(35)  # the gang was held back for some seconds between
            assert running.scheduler.binder.volumes.waiting == 0

    run_virtually(story())


def test_a_scheduler_that_stops_waits_for_no_volume() -> None:
    async def story() -> None:
        async with cluster_with(claim("c")) as running:
            await create(running.cluster, using("p", "c"))
            await running.clock.sleep(2)
            began = running.clock.monotonic()
            await running.close()
            assert running.clock.monotonic() - began < 5
            assert running.scheduler.binder.volumes.waiting == 0
            assert not [task for task in asyncio.all_tasks() if "Binder" in repr(task)]

    run_virtually(story())
