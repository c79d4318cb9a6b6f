"""How the scheduler starts: its configuration file, and the nodes that it is given."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from kit.faulty_cluster import faulty_cluster
from kit.objects import node, pod
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.cli.scheduler import label_pair
from pumice.model.errors import BadInput
from pumice.wire import kinds


async def start(settings: Settings) -> Daemon:
    clock = VirtualClock()
    running = Daemon(await faulty_cluster(clock), clock, settings)
    done, _ = await asyncio.wait({running.task, asyncio.create_task(running.ready.wait())}, timeout=10,
                                 return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
    assert done
    return running


@pytest.mark.parametrize("settings", [Settings(strict=True), Settings(unready_conf=False)])
def test_where_the_file_has_to_be_right_a_broken_one_ends_the_start(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "volcano-scheduler.conf"
    file.write_text("{")

    async def story() -> None:
        running = await start(replace(settings, conf=file))
        with pytest.raises(BadInput, match=r"volcano-scheduler\.conf"):
            await running.task

    run_virtually(story())


def test_a_file_that_is_not_there_is_named_at_the_start() -> None:
    async def story() -> None:
        running = await start(Settings(conf=Path("/nowhere/volcano-scheduler.conf")))
        with pytest.raises(BadInput, match=r"/nowhere/volcano-scheduler\.conf: cannot be read: No such file"):
            await running.task

    run_virtually(story())


def test_a_node_selector_leaves_other_nodes_alone_and_follows_their_labels() -> None:
    async def story() -> None:
        settings = Settings(node_selector=(("zone", "a"), ("pool", "gpu")))
        mine = node("n1", cards=1, mib=1000, labels={"zone": "a"})
        async with daemon(mine, node("n2", cards=1, labels={"zone": "b"}), settings=settings) as running:
            await create(running.cluster, pod("small", mib=1000), pod("big", mib=8000))
            await running.bind_all("small")
            assert (await running.cluster.pods())["small"]["spec"]["nodeName"] == "n1"
            await running.clock.sleep(5)
            assert not await running.bound("big")
            await running.cluster.patch(kinds.NODES, "n2", {"metadata": {"labels": {"pool": "gpu"}}})
            await running.bind_all("big")
            await running.audit()

    run_virtually(story())


def test_a_node_selector_is_written_with_a_colon() -> None:
    assert label_pair("zone:a") == ("zone", "a")
    with pytest.raises(BadInput, match="--node-selector 'zone=a': write key:value"):
        label_pair("zone=a")
