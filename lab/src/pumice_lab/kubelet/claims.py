"""The kubelet's side of Dynamic Resource Allocation (pkg/kubelet/cm/dra of Kubernetes 1.36).

Drivers register in ``plugins_registry``. Claims are prepared before a pod's containers start, and remembered over a restart.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from pumice.adapters.kubelet.proto import draplugin_pb2 as dra
from pumice.adapters.kubelet.proto import pluginregistration_pb2 as reg
from pumice.adapters.regular_files import replace_file
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import RESOURCE_CLAIMS, RESOURCE_SLICES
from pumice_lab.controllers.common import owned_by
from pumice_lab.controllers.resource_claims import name_of
from pumice_lab.kubelet.devices.grpc_plugin import ShortPath, go_status
from pumice_lab.kubelet.devices.plugin import Allocation

log = logging.getLogger("pumice.kubelet")
SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
VERSION = "v1.DRAPlugin"
CHECKPOINT = "dra_manager_state"
CALL_SECONDS = 45.0
WIPING_DELAY = 30.0
"""Seconds after which the slices of a driver without a connection are deleted."""
LOOK_SECONDS = 0.5
RECONCILE_SECONDS = 60.0
Json = Mapping[str, Any]


Call = Callable[[Path, str, Any, Any, float], Awaitable[Any]]
"""To which socket, method, request, type of the answer, and for how many seconds."""


class NotPrepared(Exception):
    """A claim of a pod cannot be used; the text is the kubelet's."""


@dataclass(slots=True)
class Prepared:
    """One device of a claim, as its driver has prepared it."""

    pool: str
    device: str
    requests: list[str]
    cdi: list[str]
    share: str = ""


@dataclass(slots=True)
class ClaimInfo:
    uid: str
    name: str
    namespace: str
    pods: list[str] = field(default_factory=list)
    drivers: dict[str, list[Prepared]] = field(default_factory=dict)
    ready: bool = False
    """Not remembered: after a restart every claim is prepared anew before another pod uses it."""


