"""Invalid objects of others: the smallest thing is set aside with its reason, the scheduler goes on.

Every test ends with a pod that is bound all the same, on the embedded API server, and with the auditor's look at the cards.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kit.faulty_cluster import FaultyCluster
from kit.objects import group, node, pod
from kit.scheduler_daemon import CONF, Daemon, create, daemon, tell_pod, write_conf
from kit.virtual_time import run_virtually

from pumice.ports.cluster import ApiError
from pumice.wire import kinds, volcano

HUGE = ("9223372036854775807", "9223372036854775807Ei", "1e30", "99999999999999999999999999")
NEGATIVE = ("-1", "-9223372036854775808", "-1e30")


async def goes_on(running: Daemon, name: str = "bystander", mib: int = 1000) -> None:
    """A sound pod that comes later is bound, and no card is over."""
    assert not running.task.done()
    await create(running.cluster, pod(name, mib=mib))
    await running.bind_all(name)
    await running.audit()


def not_taken(error: ApiError) -> None:
    """The API server refused the object itself; anything else is an error of the test."""
    if error.code not in (400, 422):
        raise error


async def put_queue(cluster: FaultyCluster, name: str, **spec: Any) -> bool:
    """Return whether the API server took the queue."""
    try:
        await cluster.create(volcano.QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1, **spec}})
    except ApiError as error:
        not_taken(error)
        return False
    return True


async def try_create(cluster: FaultyCluster, obj: dict[str, Any]) -> bool:
    """Return whether the API server took the object."""
    try:
        await create(cluster, obj)
    except ApiError as error:
        not_taken(error)
        return False
    return True


@pytest.mark.parametrize("amount", [*HUGE, *NEGATIVE])
@pytest.mark.parametrize("what", ["cpu", "memory", "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "example.com/thing"])
def test_a_pod_that_asks_for_a_negative_or_huge_amount_waits_alone(what: str, amount: str) -> None:
    """The API server refuses negative amounts; one that slipped past it is told by the watch all the same."""

    async def story() -> None:
        async with daemon(node("n1", cards=1, extra={"example.com/thing": "5"})) as running:
            asks = {"volcano.sh/vgpu-number": "1"} | {what: amount}
            if not await try_create(running.cluster, pod("odd", limits=asks)):
                await tell_pod(running, pod("odd", limits=asks), "ADDED")
            await running.clock.sleep(3)
            held = running.scheduler.engine.state.ledger.placements.values()
            assert not [h for h in held if any(value < 0 for _, value in h.request.items)]
            odd = (await running.cluster.pods()).get("odd")
            assert odd is None or not odd["spec"].get("nodeName")
            assert odd is None or await running.condition("odd")
            await goes_on(running)

    run_virtually(story())


@pytest.mark.parametrize("amount", [*HUGE, *NEGATIVE])
def test_a_node_queue_or_group_with_a_negative_or_huge_amount_harms_nobody_else(amount: str) -> None:
    async def story() -> None:
        odd = node("odd", extra={"cpu": amount, "memory": amount, "pods": amount, "example.com/thing": amount})
        async with daemon(node("n1", cards=2)) as running:
            try:
                await running.cluster.put_node(odd)
            except ApiError as error:
                not_taken(error)
                await running.cluster.delete(kinds.NODES, "odd")
            for key in ("capability", "guarantee", "deserved"):
                inner = {"resource": {"cpu": amount}} if key == "guarantee" else {"cpu": amount, "volcano.sh/vgpu-memory": amount}
                await put_queue(running.cluster, f"by-{key}", **{key: inner})
            await try_create(running.cluster, group("odd", minimum=1, resources={"cpu": amount, "memory": amount}))
            await create(running.cluster, pod("member", mib=1000, group="odd"), pod("guest", mib=1000, queue="by-capability"))
            await goes_on(running)
            status, page = await running.page("/metrics")
            assert status == 200
            assert not [line for line in page.splitlines() if line.endswith((" nan", " inf"))]

    run_virtually(story())


@pytest.mark.parametrize("text", [
    "GPU-x,10,-5,NVIDIA,true,hami-core:", "GPU-x,-1,8000,NVIDIA,true,hami-core:", "GPU-x,ten,8000", ",,,:::", "{",
    "GPU-x,10,99999999999999999999999,NVIDIA,true,hami-core:",
])  # fmt: skip
def test_a_card_that_registers_nonsense_takes_no_pod(text: str) -> None:
    async def story() -> None:
        async with daemon(node("odd", register=text)) as running:
            await create(running.cluster, pod("a", mib=1000))
            await running.clock.sleep(2)
            assert not await running.bound("a")
            await running.cluster.put_node(node("n1", cards=2))
            await running.bind_all("a")
            assert (await running.cluster.pods())["a"]["spec"]["nodeName"] == "n1"
            await goes_on(running)

    run_virtually(story())


def test_a_queue_that_is_its_own_parent_is_a_queue_like_others() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            await put_queue(running.cluster, "ring", parent="ring")
            await put_queue(running.cluster, "a", parent="b")
            await put_queue(running.cluster, "b", parent="a")
            for name in ("ring", "a", "b"):
                await create(running.cluster, group(f"g-{name}", minimum=1, queue=name))
                await create(running.cluster, pod(f"in-{name}", mib=1000, group=f"g-{name}"))
            await running.bind_all("in-ring", "in-a", "in-b")
            await goes_on(running)

    run_virtually(story())


def test_a_group_that_wants_more_members_than_there_are_holds_nothing() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            await create(running.cluster, group("g", minimum=1000), *(pod(f"g-{i}", mib=4000, group="g") for i in range(2)))
            await running.clock.sleep(5)
            assert not await running.bound("g-0")
            assert not running.scheduler.engine.state.ledger.placements
            found = await running.cluster.get(volcano.POD_GROUPS, "g", "default")
            assert "valid: 2, min: 1000" in str(found["status"]["conditions"])
            await goes_on(running, mib=8000)

    run_virtually(story())


def test_a_priority_class_that_is_gone_counts_as_none() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            body = {"metadata": {"name": "urgent"}, "value": 1000}
            await running.cluster.create(kinds.PRIORITY_CLASSES, body)
            high = group("high", minimum=1, priority_class="urgent")
            await create(running.cluster, group("low", minimum=1), high)
            await running.clock.sleep(1)
            assert running.scheduler.engine.state.jobs["default/high"].priority == 1000
            await running.cluster.delete(kinds.PRIORITY_CLASSES, "urgent")
            await create(running.cluster, group("other", minimum=1, priority_class="never-was"))
            await running.clock.sleep(1)
            jobs = running.scheduler.engine.state.jobs
            assert [jobs[f"default/{name}"].priority for name in ("high", "low", "other")] == [0, 0, 0]
            await create(running.cluster, *(pod(name, mib=1000, group=name) for name in ("low", "high", "other")))
            await running.bind_all("low", "high", "other")
            await goes_on(running)

    run_virtually(story())


def test_a_node_that_shrinks_under_its_pods_keeps_them_and_takes_no_more() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2, cpu="4")) as running:
            await create(running.cluster, *(pod(f"p{i}", mib=8000, cpu="2") for i in range(2)))
            await running.bind_all("p0", "p1")
            await running.cluster.put_node(node("n1", cards=1, mib=4000, cpu="1"))
            await create(running.cluster, pod("late", mib=100, cpu="500m"))
            await running.clock.sleep(5)
            assert await running.bound("p0", "p1")
            assert not await running.bound("late")
            assert "Insufficient" in await running.condition("late")
            await running.cluster.put_node(node("n2", cards=4))
            await running.bind_all("late")
            assert (await running.cluster.pods())["late"]["spec"]["nodeName"] == "n2"
            await running.cluster.delete(kinds.PODS, "p0", "default", grace=0)
            await running.cluster.delete(kinds.PODS, "p1", "default", grace=0)
            await running.cluster.put_node(node("n1", cards=2, cpu="4"))
            await goes_on(running)

    run_virtually(story())


def test_of_two_pods_with_one_uid_the_second_is_left_alone() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            await create(running.cluster, pod("a", mib=4000))
            await running.bind_all("a")
            simulator = copy.deepcopy((await running.cluster.pods())["a"])
            simulator["metadata"] |= {"name": "twin", "resourceVersion": "999999"}
            await tell_pod(running, simulator, "ADDED")
            state = running.scheduler.engine.state
            assert "belongs to pod default/a" in state.problems["Pod default/twin"]
            assert len(state.ledger.placements) == 2, "the twin runs, so its node is charged for it"
            assert "pumice_objects_set_aside 1" in (await running.page("/metrics"))[1]
            await tell_pod(running, simulator, "DELETED")
            assert len(state.ledger.placements) == 1, "the deletion of the twin frees nothing of the first"
            assert "Pod default/twin" not in state.problems
            await goes_on(running, mib=4000)

    run_virtually(story())


def test_a_watch_that_repeats_old_events_changes_nothing() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            await create(running.cluster, pod("a", mib=8000))
            fresh = copy.deepcopy((await running.cluster.pods())["a"])
            await running.bind_all("a")
            await running.clock.sleep(1)
            bound = copy.deepcopy((await running.cluster.pods())["a"])
            state = running.scheduler.engine.state
            for old in (fresh, bound, fresh):
                await tell_pod(running, old, "ADDED")
                assert list(state.ledger.placements) == [fresh["metadata"]["uid"]]
            await running.cluster.delete(kinds.PODS, "a", "default", grace=0)
            await running.clock.sleep(1)
            await goes_on(running, mib=8000)

    run_virtually(story())


@pytest.mark.parametrize("broken", ["{", 'actions: "enqueue, fly"', "tiers: 3", "actions: [", "- a\n- b", "\x00",
                                    "tiers:\n- plugins: 7", "&a [*a]"])  # fmt: skip
def test_a_configmap_that_becomes_broken_while_running_leaves_the_last_good_configuration(broken: str) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            before = running.scheduler.engine.conf
            await write_conf(running, broken)
            await running.clock.sleep(2)
            assert running.scheduler.engine.conf is before
            assert "pumice_bad_configurations_total 1" in (await running.page("/metrics"))[1]
            await goes_on(running)
            await write_conf(running, CONF.replace("binpack", "spread"))
            await running.clock.sleep(2)
            assert running.scheduler.engine.conf is not before

    run_virtually(story())


@pytest.mark.parametrize("broken", ["nvidia: 3", "{", "nvidia:\n  resourceCountName: [1]", "nvidia:\n  deviceSplitCount: many"])
def test_a_device_configmap_that_becomes_broken_leaves_the_cards_as_they_were(broken: str) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2)) as running:
            settings = running.scheduler.engine.settings
            body = {"metadata": {"name": settings.configmap}, "data": {"device-config.yaml": "nvidia: {}"}}
            await running.cluster.create(kinds.CONFIGMAPS, body, settings.configmap_namespace)
            await running.clock.sleep(1)
            before = running.scheduler.engine.device_config
            body = {"data": {"device-config.yaml": broken}}
            await running.cluster.patch(kinds.CONFIGMAPS, settings.configmap, body, settings.configmap_namespace)
            await running.clock.sleep(2)
            assert running.scheduler.engine.device_config is before
            assert running.scheduler.configuration.refused == 1
            await goes_on(running)

    run_virtually(story())


@pytest.mark.parametrize("obj", [
    {"metadata": {"name": "x", "namespace": "default", "uid": "u1"}, "spec": {"containers": 7}},
    {"metadata": {"name": "x", "namespace": "default", "uid": "u1", "creationTimestamp": "yesterday"},
     "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]}},
    {"metadata": 3}, {"spec": None}, [], "text",
])  # fmt: skip
def test_an_object_that_cannot_be_read_is_set_aside_and_the_watch_goes_on(obj: Any) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2)) as running:
            await tell_pod(running, obj, "ADDED")
            await tell_pod(running, obj, "DELETED")
            await goes_on(running)

    run_virtually(story())
