"""Bring the parts of a cluster up together, and down again.

control plane -> first objects -> Kubernetes controllers (embedded only) -> scheduler, controller -> nodes: kubelet twin, and
an agent with device plugin and monitor. Everything lives in this process, except the real control plane and, with several
nodes, the agents (one process meets one machine).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import logging
import os
import random
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from pumice.adapters.kube import KubeClient
from pumice.adapters.kube.config import load_kubeconfig
from pumice.adapters.native import vgpu_library
from pumice.apps.scheduler import daemon as scheduler
from pumice.effects.tasks import run_until
from pumice.model.errors import Unavailable
from pumice.ports.clock import Clock, SystemClock
from pumice.wire.kinds import NODES
from pumice.wire.names import GPU_NUMBER, SCHEDULER_NAME, SYSTEM_NAMESPACE, VGPU_NUMBER
from pumice.wire.objects import Node, decode
from pumice_jobs.admission.rules import DEFAULT_PATHS, RULES, SHARES_TO_CLAIMS
from pumice_jobs.apps.controller import daemon as controller
from pumice_jobs.apps.webhook import daemon as webhook
from pumice_jobs.apps.webhook.registering import Place, take_back
from pumice_lab import clusterd, first_objects, kube_control_plane, node_agent
from pumice_lab import machine as machines
from pumice_lab.control_plane import ControlPlane, start_embedded, start_kube, usual_port
from pumice_lab.controllers.manager import ControllersSettings
from pumice_lab.controllers.manager import run as run_controllers
from pumice_lab.datadir import DataDir
from pumice_lab.emulation import around, as_found, container_env, machine_of
from pumice_lab.free_ports import port_or_free
from pumice_lab.kubelet.run import run as run_kubelet
from pumice_lab.kubelet.settings import KubeletSettings, ServerTls
from pumice_lab.network.names import PodNames
from pumice_lab.network.pod_network import RoutedNetwork, choose_network
from pumice_lab.node_agent import supervised
from pumice_lab.pki import Pki, ensure_pki, issue
from pumice_lab.service_proxy import ServiceProxy
from pumice_lab.spec import ClusterSpec, NodeSpec
from pumice_lab.web_page import WebPage

log = logging.getLogger("pumice.cluster")

READY_SECONDS = 45.0
LONGEST_SOCKET = len("/kubelet/device-plugins/nvidia-vgpu-memory-percentage.sock")


class Cluster:
    """One cluster of this machine. ``facts`` is what ``pumice status`` reads from ``D/cluster.json``."""

    def __init__(self, spec: ClusterSpec, data: DataDir, *, clock: Clock | None = None,
                 rng: random.Random | None = None) -> None:
        self.spec, self.data = spec, data
        self.clock: Clock = clock or SystemClock()
        self.rng = rng or random.Random()
        self.facts: dict[str, object] = {}
        self._plane: ControlPlane | None = None
        self._pki: Pki | None = None
        self._network: RoutedNetwork | None = None
        self._names = PodNames()
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._children: list[asyncio.subprocess.Process] = []
        self._clients = contextlib.AsyncExitStack()

    async def start(self, stop: asyncio.Event) -> None:
        """Return when every node's cards can be booked. ``stop`` set meanwhile ends the wait. Raises PumiceError."""
        self.spec = as_found(self.spec, self.data)
        pki = self._pki = self._certificates()
        self._plane = await self._control_plane(pki)
        kube_control_plane.kubeconfig(pki, self._plane.server, self.data.kubeconfig)
        kube = await self._client()
        await first_objects.ensure(kube, self.spec)
        if self.spec.control_plane == "embedded":
            roots = tuple(self.data.node(node.name) / "root" for node in self.spec.nodes)
            self._daemon("controllers", lambda: run_controllers(
                ControllersSettings(pki.ca, roots), cluster=kube, clock=self.clock, rng=self.rng, stop=self._stop))  # fmt: skip
        if self.spec.bare:
            self._default_scheduler(kube)
        else:
            self._own_daemons(kube)
        await self._pod_network(kube)
        nodes_ready = [await self._node(index, node) for index, node in enumerate(self.spec.nodes, start=1)]
        self._describe()
        await self._until_ready(kube, nodes_ready, stop)
        self.facts["ready"] = True
        self.data.write_facts(self.facts)

    async def stop(self) -> None:
        """Stop in the reverse order: daemons, agents, control plane. What was acknowledged is on disk."""
        self._stop.set()
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=5)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for child in self._children:
            try:
                await asyncio.wait_for(child.wait(), 5)
            except TimeoutError:
                child.kill()
                await child.wait()
        await self._clients.aclose()
        if self._network is not None:
            await self._network.close()
        if self._plane is not None:
            await self._plane.stop()
        self.facts.pop("pid", None)
        if self.facts:
            self.data.write_facts(self.facts)

    # -- parts ----------------------------------------------------------------------------------------------------

    def _certificates(self) -> Pki:
        addresses = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
                     "10.96.0.1", self.spec.address]  # fmt: skip
        return ensure_pki(self.data.pki, sorted(set(addresses)), _utc(self.clock))

    async def _control_plane(self, pki: Pki) -> ControlPlane:
        port = usual_port(self.data, self.spec.port, self.spec.address)
        tokens = [(node.name, self._kubelet_token(node.name)) for node in self.spec.nodes]
        if self.spec.control_plane == "kube":
            return await start_kube(self.data, pki, address=self.spec.address, port=port, clock=self.clock,
                                    kubelet_tokens=tokens)
        return await start_embedded(self.data, pki, address=self.spec.address, port=port, clock=self.clock, rng=self.rng,
                                    kubelet_tokens=tokens)

    async def _client(self, token: str = "") -> KubeClient:
        access = load_kubeconfig(self.data.kubeconfig)
        if token:
            access = type(access)(access.server, access.ssl, lambda: token, access.server_name)
        return await self._clients.enter_async_context(KubeClient(access, clock=self.clock, rng=self.rng))

    def _kubelet_token(self, node: str) -> str:
        assert self._pki is not None
        return hashlib.sha256(f"{self._pki.admin_token}/{node}".encode()).hexdigest()

    def _default_scheduler(self, kube: KubeClient) -> None:
        """Run a scheduler in kube-scheduler's place: it places the pods of our own Deployments, and touches no card."""
        settings = scheduler.Settings(listen=f"{self.data.address(0)}:0", scheduler_names=("default-scheduler",), configmap="",
                                      group_writes=False)
        queues = controller.Settings(listen=f"{self.data.address(0)}:0", bare_pod_groups=False, jobs=False,
                                     share_hours=False)  # fmt: skip
        self._daemon("default scheduler", lambda: scheduler.run(settings, cluster=kube, clock=self.clock, rng=self.rng,
                                                                stop=self._stop))  # fmt: skip
        self._daemon("queues", lambda: controller.run(queues, cluster=kube, clock=self.clock, rng=self.rng,
                                                      stop=self._stop))  # fmt: skip

    def _own_daemons(self, kube: KubeClient) -> None:
        address = self.data.address(0)
        port = port_or_free(address, 8080)
        self.facts["scheduler"] = f"{address}:{port}"
        # Nobody else would place the pods that name no scheduler.
        names = (SCHEDULER_NAME, "default-scheduler")
        settings = scheduler.Settings(listen=f"{address}:{port}", scheduler_names=names, names_groups=True)
        self._daemon("scheduler", lambda: scheduler.run(settings, cluster=kube, clock=self.clock, rng=self.rng,
                                                        stop=self._stop))  # fmt: skip
        pages = controller.Settings(listen=f"{address}:{port_or_free(address, 8081)}",
                                    scheduler_names=settings.scheduler_names,
                                    share_claims=any(path in SHARES_TO_CLAIMS for path in self.spec.admission or ()))
        self._daemon("controller", lambda: controller.run(pages, cluster=kube, clock=self.clock, rng=self.rng,
                                                          stop=self._stop))  # fmt: skip
        self._admission(kube, address)
        page = WebPage(self.data, names)
        if page.listen():
            self.facts["web"] = page.where
            self._daemon("web page", lambda: page.run(self._stop))
        if any(node.npus for node in self.spec.nodes):
            self._daemon("clusterd", lambda: clusterd.run(kube, self.clock, self._stop))

    def _admission(self, kube: KubeClient, address: str) -> None:
        """Run the webhooks that a chart of Volcano registers by default, where the cluster's file says nothing else."""
        paths = DEFAULT_PATHS if self.spec.admission is None else self.spec.admission
        port = port_or_free(address, 8443)
        place = Place(namespace=SYSTEM_NAMESPACE, url=f"https://{address}:{port}")
        settings = webhook.Settings(paths=paths, listen=f"{address}:{port}", health=f"{address}:0", place=place)

        async def decide() -> None:
            await take_back(kube, [rule for rule in RULES if rule.path not in paths])
            await webhook.run(settings, cluster=kube, clock=self.clock, stop=self._stop)

        self._daemon("webhook", decide)

    async def _pod_network(self, kube: KubeClient) -> None:
        assert self._plane is not None
        self._network, self.facts["pod_network"] = await choose_network(self.spec.pod_network, str(self.data.root))
        if network := self._network:
            server = self._plane.server.removeprefix("https://")
            self._daemon("relay of the pods' network", lambda: run_until(self._stop, network.serve(server)))
        self._daemon("services", lambda: run_until(
            self._stop, ServiceProxy(kube, self.clock, self.rng, self._names, self._network).run()))

    async def _node(self, index: int, node: NodeSpec) -> asyncio.Event:
        """Start one node; the event says that its cards are known."""
        assert self._pki is not None
        assert self._plane is not None
        directory, address = self.data.node(node.name), self.data.address(index)
        directory.mkdir(parents=True, exist_ok=True)
        machine = machine_of(node, directory / "machine")
        kube = await self._client(self._kubelet_token(node.name))
        certificate, key = issue(self._pki, f"kubelet-{node.name}", [address, node.name], _utc(self.clock))
        host, _, port = self._plane.server.removeprefix("https://").rpartition(":")
        emulated = node.has_cards and not node.real
        simulator = KubeletSettings(
            node=node.name, directory=directory, data_dir=self.data.root, address=address, cpu=node.cpu,
            memory=node.memory, pods=node.pods, container_env=container_env(machine),
            host_paths={"/usr/local/vgpu": str(directory / "vgpu"), "/tmp/vgpulock": str(directory / "vgpu" / "lock"),
                        "/var/lib/kubelet": str(directory / "kubelet"), "/var/run/cdi": str(directory / "cdi")},
            api_host=host, api_port=int(port), ca_certificate=self._pki.ca,
            tls=ServerTls(certificate, key, self._pki.ca),
            pumice_images=self.spec.pumice_images, device_files=not emulated,
            runtime=partial(around, machine=machine, cards=emulated, npus=bool(node.npus)),
            labels={**({"ascend": "on"} if node.npus else {}), **dict(node.labels)},
            socket_root=self._short_way(directory))  # fmt: skip
        self._daemon(f"kubelet {node.name}", lambda: run_kubelet(simulator, cluster=kube, clock=self.clock, rng=self.rng,
                                                                 stop=self._stop, network=self._network,
                                                                 names=self._names))  # fmt: skip
        ready = asyncio.Event()
        if not (node.has_cards or node.npus) or self.spec.bare:
            ready.set()
            return ready
        monitor_port = port_or_free(address, 9394)
        library = vgpu_library()
        agent = node_agent.AgentSettings(
            node=node.name, address=address, directory=str(directory), kubeconfig=str(self.data.kubeconfig),
            plugin_dir=str(simulator.plugin_dir), machine=machine, nvml="" if node.real else str(machines.library_dir()),
            library=str(library) if library.is_file() else "", monitor_port=monitor_port, cards=node.has_cards,
            npus=str(machines.library_dir()) if node.npus else "", npu=node.npu,
            npu_port=port_or_free(address, 9395), npu_claims_port=port_or_free(address, 9396), sharing=node.sharing)  # fmt: skip
        if node.has_cards:
            monitors = self.facts.setdefault("monitors", {})
            assert isinstance(monitors, dict)
            monitors[node.name] = f"{address}:{monitor_port}"
        if len(self.spec.nodes) == 1:
            admin = await self._client()
            self._daemon(f"agent {node.name}", lambda: node_agent.run(agent, cluster=admin, clock=self.clock,
                                                                      rng=self.rng, stop=self._stop, ready=ready))
        else:
            self._daemon(f"agent {node.name}", lambda: self._agent_process(agent, ready))
        return ready

    def _short_way(self, directory: Path) -> Path:
        """The same folder by a path that leaves room for sockets below it, without making anything outside the data dir."""
        if len(str(directory)) + LONGEST_SOCKET <= 107:
            return directory
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._clients.callback(os.close, descriptor)
        return Path(f"/proc/{os.getpid()}/fd/{descriptor}")

    async def _agent_process(self, agent: node_agent.AgentSettings, ready: asyncio.Event) -> None:
        with open(self.data.logs / f"agent-{agent.node}.log", "ab") as log_file:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "pumice_lab.node_agent", str(node_agent.settings_file(agent)),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log_file)  # it ends with its stdin
        self._children.append(child)
        if self._stop.is_set():  # asked to stop while it started: nobody else would tell it
            child.terminate()
        assert child.stdout is not None
        if await child.stdout.readline():
            ready.set()
        await child.wait()
        self._children.remove(child)
        if not self._stop.is_set():
            raise Unavailable(f"the agent of {agent.node} ended; see {self.data.logs / f'agent-{agent.node}.log'}")

    def _daemon(self, name: str, start: Callable[[], Awaitable[None]]) -> None:
        watched = supervised(name, start, stop=self._stop, clock=self.clock, log=log)
        self._tasks.append(asyncio.create_task(watched, name=name))

    # -- readiness and what is told about it ----------------------------------------------------------------------

    async def _until_ready(self, kube: KubeClient, nodes_ready: list[asyncio.Event], stop: asyncio.Event) -> None:
        async def all_known() -> None:
            await asyncio.gather(self._cards_known(kube), *(event.wait() for event in nodes_ready))

        known, stopped = asyncio.create_task(all_known()), asyncio.create_task(_set(stop))
        done, late = await asyncio.wait({known, stopped}, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        if not done:
            raise Unavailable(f"the nodes were not ready within {READY_SECONDS:.0f} s; see {self.data.logs / 'up.log'}")
        for task in done:
            task.result()

    async def _cards_known(self, kube: KubeClient) -> None:
        """Wait until each node with cards shows them, be they served or not."""
        missing = {node.name for node in self.spec.nodes if node.has_cards and not self.spec.bare}
        if not missing:
            return
        async for event in kube.watch(NODES):
            if event.type in ("ADDED", "MODIFIED"):
                node = decode(Node, event.raw)
                if any(str(node.status.capacity.get(name, 0)) != "0" for name in (VGPU_NUMBER, GPU_NUMBER)):
                    missing.discard(node.metadata.name)
            if not missing:
                return

    def _describe(self) -> None:
        assert self._plane is not None
        self.facts |= {
            "pid": os.getpid(), "server": self._plane.server, "port": int(self._plane.server.rpartition(":")[2]),
            "control_plane": self.spec.control_plane, "ready": False, "summary": self.spec.summary,
        }  # fmt: skip
        self.data.write_facts(self.facts)


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _utc(clock: Clock) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.now(), datetime.UTC)