class ClaimManager:
    """Of one node. ``registry`` is the folder in which drivers put their sockets; ``call`` makes one call of them."""

    def __init__(self, folder: Path, node: str, cluster: Cluster, clock: Clock, call: Call | None = None) -> None:
        self.folder, self.registry, self._call = folder, folder / "plugins_registry", call or _call
        self.node, self.cluster, self.clock = node, cluster, clock
        self.claims: dict[str, ClaimInfo] = {}
        self.drivers: dict[str, Path] = {}
        """Registered drivers, and where they listen."""
        self._sockets: dict[Path, tuple[str, tuple[int, float]]] = {}
        self._gone: dict[str, float] = {}
        self._turn = asyncio.Lock()

    # -- drivers --------------------------------------------------------------------------------------------------

    async def keep(self, active: Callable[[], Collection[str]]) -> None:
        """Watch for drivers, delete the slices of those that are gone, and unprepare what no pod uses.

        ``active`` gives the pods' UIDs.
        """
        self.registry.mkdir(parents=True, exist_ok=True)
        await self._wipe(f"spec.nodeName={self.node}")
        due = self.clock.monotonic() + RECONCILE_SECONDS
        while True:
            await self._look()
            for driver, since in list(self._gone.items()):
                if self.clock.monotonic() >= since + WIPING_DELAY:
                    await self._wipe(f"spec.nodeName={self.node},spec.driver={driver}")
                    del self._gone[driver]
            if self.clock.monotonic() >= due:
                due = self.clock.monotonic() + RECONCILE_SECONDS
                for uid in {pod for info in self.claims.values() for pod in info.pods} - set(active()):
                    await self.unprepare(uid)
            await self.clock.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        there = {path: _mark(path) for path in self.registry.glob("*.sock")}
        for path, (driver, mark) in list(self._sockets.items()):
            if there.get(path) != mark:
                del self._sockets[path]
                if driver in self.drivers and all(driver != other for other, _ in self._sockets.values()):
                    del self.drivers[driver]
                    self._gone[driver] = self.clock.monotonic()
        for path, seen in there.items():
            if path not in self._sockets and seen is not None:
                try:
                    await self._register(path, seen)
                except (grpc.aio.AioRpcError, TimeoutError, OSError) as error:
                    log.warning("driver not registered socket=%s cause=%s", path.name, error)

    async def _register(self, path: Path, mark: tuple[int, float]) -> None:
        info = await self._call(path, "/pluginregistration.Registration/GetInfo", reg.InfoRequest(), reg.PluginInfo, 5.0)
        why = ""
        if info.type != "DRAPlugin":
            why = f"no handler registered for plugin type: {info.type} at socket {path}"
        elif not info.name:
            why = "empty DRA driver name"
        elif VERSION not in info.supported_versions:
            why = f"none of the requested versions [{' '.join(info.supported_versions)}] are supported"
        status = reg.RegistrationStatus(plugin_registered=not why, error=why)
        notify = "/pluginregistration.Registration/NotifyRegistrationStatus"
        await self._call(path, notify, status, reg.RegistrationStatusResponse, 5.0)
        if why:
            log.warning("driver not registered name=%s cause=%s", info.name, why)
        else:
            self.drivers[info.name] = Path(info.endpoint or path)
            self._gone.pop(info.name, None)
            log.info("driver registered name=%s endpoint=%s", info.name, info.endpoint)
        self._sockets[path] = (info.name, mark)

    async def _wipe(self, selector: str) -> None:
        try:
            found = await self.cluster.list(RESOURCE_SLICES, field_selector=selector)
            for one in found["items"]:
                await self.cluster.delete(RESOURCE_SLICES, one["metadata"]["name"], uid=one["metadata"]["uid"])
        except ApiError as error:
            if error.code not in (403, 404, 405):
                log.warning("slices not deleted selector=%s cause=%s", selector, error)

    # -- claims ---------------------------------------------------------------------------------------------------

    async def prepare(self, pod: Json) -> None:
        """Before the first container of a pod. Raises NotPrepared."""
        wanted = [*(pod["spec"].get("resourceClaims") or ()), *_for_resources(pod)]
        if not wanted:
            return
        async with self._turn:
            for pod_claim in wanted:
                await self._prepare(pod, pod_claim)

    async def _prepare(self, pod: Json, pod_claim: Json) -> None:
        meta = pod["metadata"]
        name = name_of(pod, pod_claim)
        if name is None:
            return
        if not name:
            raise NotPrepared(f"prepare ResourceClaim: pod claim {pod_claim['name']}: ResourceClaim not created yet")
        try:
            claim = await self.cluster.get(RESOURCE_CLAIMS, name, meta["namespace"])
        except ApiError as error:
            raise NotPrepared(f"fetch ResourceClaim {name}: {error.message}") from error
        uid, status = claim["metadata"]["uid"], claim.get("status") or {}
        if pod_claim.get("resourceClaimTemplateName") and not owned_by(claim, meta["uid"]):
            raise NotPrepared(f"ResourceClaim {name} was not created for pod {meta['namespace']}/{meta['name']}")
        if all(one.get("uid") != meta["uid"] for one in status.get("reservedFor") or ()):
            raise NotPrepared(f"pod {meta['name']} ({meta['uid']}) is not allowed to use ResourceClaim {name} ({uid})")
        for other in self.claims.values():
            if (other.namespace, other.name) == (meta["namespace"], name) and other.uid != uid:
                raise NotPrepared(f"old ResourceClaim with same name {name} and different UID {other.uid} still exists")
        info = self.claims.setdefault(uid, ClaimInfo(uid, name, meta["namespace"]))
        if meta["uid"] not in info.pods:
            info.pods.append(meta["uid"])
        self._save()
        if info.ready or (info.drivers and _running(pod)):
            return
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        for driver in dict.fromkeys(result["driver"] for result in results):
            request = dra.NodePrepareResourcesRequest(claims=[dra.Claim(namespace=info.namespace, uid=uid, name=name)])
            answer = await self._ask(driver, "NodePrepareResources", request, dra.NodePrepareResourcesResponse)
            if uid not in answer.claims:
                raise NotPrepared(f"NodePrepareResources left out claim {name}")
            if text := answer.claims[uid].error:
                raise NotPrepared(f"NodePrepareResources failed for claim {info.namespace}/{name}: {text}")
            info.drivers[driver] = [
                Prepared(one.pool_name, one.device_name, list(one.request_names), list(one.cdi_device_ids), one.share_id)
                for one in answer.claims[uid].devices
            ]
        info.ready = True
        self._save()

    async def unprepare(self, pod: str) -> None:
        """The containers of this pod are gone. What fails is tried again with the next reconciliation."""
        async with self._turn:
            for info in [one for one in self.claims.values() if pod in one.pods]:
                if info.pods == [pod]:
                    try:
                        await self._unprepare(info)
                    except NotPrepared as error:
                        log.warning("claim not unprepared claim=%s/%s cause=%s", info.namespace, info.name, error)
                        continue
                    del self.claims[info.uid]
                else:
                    info.pods.remove(pod)
                self._save()

    async def _unprepare(self, info: ClaimInfo) -> None:
        for driver in info.drivers:
            claim = dra.Claim(namespace=info.namespace, uid=info.uid, name=info.name)
            request = dra.NodeUnprepareResourcesRequest(claims=[claim])
            answer = await self._ask(driver, "NodeUnprepareResources", request, dra.NodeUnprepareResourcesResponse)
            if text := answer.claims[info.uid].error:
                raise NotPrepared(f"NodeUnprepareResources failed for claim {info.namespace}/{info.name}: {text}")

    async def _ask(self, driver: str, call: str, request: Any, answer: Any) -> Any:
        if driver not in self.drivers:
            raise NotPrepared(f"DRA driver {driver} is not registered")
        try:
            return await self._call(self.drivers[driver], f"/{SERVICE}/{call}", request, answer, CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise NotPrepared(f"{call}: {go_status(error)}") from error

    def answers(self, pod: Json, container: Json) -> list[Allocation]:
        """Return the CDI devices of the requests that a container names of its claims, or of all requests."""
        found: list[str] = []
        for used in (container.get("resources") or {}).get("claims") or ():
            pod_claim = next(one for one in pod["spec"]["resourceClaims"] if one["name"] == used["name"])
            name = name_of(pod, pod_claim)
            for info in self.claims.values():
                if (info.namespace, info.name) == (pod["metadata"]["namespace"], name):
                    found += _ids(info, used.get("request") or "")
        said = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
        for served in said.get("requestMappings") or ():
            for info in self.claims.values() if served["containerName"] == container["name"] else ():
                if (info.namespace, info.name) == (pod["metadata"]["namespace"], said["resourceClaimName"]):
                    found += _ids(info, served["requestName"])
        return [Allocation(cdi_devices=tuple(dict.fromkeys(found)))] if found else []

    # -- memory ---------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        data = json.dumps({"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
                           "ClaimInfoStateList": [_rendered(info) for info in self.claims.values()]})  # fmt: skip
        content = json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())})
        replace_file(self.folder / CHECKPOINT, content.encode(), 0o644, durable=False)

    def load(self) -> None:
        """Take over what an earlier one has remembered."""
        try:
            content = json.loads((self.folder / CHECKPOINT).read_text())
            if zlib.crc32(content["Data"].encode()) != content["Checksum"]:
                raise ValueError("the checksum does not match")
            for info in map(_parsed, json.loads(content["Data"])["ClaimInfoStateList"]):
                self.claims.setdefault(info.uid, info)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("the record of claims is unreadable, going on without it cause=%s", error)


