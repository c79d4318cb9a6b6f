"""The device plugin protocol over real sockets: registration, streams, restarts, limits, pod resources."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.kubelet.world import NUMBER

from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.adapters.kubelet.proto import deviceplugin_pb2_grpc as rpc
from pumice.adapters.kubelet.proto import podresources_pb2 as prpb
from pumice.adapters.kubelet.proto import podresources_pb2_grpc as prrpc
from pumice.cluster.kubelet.devices import grpc_plugin
from pumice.cluster.kubelet.devices.grpc_plugin import PluginServer
from pumice.cluster.kubelet.devices.manager import AllocationRefused, DeviceManager
from pumice.cluster.kubelet.devices.sockets import ShortPath
from pumice.ports.clock import SystemClock


class Plugin(rpc.DevicePluginServicer):  # type: ignore[misc]
    """A device plugin as a person would write it with grpcio."""

    def __init__(self, ids: Sequence[str] = ("a", "b"), **options: bool) -> None:
        self.ids, self.options = list(ids), pb.DevicePluginOptions(**options)
        self.streams = 0
        self.stream_ended = asyncio.Event()
        self.pushes: asyncio.Queue[list[str] | None] = asyncio.Queue()
        self.asked: list[Any] = []
        self.breaks = False
        self.server: grpc.aio.Server | None = None

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        return self.options

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.streams += 1
        try:
            ids: list[str] | None = self.ids
            while ids is not None:
                yield pb.ListAndWatchResponse(devices=[pb.Device(ID=i, health="Healthy") for i in ids])
                ids = await self.pushes.get()
        finally:
            self.stream_ended.set()

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        (one,) = request.container_requests
        self.asked.append(one)
        response = pb.ContainerPreferredAllocationResponse(deviceIDs=sorted(one.available_deviceIDs)[: one.allocation_size])
        return pb.PreferredAllocationResponse(container_responses=[response])

    async def Allocate(self, request: Any, context: Any) -> Any:
        if self.breaks:
            return 1 / 0
        (one,) = request.container_requests
        return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(
            envs={"IDS": ",".join(sorted(one.devices_ids))},
            mounts=[pb.Mount(container_path="/usr/local/vgpu", host_path="/srv/vgpu", read_only=True)],
            devices=[pb.DeviceSpec(container_path="/dev/x", host_path="/dev/null", permissions="rw")])])

    async def serve(self, path: Path) -> None:
        self.server = grpc.aio.server()
        rpc.add_DevicePluginServicer_to_server(self, self.server)
        self.server.add_insecure_port(ShortPath(path).target)
        await self.server.start()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(0)


class Kubelet:
    """The plugin side of a kubelet, with real sockets."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "device-plugins"
        self.manager = DeviceManager(random.Random(0), changed=self._changed)
        self.change = asyncio.Event()
        self.server = PluginServer(self.directory, self.manager, SystemClock())
        self.plugins: list[Plugin] = []

    def _changed(self) -> None:
        self.change.set()

    async def plug(self, name: str, plugin: Plugin, resource: str = NUMBER, **request: Any) -> Plugin:
        self.plugins.append(plugin)
        await plugin.serve(self.directory / name)
        await self.register(name, resource, **request)
        return plugin

    async def register(self, name: str, resource: str = NUMBER, **request: Any) -> None:
        async with grpc.aio.insecure_channel(ShortPath(self.directory / "kubelet.sock").target) as channel:
            message = pb.RegisterRequest(**{"version": "v1beta1", "endpoint": name, "resource_name": resource, **request})
            await rpc.RegistrationStub(channel).Register(message)

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not what():
                self.change.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.change.wait(), 0.05)

    async def until_counts(self, *counts: int) -> None:
        await self.until(lambda: self.counts() == counts)

    def counts(self) -> tuple[int, ...]:
        return self.manager.counts(SystemClock().monotonic()).get(NUMBER, ())


@pytest.fixture
def with_kubelet(tmp_path: Path) -> Callable[[Callable[[Kubelet], Coroutine[Any, Any, None]]], None]:
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


