"""One pod's life on the node: volumes, containers in order, restarts, probes, the end. One task per pod."""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid as uuids
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Event, Severity
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice_lab.kubelet.assembly import Assembly
from pumice_lab.kubelet.claims import ClaimManager, NotPrepared
from pumice_lab.kubelet.command import hostname
from pumice_lab.kubelet.devices.manager import DeviceManager
from pumice_lab.kubelet.devices.plugin import PluginError
from pumice_lab.kubelet.environment import ConfigMissing
from pumice_lab.kubelet.probes import PodHealth, make_probe
from pumice_lab.kubelet.records import Ended, Record, guests_of, next_step, records_of, restore, start_guests
from pumice_lab.kubelet.settings import KubeletSettings
from pumice_lab.kubelet.status import PodFacts, StatusWriter, pod_status
from pumice_lab.kubelet.volumes import VolumeNotReady
from pumice_lab.network.names import PodNames
from pumice_lab.network.pod_network import PodNetwork
from pumice_lab.runtime.spec import Exit, Runtime, StartFailed

Json = Mapping[str, Any]
VOLUME_RETRY = 2.0
VOLUME_REFRESH = 60.0  # kubelet's syncFrequency: how soon a changed ConfigMap shows in a mounted volume
DEFAULT_GRACE = 30.0
HOOK_SECONDS = 120.0


@dataclass(slots=True)
class NodeTools:
    """Shared by all pod workers of a node."""

    settings: KubeletSettings
    cluster: Cluster
    clock: Clock
    runtime: Runtime
    devices: DeviceManager
    claims: ClaimManager
    events: EventRecorder
    writer: StatusWriter
    network: PodNetwork
    names: PodNames


