"""The kubelet twin of one node: watches its pods, admits them one at a time, and gives each a worker."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec

from pumice.effects.backoff import Backoff
from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Event
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import NODES, PODS
from pumice.wire.times import seconds
from pumice_lab.kubelet.claims import ClaimManager
from pumice_lab.kubelet.devices import checkpoint
from pumice_lab.kubelet.devices.manager import AllocationRefused, DeviceManager
from pumice_lab.kubelet.devices.plugin import device_limits
from pumice_lab.kubelet.fit import DoesNotFit, check_fit
from pumice_lab.kubelet.node import NodeKeeper
from pumice_lab.kubelet.settings import KubeletSettings
from pumice_lab.kubelet.status import PodFacts, StatusWriter, rejected_status
from pumice_lab.kubelet.worker import NodeTools, PodWorker
from pumice_lab.network.names import PodNames
from pumice_lab.network.pod_network import LoopbackNetwork, PodNetwork
from pumice_lab.runtime.spec import Runtime

log = logging.getLogger("pumice.kubelet")
_OVER = ("Succeeded", "Failed")
_WORKER_RETRY = 5.0
_DELETE_AGAIN = Backoff(0.1, 10.0)
_REFUSED_TEXT = "Allocate failed due to {cause}, which is unexpected"


class KubeletSimulator:
    """One node. ``run`` does everything; the public attributes are for the HTTP server, pod resources and tests."""

    def __init__(self, settings: KubeletSettings, cluster: Cluster, clock: Clock, rng: random.Random,
                 runtime: Runtime, network: PodNetwork | None = None, names: PodNames | None = None) -> None:
        self.settings, self.cluster, self.clock, self.rng, self.runtime = settings, cluster, clock, rng, runtime
        self.devices = DeviceManager(rng, changed=self._devices_changed)
        self.claims = ClaimManager(settings.kubelet_dir, settings.node, cluster, clock)
        self.events = EventRecorder(cluster, clock, "kubelet", log, host=settings.node, counts=True)
        self.writer = StatusWriter(cluster, clock)
        self.port = 0
        self._began = clock.monotonic()
        self.keeper = NodeKeeper(settings, cluster, clock, lambda: self.devices.counts(clock.monotonic()),
                                 lambda: self.port)
        self._network = network or LoopbackNetwork(settings.address)
        self.tools = NodeTools(settings, cluster, clock, runtime, self.devices, self.claims, self.events, self.writer,
                               self._network, names or PodNames())
        self.workers: dict[str, PodWorker] = {}
        self._pods: dict[str, dict[str, Any]] = {}  # uid -> the latest version of every pod of this node
        self._admissions: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.synced = asyncio.Event()

    # -- life -----------------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Read the checkpoint of the last time. Call before the plugin socket opens."""
        directory = self.settings.plugin_dir
        directory.mkdir(parents=True, exist_ok=True)
        for private in (self.settings.pods_dir, self.settings.logs_dir):  # secrets are in there
            private.mkdir(parents=True, exist_ok=True)
            private.chmod(0o700)
        pod_devices, registered = checkpoint.load(directory)
        self.devices.remember(pod_devices, registered, self.clock.monotonic())
        self.claims.load()
        self.devices.save = lambda pod_devices, registered: checkpoint.save(directory, pod_devices, registered)

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None = None) -> None:
        """Until ``stop``: then containers are left to the runtime's owner and nothing more is written."""
        await self.keeper.register()
        loops: list[Awaitable[None]] = [self.keeper.keep_status(), self.keeper.keep_lease(), self._watch_pods(),
                                        self._watch_node(), self._admit_all(), self.events.run()]
        if not self.settings.hollow:
            loops.append(self._keep_claims())
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(loop) for loop in loops]
        tasks.append(asyncio.ensure_future(self._tell_ready(ready)))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stopping.done():
                await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
                for task in [t for t in tasks if t.done()]:
                    tasks.remove(task)
                    task.result()  # a loop that ended by an error ends the twin with it
        finally:
            for task in [stopping, *tasks, *self._tasks]:
                task.cancel()
            await asyncio.gather(stopping, *tasks, *self._tasks, return_exceptions=True)
            await self.writer.close()

    async def _keep_claims(self) -> None:
        await self.synced.wait()
        await self.claims.keep(lambda: {*self._pods})

    async def _tell_ready(self, ready: asyncio.Event | None) -> None:
        await self.synced.wait()
        if ready is not None:
            ready.set()

    # -- what the API server says ---------------------------------------------------------------------------------

    async def _watch_pods(self) -> None:
        async for event in self.cluster.watch(PODS, field_selector=f"spec.nodeName={self.settings.node}"):
            match event.type:
                case "SYNCED":
                    self.synced.set()
                case "DELETED":
                    self._forget(msgspec.json.decode(event.raw))
                case "ADDED" | "MODIFIED":
                    self._see(msgspec.json.decode(event.raw))

    async def _watch_node(self) -> None:
        async for event in self.cluster.watch(NODES, field_selector=f"metadata.name={self.settings.node}"):
            if event.type in ("ADDED", "MODIFIED"):
                self.keeper.seen(msgspec.json.decode(event.raw))

    def _see(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        new = uid not in self._pods
        self._pods[uid] = pod
        if uid in self.workers:
            self.workers[uid].update(pod)
        elif new:
            self._queued.add(uid)
            self._admissions.put_nowait(uid)
        elif pod["metadata"].get("deletionTimestamp") and _phase(pod) in _OVER:
            self._spawn(self._delete(uid))

    def _forget(self, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        self._pods.pop(uid, None)
        self.writer.forget(uid)
        if uid in self.workers:
            self.workers[uid].forget()
        else:
            self._clean(uid)

    # -- admission --------------------------------------------------------------------------------------------------

    async def _admit_all(self) -> None:
        """One pod at a time, in the order in which the bindings arrived: a slow plugin holds up everybody."""
        await self.synced.wait()  # who waits for admission may hold devices since before our restart
        while True:
            uid = await self._admissions.get()
            self._queued.discard(uid)
            pod = self._pods.get(uid)
            if pod is None:
                continue
            deleted = bool(pod["metadata"].get("deletionTimestamp"))
            if _phase(pod) in _OVER or (deleted and not _start_time(pod)):
                if deleted:
                    self._spawn(self._delete(uid))
                continue
            if _start_time(pod):
                self._spawn(self._resume(pod))
            else:
                await self._plugins_back(pod)
                await self._admit(pod)

    async def _plugins_back(self, pod: Mapping[str, Any]) -> None:
        """Soon after a restart, wait for the plugins that were there before it.

        The kubelet rejects a pod that arrives in this window for good. On one machine everything restarts together, and
        a pod that was bound just before would be lost for nothing.
        """
        spec = pod["spec"]
        wanted = {name for c in [*(spec.get("initContainers") or []), *spec["containers"]] for name in device_limits(c)}
        deadline = self._began + self.settings.plugin_patience
        while any(self.devices.returning(name) for name in wanted) and self.clock.monotonic() < deadline:
            await self.clock.sleep(0.05)

    async def _admit(self, pod: dict[str, Any]) -> None:
        uid, now = pod["metadata"]["uid"], self.clock.now()
        try:
            await self.devices.admit(pod, lambda: self._occupying() | self._queued)
            allocated = self.devices.in_use if uid in self.devices.pod_devices.pods else {}
            in_use = {name: len(ids) for name, ids in allocated.items()}
            occupying = self._occupying()
            others = [p for u, p in self._pods.items() if u != uid and u in occupying]
            check_fit(pod, others, self.keeper.allocatable, in_use)
        except AllocationRefused as refused:
            self._reject(pod, "UnexpectedAdmissionError", _REFUSED_TEXT.format(cause=refused), now)
        except DoesNotFit as fit_error:
            self._reject(pod, fit_error.reason, fit_error.text, now)
        else:
            self._run(pod, PodFacts(self.settings.address, self._address(pod), now))

    def _address(self, pod: Mapping[str, Any]) -> str:
        """The pod's own, the one that it had if it was here before; the node's where it shares the node's network."""
        had = str((pod.get("status") or {}).get("podIP") or "")
        own = "" if pod["spec"].get("hostNetwork") else self._network.addresses.keep(pod["metadata"]["uid"], had)
        return own or self.settings.address

    def _occupying(self) -> set[str]:
        """Pods that take room: everything that was admitted and is not over, and what still ends."""
        admitted = {uid for uid, worker in self.workers.items() if not worker.over}
        waiting = {uid for uid, pod in self._pods.items()
                   if uid not in self.workers and _start_time(pod) and _phase(pod) not in _OVER}
        return admitted | waiting

    def _reject(self, pod: dict[str, Any], reason: str, text: str, now: float) -> None:
        log.warning("pod rejected pod=%s/%s reason=%s", pod["metadata"].get("namespace"), pod["metadata"]["name"], reason)
        status = rejected_status(pod, reason, text, now)
        pod["status"] = {**(pod.get("status") or {}), "phase": "Failed"}
        self.events.record(Event.on(pod, "Warning", reason, text, api_version="v1", kind="Pod"))
        self.writer.write(pod, status)

    def _run(self, pod: dict[str, Any], facts: PodFacts) -> PodWorker:
        worker = PodWorker(self.tools, pod, facts)
        self.workers[worker.uid] = worker
        self._spawn(self._work(worker))
        return worker

    async def _work(self, worker: PodWorker) -> None:
        while True:
            try:
                await worker.run()
                break
            except Exception:  # a fault of ours must not leave a pod without anybody who looks after it
                log.exception("pod worker failed, trying again pod=%s", worker.pod["metadata"]["name"])
                await self.clock.sleep(_WORKER_RETRY)
        await self.writer.flush(worker.uid)
        while not worker.terminating:
            await worker.wait_for_deletion()
        if worker.uid in self._pods:
            await self._delete(worker.uid)
        self.workers.pop(worker.uid, None)
        if worker.uid not in self._pods:
            self._clean(worker.uid)

    async def _delete(self, uid: str) -> None:
        """The last word of a deletion: the object goes when its containers are gone."""
        pod = self._pods.get(uid)
        if pod is None:
            return
        meta, tries = pod["metadata"], 0
        while uid in self._pods:
            try:
                await self.cluster.delete(PODS, meta["name"], meta.get("namespace", ""), grace=0, uid=uid)
                return
            except ApiError as error:
                if error.code in (404, 409):
                    return
                log.warning("pod not deleted pod=%s cause=%s", meta["name"], error)
                await self.clock.sleep(_DELETE_AGAIN.pause(tries))
                tries += 1

    def _clean(self, uid: str) -> None:
        self._network.addresses.take_back(uid)
        shutil.rmtree(self.settings.pods_dir / uid, ignore_errors=True)
        for folder in self.settings.logs_dir.glob(f"*_{uid}"):
            shutil.rmtree(folder, ignore_errors=True)

    # -- after a restart --------------------------------------------------------------------------------------------

    async def _resume(self, pod: dict[str, Any]) -> None:
        """A pod that was admitted before this twin started: adopt what runs, restart what does not.

        The kubelet would refuse a pod whose plugin is not back yet. On one machine plugins and pods come up together,
        so the twin waits for the plugin instead.
        """
        uid = pod["metadata"]["uid"]
        start = seconds(pod["status"]["startTime"])
        facts = PodFacts(self.settings.address, self._address(pod), start)
        deadline = self.clock.monotonic() + self.settings.plugin_patience
        wanted = {name for c in pod["spec"]["containers"] for name in device_limits(c)} & set(self.devices.in_use)
        lost = [] if pod["metadata"].get("deletionTimestamp") else sorted(wanted)
        if not self._any_running(pod):
            while any(not self.devices.registered(name) for name in lost) and self.clock.monotonic() < deadline:
                await self.clock.sleep(0.1)
        pod = self._pods.get(uid, pod)
        worker = PodWorker(self.tools, pod, facts)
        worker.restore(self.clock.now())
        self.workers[uid] = worker
        await self._work(worker)

    def _any_running(self, pod: Mapping[str, Any]) -> bool:
        ids = {str(s.get("containerID") or "").removeprefix("pumice://")
               for s in (pod["status"].get("containerStatuses") or ())}
        return bool(ids & self.runtime.running())

    # -- small things -----------------------------------------------------------------------------------------------

    def _devices_changed(self) -> None:
        self.keeper.poke()
        for worker in self.workers.values():
            if worker.uid in self.devices.pod_devices.pods and not worker.over:
                worker.publish()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the kubelet of %s gave up on a pod", self.settings.node, exc_info=error)

    def find(self, namespace: str, name: str) -> PodWorker | None:
        for worker in self.workers.values():
            meta = worker.pod["metadata"]
            if meta["name"] == name and meta.get("namespace") == namespace:
                return worker
        return None

    def pods(self) -> list[dict[str, Any]]:
        return list(self._pods.values())


def _phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _start_time(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("startTime") or "")