WithKubelet = Callable[[Callable[[Kubelet], Coroutine[Any, Any, None]]], None]


def _pod(uid: str, count: int) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {NUMBER: str(count)}}}
    return {"metadata": {"uid": uid, "name": uid}, "spec": {"containers": [container]}}


def test_a_registered_plugin_counts_and_allocates(with_kubelet: WithKubelet) -> None:
    async def work(kubelet: Kubelet) -> None:
        plugin = await kubelet.plug("p.sock", Plugin("abc", get_preferred_allocation_available=True))
        await kubelet.until_counts(3, 3)
        await kubelet.manager.admit(_pod("u", 2), list)
        (answer,) = kubelet.manager.answers("u", "c")
        assert dict(answer.envs) == {"IDS": "a,b"}
        assert (answer.mounts[0].container_path, answer.mounts[0].read_only) == ("/usr/local/vgpu", True)
        assert answer.devices[0].container_path == "/dev/x"
        (asked,) = plugin.asked
        assert (sorted(asked.available_deviceIDs), asked.allocation_size) == (["a", "b", "c"], 2)

    with_kubelet(work)


@pytest.mark.parametrize(("request_", "text"), [
    ({"version": "v1"}, 'requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]'),
    ({"resource_name": "gpu"}, 'the ResourceName "gpu" is invalid'),
])  # fmt: skip
def test_a_wrong_registration_is_refused_in_the_kubelets_words(with_kubelet: WithKubelet, request_: Any, text: str) -> None:
    async def work(kubelet: Kubelet) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await kubelet.register("p.sock", **({"resource": NUMBER} | {
                {"resource_name": "resource"}.get(key, key): value for key, value in request_.items()}))
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNKNOWN, text)

    with_kubelet(work)


def test_a_plugin_that_does_not_serve_yet_is_refused_after_the_dial_time(
        with_kubelet: WithKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_plugin, "DIAL_SECONDS", 0.3)  # ten seconds in the kubelet

    async def work(kubelet: Kubelet) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await kubelet.register("nobody.sock")
        assert refused.value.details() == "failed to dial device plugin: context deadline exceeded"

    with_kubelet(work)


def test_only_the_options_that_the_plugin_answers_count(with_kubelet: WithKubelet) -> None:
    async def work(kubelet: Kubelet) -> None:
        await kubelet.plug("p.sock", Plugin(), options=pb.DevicePluginOptions(
            pre_start_required=True, get_preferred_allocation_available=True))
        options = kubelet.manager.endpoints[NUMBER].options
        assert (options.pre_start, options.preferred) == (False, False)
        await kubelet.plug("q.sock", Plugin(pre_start_required=True), "example.com/other")
        assert kubelet.manager.endpoints["example.com/other"].options.pre_start

    with_kubelet(work)


def test_an_exception_in_a_python_plugin_is_told_as_go_tells_it(with_kubelet: WithKubelet) -> None:
    async def work(kubelet: Kubelet) -> None:
        plugin = await kubelet.plug("p.sock", Plugin())
        await kubelet.until_counts(2, 2)
        plugin.breaks = True
        with pytest.raises(AllocationRefused) as refused:
            await kubelet.manager.admit(_pod("u", 1), list)
        assert "rpc error: code = Unknown desc = " in str(refused.value)
        assert "division by zero" in str(refused.value)

    with_kubelet(work)


def test_a_plugin_that_goes_away_leaves_its_capacity(with_kubelet: WithKubelet) -> None:
    async def work(kubelet: Kubelet) -> None:
        plugin = await kubelet.plug("p.sock", Plugin("abc"))
        await kubelet.until_counts(3, 3)
        await plugin.stop()
        await kubelet.until_counts(3, 0)

    with_kubelet(work)


def test_a_stream_that_the_plugin_ends_is_not_asked_for_again_but_a_new_registration_is_heard(with_kubelet: WithKubelet) -> None:
    async def work(kubelet: Kubelet) -> None:
        plugin = await kubelet.plug("p.sock", Plugin())
        await kubelet.until_counts(2, 2)
        plugin.pushes.put_nowait(None)
        await kubelet.until_counts(2, 0)
        assert plugin.streams == 1
        await kubelet.register("p.sock")
        await kubelet.until_counts(2, 2)

    with_kubelet(work)