def _rendered(info: ClaimInfo) -> Json:
    """As Kubernetes writes it (pkg/kubelet/cm/dra/state); who reads a kubelet's record reads this one."""
    drivers = {name: {"Devices": [{"PoolName": one.pool, "DeviceName": one.device, "ShareID": one.share or None,
                                   "RequestNames": one.requests, "CDIDeviceIDs": one.cdi} for one in devices]}
               for name, devices in info.drivers.items()}  # fmt: skip
    return {"ClaimUID": info.uid, "ClaimName": info.name, "Namespace": info.namespace,
            "PodUIDs": {pod: {} for pod in info.pods}, "DriverState": drivers}  # fmt: skip


def _parsed(one: Json) -> ClaimInfo:
    drivers = {name: [Prepared(device["PoolName"], device["DeviceName"], device["RequestNames"], device["CDIDeviceIDs"],
                               device["ShareID"] or "") for device in state["Devices"]]
               for name, state in one["DriverState"].items()}  # fmt: skip
    return ClaimInfo(one["ClaimUID"], one["ClaimName"], one["Namespace"], list(one["PodUIDs"]), drivers)


def _ids(info: ClaimInfo, request: str) -> Iterable[str]:
    for devices in info.drivers.values():
        for device in devices:
            if not request or any(name.partition("/")[0] == request for name in device.requests):
                yield from device.cdi


def _for_resources(pod: Json) -> list[Json]:
    """Return the claim that the scheduler has made for extended resources of the pod, as if the pod named it."""
    said = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    return [{"name": "", "resourceClaimName": said["resourceClaimName"]}] if said else []


def _running(pod: Json) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any("running" in (one.get("state") or {}) for one in statuses)


def _mark(path: Path) -> tuple[int, float] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_ctime


async def _call(path: Path, method: str, request: Any, answer: Any, seconds: float) -> Any:
    short = ShortPath(path)
    options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    try:
        async with grpc.aio.insecure_channel(short.target, options=options) as channel:
            call = channel.unary_unary(method, request_serializer=type(request).SerializeToString,
                                       response_deserializer=answer.FromString)  # fmt: skip
            return await call(request, timeout=seconds)
    finally:
        short.close()
