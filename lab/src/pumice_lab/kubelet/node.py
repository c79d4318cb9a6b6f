"""The node object: registration, status updates, the heartbeat lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pumice import __version__
from pumice.effects.backoff import Backoff
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import LEASES, NAMESPACES, NODES
from pumice.wire.times import stamp
from pumice_lab.kubelet.settings import KubeletSettings

log = logging.getLogger("pumice.kubelet")
LEASE_NAMESPACE = "kube-node-lease"
REGISTER_AGAIN = Backoff(0.1, 5.0)
OWN = ("cpu", "memory", "pods", "ephemeral-storage", "hugepages-1Gi", "hugepages-2Mi")
# The release whose behaviour the twin follows; the suffix says who it is.
KUBELET_VERSION = f"v1.36.1-pumice.{__version__}"
SCHEME = "pumice.io/kubelet-scheme"  # the embedded API server reads it; a real one always speaks TLS
# A real kube-apiserver then tunnels exec and attach as WebSocket instead of SPDY, which the twin does not speak.
FEATURES = ["ExtendWebSocketsToKubelet"]
_GOOD = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
Counts = Mapping[str, tuple[int, int]]


def node_object(settings: KubeletSettings) -> dict[str, Any]:
    arch = _architecture()
    labels = {
        "kubernetes.io/hostname": settings.node, "kubernetes.io/os": "linux", "kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": arch, **settings.labels,
    }  # fmt: skip
    meta: dict[str, Any] = {"name": settings.node, "labels": labels}
    meta["annotations"] = {SCHEME: "https" if settings.tls else "http"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}}


def node_status(settings: KubeletSettings, before: Mapping[str, Any], counts: Counts, port: int, now: float) -> dict[str, Any]:
    """The node's status as a merge patch. ``counts``: resource -> (capacity, allocatable) of device plugins.

    Resources that others put into capacity are kept and copied to allocatable, as the kubelet does; that is how
    ``vgpu-memory`` gets there.
    """
    own = {"cpu": settings.cpu, "memory": settings.memory, "pods": str(settings.pods),
           "ephemeral-storage": settings.ephemeral_storage, "hugepages-1Gi": "0", "hugepages-2Mi": "0"}
    status = before.get("status") or {}
    present: Mapping[str, Any] = status.get("capacity") or {}
    capacity: dict[str, Any] = {**own, **{name: str(total) for name, (total, _) in counts.items()}}
    allocatable: dict[str, Any] = {**own, **{name: str(free) for name, (_, free) in counts.items()}}
    for name, amount in present.items():
        allocatable.setdefault(name, amount)
    for name in status.get("allocatable") or {}:
        if name not in present and name not in capacity:
            allocatable[name] = None
    return {
        "capacity": capacity, "allocatable": allocatable, "conditions": _conditions(status, now),
        "addresses": [{"type": "InternalIP", "address": settings.address}, {"type": "Hostname", "address": settings.node}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}, "nodeInfo": node_info(), "declaredFeatures": FEATURES,
    }  # fmt: skip


def _conditions(status: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    before = {c["type"]: c for c in status.get("conditions") or ()}
    out = [c for name, c in before.items() if name not in {row[0] for row in _GOOD}]
    for name, value, reason, message in _GOOD:
        same = before.get(name, {}).get("status") == value
        since = before[name].get("lastTransitionTime") if same else None
        out.append({"type": name, "status": value, "reason": reason, "message": message,
                    "lastHeartbeatTime": stamp(now), "lastTransitionTime": since or stamp(now)})
    return out


def node_info() -> dict[str, str]:
    return {
        "machineID": _read("/etc/machine-id"), "systemUUID": "", "bootID": _read("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(), "osImage": _os_name(), "containerRuntimeVersion": f"pumice://{__version__}",
        "kubeletVersion": KUBELET_VERSION, "kubeProxyVersion": "", "operatingSystem": "linux",
        "architecture": _architecture(),
    }  # fmt: skip


def _architecture() -> str:
    """This machine's, in Go's word."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _os_name() -> str:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    return "Linux"


