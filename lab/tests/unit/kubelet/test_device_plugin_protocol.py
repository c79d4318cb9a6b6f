"""The device plugin protocol over real sockets: what only the twin's inside shows. The rest is in lab/tests/contract/kubelet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from kit.grpc_plugin import ScriptedPlugin, healthy, register
from lab.tests.unit.kubelet.world import NUMBER

from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.ports.clock import SystemClock
from pumice_lab.kubelet.devices.grpc_plugin import PluginServer, ShortPath
from pumice_lab.kubelet.devices.manager import DeviceManager
from pumice_lab.kubelet.proto import services


class Kubelet:
    """The plugin side of a kubelet, with real sockets."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "device-plugins"
        self.change = asyncio.Event()
        self.manager = DeviceManager(random.Random(0), changed=self.change.set)
        self.server = PluginServer(self.directory, self.manager, SystemClock())
        self.plugins: list[ScriptedPlugin] = []

    async def plug(self, name: str, plugin: ScriptedPlugin) -> ScriptedPlugin:
        self.plugins.append(plugin)
        await plugin.serve(self.directory / name)
        await register(self.directory, NUMBER, name)
        return plugin

    async def until_counts(self, *counts: int) -> None:
        async with asyncio.timeout(60):
            while self.manager.counts(SystemClock().monotonic()).get(NUMBER, ()) != counts:
                self.change.clear()
                await self.change.wait()


WithKubelet = Callable[[Callable[[Kubelet], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def with_kubelet(tmp_path: Path) -> WithKubelet:
    def run(work: Callable[[Kubelet], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            kubelet = Kubelet(tmp_path)
            await kubelet.server.start()
            try:
                await work(kubelet)
            finally:
                await kubelet.server.stop()
                for plugin in kubelet.plugins:
                    await plugin.stop()

        asyncio.run(main())

    return run


def test_an_answer_reaches_the_books_with_mounts_and_device_nodes(with_kubelet: WithKubelet) -> None:
    def answer(ids: list[str]) -> Any:
        return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(
            envs={"IDS": ",".join(ids)}, annotations={"k": "v"}, cdi_devices=[pb.CDIDevice(name="nvidia.com/gpu=0")],
            mounts=[pb.Mount(container_path="/usr/local/vgpu", host_path="/srv/vgpu", read_only=True)],
            devices=[pb.DeviceSpec(host_path="/dev/null", permissions="rw")])])

    async def work(kubelet: Kubelet) -> None:
        await kubelet.plug("p.sock", ScriptedPlugin(healthy("a"), answer=answer))
        await kubelet.until_counts(1, 1)
        container = {"name": "c", "resources": {"limits": {NUMBER: "1"}}}
        await kubelet.manager.admit({"metadata": {"uid": "u"}, "spec": {"containers": [container]}}, list)
        (held,) = kubelet.manager.answers("u", "c")
        assert (dict(held.envs), dict(held.annotations), held.cdi_devices) == ({"IDS": "a"}, {"k": "v"}, ("nvidia.com/gpu=0",))
        assert (held.mounts[0].container_path, held.mounts[0].host_path, held.mounts[0].read_only) == (
            "/usr/local/vgpu", "/srv/vgpu", True)
        assert (held.devices[0].container_path, held.devices[0].host_path) == ("/dev/null", "/dev/null")

    with_kubelet(work)


def test_a_plugin_that_does_not_serve_yet_is_refused_after_the_dial_time(with_kubelet: WithKubelet) -> None:
    async def work(kubelet: Kubelet) -> None:
        kubelet.server.dial_seconds = 0.3
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await register(kubelet.directory, NUMBER, "nobody.sock")
        assert refused.value.details() == "failed to dial device plugin: context deadline exceeded"

    with_kubelet(work)


def test_only_the_options_that_the_plugin_answers_count(with_kubelet: WithKubelet) -> None:
    async def work(kubelet: Kubelet) -> None:
        await kubelet.plug("p.sock", ScriptedPlugin(healthy("a")))
        async with grpc.aio.insecure_channel(ShortPath(kubelet.directory / "kubelet.sock").target) as channel:
            claimed = pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
            await services.client(channel, pb, "Registration").Register(pb.RegisterRequest(
                version="v1beta1", endpoint="p.sock", resource_name=NUMBER, options=claimed))
        options = kubelet.manager.endpoints[NUMBER].options
        assert (options.pre_start, options.preferred) == (False, False)
        await kubelet.plug("q.sock", ScriptedPlugin(healthy("a"), pre_start=True, prefers=lambda ids: ids))
        options = kubelet.manager.endpoints[NUMBER].options
        assert (options.pre_start, options.preferred) == (True, True)

    with_kubelet(work)


def test_a_start_deletes_every_socket_in_the_folder_and_makes_its_own_anew(with_kubelet: WithKubelet, tmp_path: Path) -> None:
    async def work(kubelet: Kubelet) -> None:
        plugin = await kubelet.plug("p.sock", ScriptedPlugin(healthy("a", "b")))
        (kubelet.directory / "kept.txt").write_text("no socket")
        await kubelet.until_counts(2, 2)
        await kubelet.server.stop()
        assert (kubelet.directory / "p.sock").exists()
        await asyncio.wait_for(plugin.stream_ended.wait(), 10)
        again = Kubelet(tmp_path)
        await again.server.start()
        try:
            assert sorted(p.name for p in again.directory.iterdir()) == ["kept.txt", "kubelet.sock"]
        finally:
            await again.server.stop()

    with_kubelet(work)


def test_a_folder_with_a_path_longer_than_a_socket_address_works(with_kubelet: WithKubelet, tmp_path: Path) -> None:
    async def work(kubelet: Kubelet) -> None:
        deep = Kubelet(tmp_path / ("d" * 60) / ("e" * 60))
        await deep.server.start()
        try:
            plugin = await deep.plug("p.sock", ScriptedPlugin(healthy("a")))
            await deep.until_counts(1, 1)
            await plugin.stop()
        finally:
            await deep.server.stop()

    with_kubelet(work)
