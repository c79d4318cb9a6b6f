"""Effects on an API server."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.virtual_time import VirtualClock, run_virtually

from pumice.effects.performer import Performer
from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Create, Delete, Event, Patch
from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import CONFIGMAPS, EVENTS

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}}


def played(story: Callable[[FaultyCluster, Performer], Awaitable[Json]]) -> Json:
    async def run() -> Json:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        return await story(cluster, Performer(cluster, EventRecorder(cluster, clock, "tester", logging.getLogger("tester"))))

    return run_virtually(run())


def test_a_patch_with_a_uid_leaves_a_later_object_of_that_name_alone() -> None:
    async def story(cluster: FaultyCluster, performer: Performer) -> Json:
        made = await performer.perform(Create(CONFIGMAPS, MAP))
        assert made is not None
        await performer.perform(Patch(CONFIGMAPS, "default", "m", {"data": {"a": "1"}}, made["metadata"]["uid"]))
        with pytest.raises(ApiError):
            await performer.perform(Patch(CONFIGMAPS, "default", "m", {"data": {"a": "2"}}, "another"))
        return await cluster.get(CONFIGMAPS, "m", "default")

    assert played(story)["data"] == {"a": "1"}


def test_to_delete_what_is_gone_or_another_of_its_name_is_no_error() -> None:
    async def story(cluster: FaultyCluster, performer: Performer) -> Json:
        assert await performer.perform(Delete(CONFIGMAPS, "default", "m")) is None
        await performer.perform(Create(CONFIGMAPS, MAP))
        assert await performer.perform(Delete(CONFIGMAPS, "default", "m", "another")) is None
        return await cluster.get(CONFIGMAPS, "m", "default")

    assert played(story)["metadata"]["name"] == "m"


def test_an_event_is_written_by_the_recorder() -> None:
    async def story(cluster: FaultyCluster, performer: Performer) -> Json:
        await performer.perform(Event.on(MAP, "Normal", "Seen", "it is there"))
        return await cluster.list(EVENTS)

    assert [each["reason"] for each in played(story)["items"]] == ["Seen"]
