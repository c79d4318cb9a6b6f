"""A node's agent ends when a part of it ends that nobody else would start again."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kit.scheduler_confs import conf, sharing

from pumice.apps.monitor import daemon as monitor
from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, WatchEvent
from pumice.wire.node_config import parse_node_config
from pumice_lab import node_agent


class Watched:
    """Gives these events, then waits for ever or is refused."""

    def __init__(self, *events: WatchEvent, refused: bool = False) -> None:
        self._events, self._refused = events, refused

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
        for event in self._events:
            yield event
        if self._refused:
            raise ApiError(403, "Forbidden", "configmaps is forbidden")
        await asyncio.Event().wait()


def run(cluster: Watched, tmp_path: Path, stop: asyncio.Event) -> asyncio.Task[None]:
    settings = node_agent.AgentSettings("n1", "127.0.0.1", str(tmp_path), "", str(tmp_path))
    return asyncio.create_task(node_agent.run(settings, cluster=cluster, clock=SystemClock(),  # type: ignore[arg-type]
                                              rng=random.Random(1), stop=stop))  # fmt: skip


@pytest.fixture(autouse=True)
def _idle_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    async def idle(*_: Any, stop: asyncio.Event, **__: Any) -> None:
        await stop.wait()

    monkeypatch.setattr(monitor, "run", idle)
    monkeypatch.setattr(vgpu_plugin, "run", idle)


def test_an_agent_that_may_not_follow_the_configuration_says_so_instead_of_waiting_for_ever(tmp_path):
    async def story() -> None:
        with pytest.raises(ApiError, match="configmaps is forbidden"):
            await asyncio.wait_for(run(Watched(refused=True), tmp_path, asyncio.Event()), 30)

    asyncio.run(story())


def node_config(text: str, event: str = "MODIFIED") -> WatchEvent:
    body = {"metadata": {"name": "volcano-vgpu-node-config"}, "data": {"config.json": text}}
    return WatchEvent(event, json.dumps(body).encode())


def test_a_node_is_shared_as_the_node_config_map_says_from_the_moment_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet would mount it into the plugin's pod, which here is none. What is refused leaves the last one in force."""
    asked: list[tuple[bool, list[Any]]] = []

    async def plugin(settings: vgpu_plugin.Settings, *, stop: asyncio.Event, **_: Any) -> None:
        assert settings.hangup is not None
        while not stop.is_set():
            await settings.hangup.wait()
            settings.hangup.clear()
            entries = parse_node_config(settings.node_config.read_bytes()).of("n1")
            asked.append((True, [(entry.mode, entry.split) for entry in entries]))

    monkeypatch.setattr(vgpu_plugin, "run", plugin)
    events = [WatchEvent("SYNCED", b""), *(
        node_config(text, event) for text, event in [
            ('{"nodeconfig": [{"name": "n1", "devicesplitcount": 7}, {"name": "n2", "operatingmode": "mig"}]}', "ADDED"),
            ("{", "MODIFIED"), ('{"nodeconfig": []}', "MODIFIED"), ('{"nodeconfig": [{"name": "n1"}]}', "DELETED"),
        ]
    )]  # fmt: skip

    class Slowly(Watched):
        async def watch(self, _: Any, namespace: str = "", **how: Any) -> AsyncIterator[WatchEvent]:
            ours = "node-config" in how.get("field_selector", "")
            assert not ours or namespace == "kube-system"
            for event in events if ours else events[:1]:
                yield event
                await asyncio.sleep(0.02)
            await asyncio.Event().wait()

    async def story() -> None:
        stop = asyncio.Event()
        running = run(Slowly(), tmp_path, stop)
        async with asyncio.timeout(30):
            while len(asked) < 2:
                await asyncio.sleep(0.01)
        stop.set()
        running.cancel()

    asyncio.run(story())
    assert [entries for _, entries in asked] == [[("hami-core", 0), ("", 7)], [("hami-core", 0)]]


def test_an_agent_that_is_stopped_ends(tmp_path):
    async def story(turns: int) -> None:
        stop = asyncio.Event()
        running = run(Watched(WatchEvent("SYNCED", b"")), tmp_path, stop)
        for _ in range(turns):
            await asyncio.sleep(0)
        stop.set()
        await asyncio.wait_for(running, 30)

    for turns in range(10):
        asyncio.run(story(turns))


@pytest.mark.parametrize(
    ("conf", "mode"),
    [
        (conf(sharing("AscendMindClusterVNPU")), "mindcluster"),
        (conf(sharing("AscendHAMiVNPU")), "ascend"),
        (conf(sharing("VGPU")), "ascend"),
        ("actions: [", "as before"),
    ],
)
def test_the_plugin_of_npus_goes_with_the_schedulers_configuration(conf: str, mode: str) -> None:
    assert node_agent.npu_mode(conf, "as before") == mode


@pytest.mark.parametrize(("npu", "modes"), [("310P3", ["mindcluster", "ascend"]), ("910B3", ["ascend"])])
def test_a_node_whose_npus_cannot_be_cut_on_demand_keeps_hamis_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, npu: str, modes: list[str]
) -> None:
    """The plugin that goes is given the time to take back what it said."""
    served: list[str] = []
    left: list[str] = []

    def daemon(name: str) -> Any:
        async def run(*_: Any, stop: asyncio.Event, **__: Any) -> None:
            served.append(name)
            await stop.wait()
            await asyncio.sleep(0)
            left.append(name)

        return run

    monkeypatch.setattr(node_agent.ascend_plugin, "run", daemon("ascend"))
    monkeypatch.setattr(node_agent.mindcluster_plugin, "run", daemon("mindcluster"))
    first, second = (json.dumps({"metadata": {"name": "c"}, "data": {"volcano-scheduler.conf": conf(sharing(key))}}).encode()
                     for key in ("AscendMindClusterVNPU", "AscendHAMiVNPU"))  # fmt: skip
    settings = node_agent.AgentSettings("n1", "127.0.0.1", str(tmp_path), "", str(tmp_path), cards=False, npus="/lib", npu=npu)

    class Switched(Watched):
        async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
            yield WatchEvent("ADDED", first)
            while not served:
                await asyncio.sleep(0)
            yield WatchEvent("MODIFIED", second)
            await asyncio.Event().wait()

    cluster: Any = Switched()

    async def story() -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(node_agent.run(settings, cluster=cluster, clock=SystemClock(), rng=random.Random(1),
                                                     stop=stop))  # fmt: skip
        async with asyncio.timeout(30):
            while served != modes:
                await asyncio.sleep(0.01)
        assert left == modes[:-1]
        stop.set()
        await running

    asyncio.run(story())