class PodWorker:
    """Made at admission. ``update`` tells a new version of the pod, ``forget`` that it is gone from the API."""

    def __init__(self, tools: NodeTools, pod: dict[str, Any], facts: PodFacts) -> None:
        self.tools, self.pod, self.facts = tools, pod, facts
        self.uid: str = pod["metadata"]["uid"]
        self.records = records_of(pod)
        self.over = ""
        self._guests: list[Record] = []  # ephemeral containers: nothing follows from them
        self._by_name = {record.name: record for record in self.records}
        self._specs = {c["name"]: c for c in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]}
        self._let_guests_in()
        self._gone = False
        self._wake = asyncio.Event()
        self._assembly = Assembly(tools.settings, tools.cluster, tools.clock, tools.network, tools.names, pod, facts)
        self._health = PodHealth(tools.runtime, tools.clock, facts.pod_ip, self._wake.set, self._event)
        self._reason = self._message = ""

    # -- what others tell ---------------------------------------------------------------------------------------

    def update(self, pod: dict[str, Any]) -> None:
        self.pod = pod
        self._let_guests_in()
        self._wake.set()

    def _let_guests_in(self) -> None:
        for guest in guests_of(self.pod, self._by_name):
            self._guests.append(guest)
            self._by_name[guest.name] = guest
            self._specs[guest.name] = next(c for c in self.pod["spec"]["ephemeralContainers"] if c["name"] == guest.name)

    def forget(self) -> None:
        """The object is gone (forced deletion): kill and write nothing."""
        self._gone = True
        self._wake.set()

    async def wait_for_deletion(self) -> None:
        while not self.terminating:
            self._wake.clear()
            await self._wake.wait()

    def restore(self, now: float) -> None:
        """Take over what an earlier twin wrote: adopt containers that still run, count the others as lost."""
        for record in (*self.records, *self._guests):
            restore(record, self.pod, now, running=self._adopts(record))
            self._health.start(record, self._specs[record.name])

    def _adopts(self, record: Record) -> Callable[[str], bool]:
        return lambda ident: self.tools.runtime.adopt(ident, lambda ended: self._on_exit(record, ended))

    def container_id(self, name: str) -> str:
        record = self._by_name.get(name)
        return record.container_id if record and record.state == "running" else ""

    def container(self, name: str) -> Json:
        """The container's part of the pod's spec."""
        spec: Json = self._specs[name]
        return spec

    def container_names(self) -> list[str]:
        return list(self._by_name)

    async def way_in(self) -> tuple[socket.socket, str]:
        """One that reaches what the pod's programs listen on, and the address to use. Raises OSError."""
        return await self.tools.network.way_in(self.uid, self.facts.pod_ip)

    def log_file(self, name: str, *, previous: bool = False) -> Path | None:
        """The log of the present or the previous run; None when there was none."""
        record = self._by_name.get(name)
        if record is None or not record.ever_ran:
            return None
        run = record.restarts - (1 if previous else 0)
        if record.state == "waiting" and not previous:
            run = record.restarts
        return self._assembly.log_path(name, run) if run >= 0 else None

    def is_live(self, name: str) -> bool:
        record = self._by_name.get(name)
        return record is not None and record.state == "running"

    @property
    def terminating(self) -> bool:
        return self._gone or bool(self.pod["metadata"].get("deletionTimestamp"))

    # -- life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            if not self.terminating:
                await self._set_up()
            while not self.terminating and not self.over:
                await self._step()
            if self.terminating:
                await self._terminate()
            self.tools.names.remove(self.uid)
            await self.tools.network.detach(self.uid)
        finally:
            self._health.stop_all()

    async def _set_up(self) -> None:
        self.tools.names.add(self.pod, hostname(self.pod), self.facts.pod_ip)
        while not self.terminating:
            try:
                await self._assembly.volumes.set_up()
                if not self.tools.settings.hollow:
                    await self.tools.claims.prepare(self.pod)
            except (VolumeNotReady, NotPrepared) as error:
                reason = "FailedMount" if isinstance(error, VolumeNotReady) else "FailedPrepareDynamicResources"
                self._event("Warning", reason, str(error))
                self.publish()
                await self._wait(self.tools.clock.now() + VOLUME_RETRY)
            else:
                return

    async def _step(self) -> None:
        now = self.tools.clock.now()
        deadline = self._active_deadline()
        if deadline is not None and now >= deadline:
            await self._exceed_deadline()
            return
        self._wake.clear()
        step = next_step(self.records, self._policy, now)
        if not step.done:
            start_guests(step, self._guests, now)
        step.stop += self._health.take_restarts() & {r.name for r in self.records if r.state == "running"}
        for name in step.backing_off:
            self._show_back_off(name)
        for name in step.stop:
            await self._stop([name], self._grace(), "Killing", "Stopping container {name}")
        for name in step.start:
            await self._start(name)
        if step.done:
            await self._finish(step.done)
        self.publish()
        if step.start or step.stop or step.done:
            return  # look again at once: starting one container may allow the next
        refresh = now + VOLUME_REFRESH if self._assembly.volumes.refreshable else None
        times = [t for t in (step.wake_at, deadline, refresh) if t is not None]
        await self._wait(min(times) if times else None)
        if refresh is not None and self.tools.clock.now() >= refresh:
            await self._assembly.volumes.refresh(self.pod)

    async def _finish(self, phase: str) -> None:
        """Its claims are unprepared before its end is shown: a scheduler may give their devices to another pod at once."""
        await self.tools.claims.unprepare(self.uid)
        self.over = phase
        self._wake.set()

    async def _exceed_deadline(self) -> None:
        self._event("Normal", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        await self._stop_all(self._grace())
        self._reason, self._message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
        await self._finish("Failed")
        self.publish()

    # -- starting a container -------------------------------------------------------------------------------------

    async def _start(self, name: str) -> None:
        record, container, tools = self._by_name[name], self._specs[name], self.tools
        ident = uuids.uuid4().hex
        try:
            await tools.devices.pre_start(self.uid, name)
            spec = await self._assembly.spec(ident, self.pod, container, record.restarts + 1 if record.ever_ran else 0,
                                             [*tools.devices.answers(self.uid, name), *tools.claims.answers(self.pod, container)],
                                             tools.runtime.isolation in ("mount", "user"))
            await tools.runtime.start(spec, lambda ended: self._on_exit(record, ended))
        except (ConfigMissing, VolumeNotReady, PluginError, OSError) as error:
            text = str(error)
            if isinstance(error, PluginError):
                text = f"device plugin PreStartContainer rpc failed with err: {text}"
            record.on_not_created("CreateContainerConfigError", text, tools.clock.now())
            self._event("Warning", "Failed", f"Error: {text}", name)
            return
        except StartFailed as error:
            self._start_failed(record, ident, error)
            return
        probed = any(container.get(kind) for kind in ("startupProbe", "readinessProbe"))
        record.on_started(ident, tools.clock.now(), probed=probed)
        self._event("Normal", "Created", f"Created container: {name}", name)
        self._event("Normal", "Started", f"Started container {name}", name)
        if tools.runtime.isolation == "none":
            self._event("Warning", "NoMountNamespace", "mount namespaces are refused on this machine "
                        f"({tools.runtime.isolation_note}): the container gets LD_PRELOAD and host paths instead, "
                        "and no other pod has a name in it", name)
        await self._post_start(record, container)
        self._health.start(record, container)

    async def _post_start(self, record: Record, container: Json) -> None:
        """A hook that fails ends the container, as in Kubernetes; it then restarts by the pod's policy."""
        hook = (container.get("lifecycle") or {}).get("postStart") or {}
        if sleep := (hook.get("sleep") or {}).get("seconds"):
            await self.tools.clock.sleep(float(sleep))
        elif hook:
            attempt = make_probe({**hook, "timeoutSeconds": HOOK_SECONDS}, container, self.facts.pod_ip,
                                 self.tools.runtime, record.container_id)
            if text := await attempt():
                self._event("Warning", "FailedPostStartHook", f"PostStartHook failed: {text}", record.name)
                await self.tools.runtime.signal(record.container_id, signal.SIGKILL)

    def _start_failed(self, record: Record, ident: str, error: StartFailed) -> None:
        now = self.tools.clock.now()
        self._event("Warning", "Failed" if error.transient else error.reason, f"Error: {error.message}", record.name)
        if error.transient:
            record.on_not_created(error.reason, error.message, now)
            return
        if record.ever_ran:
            record.restarts += 1
        record.container_id = ident
        record.on_ended(Ended(128, error.reason, error.message, finished_at=now, container_id=ident))

    # -- a container's end ------------------------------------------------------------------------------------------

    def _on_exit(self, record: Record, ended: Exit) -> None:
        if record.container_id and record.container_id != ended.id:
            return
        self._health.stop(record.name)
        reason = "Completed" if ended.code == 0 else "Error"
        record.container_id = ended.id
        record.on_ended(Ended(ended.code, reason, signal=int(ended.signal), started_at=record.started_at,
                              finished_at=self.tools.clock.now(), container_id=ended.id))
        self._wake.set()

    def _show_back_off(self, name: str) -> None:
        meta = self.pod["metadata"]
        if self._by_name[name].wait_for_restart(f"{meta['name']}_{meta.get('namespace', '')}({self.uid})"):
            self._event("Warning", "BackOff", f"Back-off restarting failed container {name} in pod "
                        f"{meta['name']}_{meta.get('namespace', '')}({self.uid})", name)

    async def _stop(self, names: list[str], grace: float, reason: str, text: str) -> None:
        """preStop, TERM, and KILL after ``grace`` seconds, all of ``names`` side by side."""
        running = [self._by_name[n] for n in names if self._by_name[n].state == "running"]
        for record in running:
            self._health.stop(record.name)
            self._event("Normal", reason, text.format(name=record.name), record.name)
        if grace > 0:
            await asyncio.gather(*(self._pre_stop(record, grace) for record in running))
            for record in running:
                if record.state == "running":
                    await self.tools.runtime.signal(record.container_id, signal.SIGTERM)
        deadline = self.tools.clock.now() + grace
        while any(r.state == "running" for r in running):
            if self._gone or self.tools.clock.now() >= deadline:
                for record in running:
                    if record.state == "running":
                        await self.tools.runtime.signal(record.container_id, signal.SIGKILL)
                await self._wait(None if self._gone else self.tools.clock.now() + 1.0)
                continue
            await self._wait(deadline)
            if self.terminating:  # a second deletion may shorten the grace period
                deadline = min(deadline, self.tools.clock.now() + self._grace()) if self._grace() < grace else deadline

    async def _pre_stop(self, record: Record, grace: float) -> None:
        hook = ((self._specs[record.name].get("lifecycle") or {}).get("preStop")) or {}
        if sleep := (hook.get("sleep") or {}).get("seconds"):
            await self.tools.clock.sleep(min(float(sleep), grace))
        elif hook:
            container = self._specs[record.name]
            attempt = make_probe({**hook, "timeoutSeconds": grace}, container, self.facts.pod_ip, self.tools.runtime,
                                 record.container_id)
            if text := await attempt():
                self._event("Warning", "FailedPreStopHook", f"PreStopHook failed: {text}", record.name)

    async def _stop_all(self, grace: float) -> None:
        """Containers first, then the sidecars, within one grace period."""
        began = self.tools.clock.now()
        for sidecars in (False, True):
            running = [r.name for r in (*self.records, *self._guests)
                       if r.state == "running" and (r.kind == "sidecar") == sidecars]  # fmt: skip
            if running:
                left = max(0.0, grace - (self.tools.clock.now() - began))
                await self._stop(running, left, "Killing", "Stopping container {name}")

    async def _terminate(self) -> None:
        await self._stop_all(0.0 if self._gone else self._grace())
        if not self.over:
            apps = [r for r in self.records if r.kind == "app"]
            for record in self.records:
                if record.state == "waiting" and record.last is not None:
                    record.state, record.ended, record.last = "terminated", record.last, None
            self.over = "Failed" if any(not app.succeeded for app in apps) else "Succeeded"
        await self.tools.claims.unprepare(self.uid)
        if not self._gone:
            self.publish()
        await asyncio.to_thread(self._assembly.volumes.remove)

    # -- small things -----------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Tell the API server how things stand; the writer drops what it has written already."""
        if self._gone:
            return
        health = {r.name: self.tools.devices.health(self.uid, r.name) for r in self.records}
        status = pod_status(self.pod, self.records, self.facts, self.tools.clock.now(), health=health, guests=self._guests,
                            over=self.over, reason=self._reason, message=self._message)
        self.tools.writer.write(self.pod, status)

    @property
    def _policy(self) -> str:
        return str(self.pod["spec"].get("restartPolicy") or "Always")

    def _grace(self) -> float:
        meta, spec = self.pod["metadata"], self.pod["spec"]
        if meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds") is not None:
            return float(meta["deletionGracePeriodSeconds"])
        seconds = spec.get("terminationGracePeriodSeconds")
        return DEFAULT_GRACE if seconds is None else float(seconds)

    def _active_deadline(self) -> float | None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        return None if seconds is None else self.facts.start_time + float(seconds)

    def _event(self, kind: Severity, reason: str, text: str, container: str = "") -> None:
        record = self._by_name.get(container)
        lists = {"app": "containers", "ephemeral": "ephemeralContainers"}
        where = lists.get(record.kind, "initContainers") if record else "containers"
        path = f"spec.{where}{{{container}}}" if container else ""
        self.tools.events.record(Event.on(self.pod, kind, reason, text, api_version="v1", kind="Pod", field_path=path))

    async def _wait(self, until: float | None) -> None:
        """Until something happens or the moment ``until`` (Unix seconds)."""
        if self._wake.is_set():
            self._wake.clear()
            return
        waiters: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._wake.wait())]
        if until is not None:
            waiters.append(asyncio.ensure_future(self.tools.clock.sleep(max(0.0, until - self.tools.clock.now()))))
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()  # not awaited: a cancellation of ourselves would be swallowed with it
        self._wake.clear()
