"""One node's kubelet twin with its runtime and its sockets, from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal as signals
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice_lab.kubelet.devices.grpc_plugin import PluginServer, ShortPath
from pumice_lab.kubelet.proto import podresources_pb2 as pb
from pumice_lab.kubelet.proto import services
from pumice_lab.kubelet.server import NodeServer
from pumice_lab.kubelet.settings import KubeletSettings
from pumice_lab.kubelet.simulator import KubeletSimulator
from pumice_lab.network.names import PodNames
from pumice_lab.network.pod_network import PodNetwork
from pumice_lab.runtime.process import ProcessRuntime
from pumice_lab.runtime.spec import ContainerSpec, ExecSession, Exit, Listening, Runtime, StartFailed

if TYPE_CHECKING:
    from pumice_lab.kubelet.simulator import KubeletSimulator
    from pumice_lab.kubelet.worker import PodWorker

Lifetime = Callable[[ContainerSpec], tuple[float, int] | None]


def sleeps(spec: ContainerSpec) -> tuple[float, int] | None:
    """``sleep N`` runs for N seconds, ``true`` and ``false`` end at once, ``nosuch`` is not there; others run on."""
    match spec.argv:
        case ("sleep", text) if text.replace(".", "", 1).isdigit():
            return float(text), 0
        case ("true",):
            return 0.0, 0
        case ("false",):
            return 0.0, 1
        case ("nosuch", *_):
            raise StartFailed("StartError", 'exec: "nosuch": executable file not found in $PATH')
    return None


class HollowRuntime(Listening):
    """A container runtime that runs nothing. ``lifetime(spec)`` gives (seconds, exit code), or None for a container that runs
    until it is signalled."""

    isolation = "hollow"
    isolation_note = ""

    def __init__(self, clock: Clock, lifetime: Lifetime = sleeps) -> None:
        super().__init__()
        self.clock, self.lifetime = clock, lifetime
        self.started: list[ContainerSpec] = []
        self._timers: dict[str, asyncio.Task[None]] = {}

    async def start(self, spec: ContainerSpec, on_exit: Callable[[Exit], None]) -> int:
        life = self.lifetime(spec)
        self.started.append(spec)
        self._listeners[spec.id] = on_exit
        if life is not None:
            self._timers[spec.id] = asyncio.create_task(self._end_later(spec.id, *life))
        return len(self.started)

    async def _end_later(self, ident: str, seconds: float, code: int) -> None:
        await self.clock.sleep(seconds)
        self._timers.pop(ident, None)
        self.end(ident, code)

    def end(self, ident: str, code: int, signal: int = 0) -> None:
        """End a container now."""
        timer = self._timers.pop(ident, None)
        if timer is not None:
            timer.cancel()
        listener = self._listeners.pop(ident, None)
        if listener is not None:
            listener(Exit(ident, code, signal))

    async def signal(self, container_id: str, signal: int) -> None:
        if signal in (signals.SIGTERM, signals.SIGKILL, signals.SIGINT):
            self.end(container_id, 128 + signal, signal)

    async def exec(self, container_id: str, argv: tuple[str, ...], *, tty: bool, stdin: bool,
                   env: Mapping[str, str] | None = None) -> ExecSession:
        raise StartFailed("NotFound", "a hollow container has no processes")

    def console(self, container_id: str) -> None:
        return None

    async def close(self) -> None:
        for timer in list(self._timers.values()):
            timer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await timer
        self._timers.clear()
        self._listeners.clear()


class PodResourcesServer:
    """The API of pod resources at ``ROOT/pod-resources/kubelet.sock``. One entry per device id, as the kubelet answers."""

    def __init__(self, simulator: KubeletSimulator) -> None:
        self.simulator = simulator
        self._server: grpc.aio.Server | None = None
        self._short: ShortPath | None = None

    async def start(self) -> None:
        directory = self.simulator.settings.kubelet_dir / "pod-resources"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "kubelet.sock").unlink(missing_ok=True)
        self._short = ShortPath(directory / "kubelet.sock")
        self._server = grpc.aio.server()
        services.serve(self._server, pb, "PodResourcesLister", self)
        self._server.add_insecure_port(self._short.target)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
        if self._short is not None:
            self._short.close()

    async def List(self, request: Any, context: Any) -> Any:
        active = [worker for worker in self.simulator.workers.values() if not worker.over]
        return pb.ListPodResourcesResponse(pod_resources=[self._pod(worker) for worker in active])

    async def GetAllocatableResources(self, request: Any, context: Any) -> Any:
        devices = [self._device(resource, ident)
                   for resource, ids in self.simulator.devices.healthy.items() for ident in self._shuffled(ids)]
        return pb.AllocatableResourcesResponse(devices=devices)

    async def Get(self, request: Any, context: Any) -> Any:
        worker = self.simulator.find(request.pod_namespace, request.pod_name)
        if worker is None or worker.over:
            await context.abort(grpc.StatusCode.UNKNOWN,
                                f"pod {request.pod_name} in namespace {request.pod_namespace} not found")
            raise AssertionError("abort raises")
        return pb.GetPodResourcesResponse(pod_resources=self._pod(worker))

    def _pod(self, worker: PodWorker) -> Any:
        meta = worker.pod["metadata"]
        names = [r.name for r in worker.records if r.kind != "init"]
        return pb.PodResources(name=meta["name"], namespace=meta.get("namespace", ""), containers=[
            pb.ContainerResources(name=name, devices=[
                self._device(resource, ident)
                for resource, allocated in self.simulator.devices.pod_devices.of_container(worker.uid, name).items()
                for ident in self._shuffled(allocated.ids)
            ]) for name in names
        ])  # fmt: skip

    def _device(self, resource: str, ident: str) -> Any:
        device = self.simulator.devices.known.get(resource, {}).get(ident)
        topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=n) for n in device.numa]) if device and device.numa else None
        return pb.ContainerDevices(resource_name=resource, device_ids=[ident], topology=topology)

    def _shuffled(self, ids: Any) -> list[str]:
        out = sorted(ids)
        self.simulator.rng.shuffle(out)
        return out


# -- Everything of a node that others connect to: kubelet.sock, pod resources, and the HTTP server -------------------


@contextlib.asynccontextmanager
async def open_sockets(simulator: KubeletSimulator) -> AsyncIterator[None]:
    """Open all of them; they close in the opposite order. The device checkpoint is read first."""
    simulator.take_over()
    async with contextlib.AsyncExitStack() as stack:
        plugins = PluginServer(simulator.settings.plugin_dir, simulator.devices, simulator.clock)
        await plugins.start()
        stack.push_async_callback(plugins.stop)
        resources = PodResourcesServer(simulator)
        await resources.start()
        stack.push_async_callback(resources.stop)
        server = NodeServer(simulator)
        simulator.port = await server.start()
        stack.push_async_callback(server.stop)
        yield


async def run(settings: KubeletSettings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
              ready: asyncio.Event | None = None, runtime: Runtime | None = None, network: PodNetwork | None = None,
              names: PodNames | None = None) -> None:
    """Run one node until ``stop``. A runtime that is given is shared and stays open; otherwise the twin has its own.
    ``network`` and ``names`` are those that it shares with the other nodes."""
    own: ProcessRuntime | HollowRuntime | None = None
    if runtime is None:
        own = HollowRuntime(clock) if settings.hollow else await ProcessRuntime.launch(
            settings.directory / "containers", data_dir=settings.data_dir)
        runtime = own
    simulator = KubeletSimulator(settings, cluster, clock, rng, settings.runtime(runtime), network, names)
    async with contextlib.AsyncExitStack() as stack:
        if own is not None:
            stack.push_async_callback(own.close)
        if not settings.hollow:

            await stack.enter_async_context(open_sockets(simulator))
        await simulator.run(stop, ready)
