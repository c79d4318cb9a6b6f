"""Objects that are made anew under their name while nobody watches: the new one counts, in whatever order that is told."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from kit.faulty_cluster import FaultyCluster
from kit.objects import group, node, pod, priority_class, queue
from kit.scheduler_daemon import CONF, create, daemon
from kit.storage_objects import claim, limit, storage_class, volume
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.informers import Informers
from pumice.ports.cluster import ApiError, Resource, WatchEvent
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.state import State
from pumice.wire import kinds, volcano
from pumice.wire.objects import ConfigMap
from pumice_jobs.apps.controller.daemon import Controller
from pumice_jobs.apps.controller.daemon import Settings as ControllerSettings

Json = dict[str, Any]
Known = Callable[[State], bool]

DRIVER: Json = {"kind": "CSIDriver", "metadata": {"name": "d"}, "spec": {"storageCapacity": True}}
CAPACITY: Json = {"kind": "CSIStorageCapacity", "metadata": {"name": "c", "namespace": "default"}, "capacity": "1Gi",
                  "storageClassName": "later"}  # fmt: skip
ATTACHMENT: Json = {"kind": "VolumeAttachment", "metadata": {"name": "a"},
                    "spec": {"nodeName": "n1", "source": {"persistentVolumeName": "v"}}}  # fmt: skip
SPACE: Json = {"kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "x"}}}
KINDS: dict[str, tuple[Resource, Json, Known]] = {
    "node": (kinds.NODES, node("n1"), lambda s: "n1" in s.ledger.table.row_of),
    "namespace": (kinds.NAMESPACES, SPACE, lambda s: "default" in s.ledger.terms.namespaces),
    "priority class": (kinds.PRIORITY_CLASSES, priority_class("p", 7), lambda s: "p" in s.groups.priority_classes),
    "queue": (volcano.QUEUES, queue("q"), lambda s: "q" in s.queues and s.queues["q"].present),
    "PodGroup": (volcano.POD_GROUPS, group("g", minimum=1),
                 lambda s: "default/g" in s.jobs and s.jobs["default/g"].group is not None),
    "claim": (kinds.PERSISTENT_VOLUME_CLAIMS, claim("c"), lambda s: "default/c" in s.volumes.claims),
    "volume": (kinds.PERSISTENT_VOLUMES, volume("v"), lambda s: "v" in s.volumes.volumes),
    "storage class": (kinds.STORAGE_CLASSES, storage_class("later"), lambda s: "later" in s.volumes.classes),
    "CSINode": (kinds.CSI_NODES, limit("n1", 3), lambda s: "n1" in s.volumes.limits),
    "CSIDriver": (kinds.CSI_DRIVERS, DRIVER, lambda s: "d" in s.volumes.frugal),
    "capacity": (kinds.CSI_STORAGE_CAPACITIES, CAPACITY, lambda s: "default/c" in s.volumes.capacities),
    "attachment": (kinds.VOLUME_ATTACHMENTS, ATTACHMENT, lambda s: bool(s.volumes.attached.get("n1"))),
}  # fmt: skip
ORDERS = {
    "the new one comes first": ["ADDED 1", "ADDED 2", "DELETED 1"],
    "the old one goes first": ["ADDED 1", "DELETED 1", "ADDED 2"],
    "the old one is told of again": ["ADDED 1", "ADDED 2", "DELETED 1", "DELETED 1"],
}


class Recorder:
    """A cluster whose watch of one kind says these events, and whose others are empty."""

    def __init__(self, resource: Resource, events: list[WatchEvent]) -> None:
        self.resource, self.events = resource, events

    async def watch(self, resource: Resource, namespace: str = "", **_: Any) -> AsyncIterator[WatchEvent]:
        for event in self.events if resource == self.resource else ():
            yield event
        yield WatchEvent("SYNCED", b"")
        await asyncio.Event().wait()


def events(obj: Json, *words: str) -> list[WatchEvent]:
    """``ADDED 2``: that event, about the second object of that name. Of what is gone a relist tells the metadata only."""
    found = []
    for number, word in enumerate(words):
        type_, uid = word.split()
        reported = copy.deepcopy(obj)
        reported["metadata"] |= {"uid": uid, "resourceVersion": str(10 + number)}
        if type_ == "DELETED":
            reported = {
                "metadata": {
                    key: reported["metadata"][key]
                    for key in ("name", "namespace", "uid")
                    if key in reported["metadata"]
                }
            }
        found.append(WatchEvent(type_, json.dumps(reported).encode()))  # type: ignore[arg-type]
    return found


async def heard(cluster: Recorder) -> State:
    engine = Engine()
    informers = Informers(cluster, VirtualClock(), engine, asyncio.Event())  # type: ignore[arg-type]
    watches = [asyncio.ensure_future(watch) for watch in informers.watches()]
    await informers.synced.wait()
    for watch in watches:
        watch.cancel()
    return engine.state


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_made_anew_under_its_name_is_known_in_whatever_order_it_was_told(kind: str, order: str) -> None:
    resource, obj, known = KINDS[kind]

    async def story() -> None:
        assert known(await heard(Recorder(resource, events(obj, *ORDERS[order]))))
        assert not known(await heard(Recorder(resource, events(obj, *ORDERS[order], "DELETED 2"))))

    run_virtually(story())


@pytest.mark.parametrize("order", ORDERS)
def test_the_configuration_that_was_made_anew_counts_in_whatever_order_it_was_told(order: str) -> None:
    written: Json = {"metadata": {"name": "conf", "namespace": "volcano-system"}, "data": {"key": "value"}}

    async def story() -> None:
        taken: list[ConfigMap | None] = []
        reported = Recorder(kinds.CONFIGMAPS, events(written, *ORDERS[order]))
        informers = Informers(reported, VirtualClock(), Engine(), asyncio.Event())  # type: ignore[arg-type]
        watch = asyncio.ensure_future(informers.watch_configmap("configuration", "volcano-system/conf", taken.append))
        await asyncio.sleep(1)
        watch.cancel()
        assert taken[-1] is not None
        assert taken[-1].data == {"key": "value"}

    run_virtually(story())


@pytest.mark.parametrize("order", ORDERS)
def test_the_controller_knows_queues_and_groups_that_were_made_anew(order: str) -> None:
    async def story() -> None:
        reported = Recorder(volcano.QUEUES, [])
        made = Controller(ControllerSettings(), reported, VirtualClock(), None, asyncio.Event())  # type: ignore[arg-type]
        for event in events(queue("q"), *ORDERS[order]):
            made.queues.on_queue(event)
        for event in events(group("g", minimum=1), *ORDERS[order]):
            made._on_group(event)
        assert "q" in made.queues.queues
        assert "default/g" in made.queues.groups

    run_virtually(story())


def test_a_successor_owes_nothing_to_what_its_predecessor_said() -> None:
    """A queue that was closed and a group that wanted more are not so for those who bear their names now."""

    async def story() -> None:
        closed = Recorder(
            volcano.QUEUES, [*events(queue("q", state="Closed", weight=5), "ADDED 1"), *events(queue("q"), "ADDED 2")]
        )
        found = (await heard(closed)).queues["q"]
        assert (found.state, found.weight, found.uid) == ("Open", 1, "2")
        greedy = group("g", minimum=1, resources={"cpu": "5"})
        greedy["status"]["phase"] = "Running"
        groups = Recorder(volcano.POD_GROUPS, [*events(greedy, "ADDED 1"), *events(group("g", minimum=1), "ADDED 2")])
        job = (await heard(groups)).jobs["default/g"]
        assert job.phase == "Pending"
        assert job.min_resources is None

    run_virtually(story())


class Blindfolded(FaultyCluster):
    """While ``blind``, what a watch would say is lost, no watch is resumed (410) and no list is answered."""

    blind = False

    async def stream(self, path: str, params: Any, *, idle: float) -> Any:
        if self.blind:
            raise ApiError(410, "Expired", "too old resource version")
        answer = await super().stream(path, params, idle=idle)
        chunks = answer.content.iter_any()

        async def seen() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                if self.blind:
                    return
                yield chunk

        answer.content.iter_any = seen
        return answer

    async def request(self, verb: str, path: str, **rest: Any) -> bytes:
        if self.blind and "limit" in (rest.get("params") or {}):
            raise ApiError(0, "Timeout", "no answer")
        return await super().request(verb, path, **rest)


def test_after_a_relist_pods_go_by_the_objects_that_were_made_anew() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2), cluster_kind=Blindfolded) as running:
            cluster = running.cluster
            assert isinstance(cluster, Blindfolded)
            made = {"metadata": {"name": "q"}, "spec": {"weight": 1}}
            first = {"metadata": {"name": "high"}, "value": 5}
            await cluster.create(volcano.QUEUES, made)
            await cluster.create(kinds.PRIORITY_CLASSES, first)
            await create(cluster, group("g", minimum=2, queue="q", priority_class="high"), pod("a", mib=4000, group="g"))

            await running.clock.sleep(1)
            cluster.blind = True
            await cluster.delete(volcano.POD_GROUPS, "g", "default")
            await cluster.delete(volcano.QUEUES, "q")
            await cluster.delete(kinds.PRIORITY_CLASSES, "high")
            await cluster.delete(kinds.NODES, "n1")
            await cluster.delete(kinds.CONFIGMAPS, "volcano-scheduler-configmap", "volcano-system")
            await cluster.create(volcano.QUEUES, made)
            await cluster.create(kinds.PRIORITY_CLASSES, {**first, "value": 7})
            await cluster.put_node(node("n1", cards=2))
            conf = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": CONF}}
            await cluster.create(kinds.CONFIGMAPS, conf, "volcano-system")
            await create(cluster, group("g", minimum=2, queue="q", priority_class="high"), pod("b", mib=4000, group="g"))
            await running.clock.sleep(5)
            cluster.blind = False
            await running.bind_all("a", "b")
            await running.clock.sleep(10)  # the last of the lists
            state = running.scheduler.engine.state
            assert state.jobs["default/g"].priority == 7
            assert state.queues["q"].present
            await running.audit()

    run_virtually(story())