class NodeKeeper:
    """Registers the node and keeps its status and lease fresh. ``poke`` asks for an early status update."""

    def __init__(self, settings: KubeletSettings, cluster: Cluster, clock: Clock, counts: Callable[[], Counts],
                 port: Callable[[], int]) -> None:
        self.settings, self.cluster, self.clock = settings, cluster, clock
        self._counts, self._port = counts, port
        self.node: dict[str, Any] = {}
        self._poked = asyncio.Event()

    def poke(self) -> None:
        if self.settings.eager_status:
            self._poked.set()

    @property
    def allocatable(self) -> Mapping[str, Any]:
        return (self.node.get("status") or {}).get("allocatable") or {}

    async def register(self) -> None:
        """Create the node, or take over the one that is there; then write its status. Retries for ever."""
        wanted = node_object(self.settings)
        tries = 0
        while True:
            try:
                try:
                    self.node = await self.cluster.create(NODES, wanted)
                except ApiError as error:
                    if error.code != 409:
                        raise
                    self.node = await self.cluster.patch(
                        NODES, self.settings.node, {"metadata": {k: wanted["metadata"][k] for k in ("labels", "annotations")}})
                await self.update_status()
                return
            except ApiError as error:
                log.warning("node not registered node=%s cause=%s", self.settings.node, error)
                await self.clock.sleep(REGISTER_AGAIN.pause(tries))
                tries += 1

    async def update_status(self) -> None:
        """Read, compute, patch. Raises ApiError."""
        self.node = await self.cluster.get(NODES, self.settings.node)
        body = {"status": node_status(self.settings, self.node, self._counts(), self._port(), self.clock.now())}
        self.node = await self.cluster.patch(NODES, self.settings.node, body, subresource="status")

    def seen(self, node: dict[str, Any]) -> None:
        """A watched version of the node: a capacity that others wrote is copied to allocatable early."""
        self.node = node
        status = node.get("status") or {}
        allocatable, own = status.get("allocatable") or {}, self._counts()
        others = {n: a for n, a in (status.get("capacity") or {}).items() if n not in own and n not in OWN}
        if any(allocatable.get(name) != amount for name, amount in others.items()):
            self.poke()

    async def keep_status(self) -> None:
        while True:
            await self._pause(self.settings.status_period)
            try:
                await self.update_status()
            except ApiError as error:
                log.warning("node status not written node=%s cause=%s", self.settings.node, error)
                if error.code == 404:
                    await self.register()

    async def _pause(self, seconds: float) -> None:
        timer = asyncio.ensure_future(self.clock.sleep(seconds))
        poked = asyncio.ensure_future(self._poked.wait())
        try:
            await asyncio.wait({timer, poked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in (timer, poked):
                waiter.cancel()  # not awaited: a cancellation of ourselves would be swallowed with it
        if self._poked.is_set():
            await self.clock.sleep(0.05)  # several lists of one moment become one update
            self._poked.clear()

    async def keep_lease(self) -> None:
        while True:
            try:
                await self._renew()
            except ApiError as error:
                log.warning("node lease not renewed node=%s cause=%s", self.settings.node, error)
            await self.clock.sleep(self.settings.lease_seconds / 4)

    async def _renew(self) -> None:
        moment = datetime.fromtimestamp(self.clock.now(), UTC)
        spec = {"holderIdentity": self.settings.node, "leaseDurationSeconds": self.settings.lease_seconds,
                "renewTime": f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"}
        try:
            await self.cluster.patch(LEASES, self.settings.node, {"spec": spec}, LEASE_NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
            await self._make_lease(spec)

    async def _make_lease(self, spec: Mapping[str, Any]) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.settings.node,
                 "uid": self.node.get("metadata", {}).get("uid", "")}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                 "metadata": {"name": self.settings.node, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
                 "spec": dict(spec)}
        try:
            await self.cluster.create(LEASES, lease)
        except ApiError as error:
            if error.code != 404:
                raise
            await self.cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace",
                                                   "metadata": {"name": LEASE_NAMESPACE}})
            await self.cluster.create(LEASES, lease)