def test_when_the_old_of_two_plugins_ends_the_new_ones_stream_closes_too(with_kubelet: WithKubelet) -> None:
    async def work(kubelet: Kubelet) -> None:
        old = await kubelet.plug("old.sock", Plugin("ab"))
        new = await kubelet.plug("new.sock", Plugin("abcd"))
        await kubelet.until_counts(4, 4)
        await old.stop()
        await kubelet.until_counts(4, 0)
        await asyncio.wait_for(new.stream_ended.wait(), 10)
        assert new.streams == 1
        await kubelet.register("new.sock")  # only that repairs it
        await kubelet.until_counts(4, 4)

    with_kubelet(work)


def test_a_list_over_four_mebibytes_ends_the_stream(with_kubelet: WithKubelet) -> None:
    def ids(count: int, length: int) -> list[str]:
        return [f"{i:0{length}d}" for i in range(count)]

    def size(many: list[str]) -> int:
        message = pb.ListAndWatchResponse(devices=[pb.Device(ID=i, health="Healthy") for i in many])
        return int(message.ByteSize())

    fits, too_large = ids(69_905, 47), ids(69_906, 47)  # 60 bytes each
    assert size(fits) <= 4_194_304 < size(too_large)

    async def work(kubelet: Kubelet) -> None:
        plugin = await kubelet.plug("p.sock", Plugin(fits))
        await kubelet.until_counts(69_905, 69_905)
        plugin.pushes.put_nowait(too_large)
        await kubelet.until_counts(69_905, 0)
        await asyncio.wait_for(plugin.stream_ended.wait(), 10)

    with_kubelet(work)


def test_a_start_deletes_every_socket_in_the_folder_and_makes_its_own_anew(with_kubelet: WithKubelet, tmp_path: Path) -> None:
    async def work(kubelet: Kubelet) -> None:
        plugin = await kubelet.plug("p.sock", Plugin())
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
            plugin = await deep.plug("p.sock", Plugin())
            await deep.until_counts(2, 2)
            await plugin.stop()
        finally:
            await deep.server.stop()

    with_kubelet(work)


def test_pod_resources_lists_each_id_of_the_active_pods(tmp_path: Path) -> None:
    from tests.kit.direct_cluster import memory_cluster
    from tests.unit.kubelet.world import FakePlugin, World, devices

    from pumice.cluster.kubelet.podresources import PodResourcesServer

    async def main() -> None:
        clock = SystemClock()
        here = World(await memory_cluster(clock), clock, tmp_path)  # type: ignore[arg-type]
        await here.boot()
        server = PodResourcesServer(here.twin)
        await server.start()
        try:
            here.plug(FakePlugin(), devices("a", "b", "c"))
            await here.pod("p", limits={NUMBER: 2})
            await here.pod("plain")
            await here.pod("done", "true", restartPolicy="Never")
            await here.settle(0.5)
            path = ShortPath(here.settings.kubelet_dir / "pod-resources" / "kubelet.sock")
            async with grpc.aio.insecure_channel(path.target) as channel:
                stub = prrpc.PodResourcesListerStub(channel)
                listed = {p.name: p for p in (await stub.List(prpb.ListPodResourcesRequest())).pod_resources}
                assert set(listed) == {"p", "plain"}
                entries = listed["p"].containers[0].devices
                assert [(e.resource_name, len(e.device_ids)) for e in entries] == [(NUMBER, 1), (NUMBER, 1)]
                every = await stub.GetAllocatableResources(prpb.AllocatableResourcesRequest())
                assert sorted(i for d in every.devices for i in d.device_ids) == ["a", "b", "c"]
                got = await stub.Get(prpb.GetPodResourcesRequest(pod_name="p", pod_namespace="default"))
                assert got.pod_resources.name == "p"
        finally:
            await server.stop()
            await here.shut()
            await here.runtime.close()

    asyncio.run(main())
