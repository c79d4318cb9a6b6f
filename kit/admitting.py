"""A kubelet that admits pods, writes down whose the devices are, and starts containers, in whatever order it is told: for tests
of which pod an Allocate call is for.

It does what the real one does with devices (ADR 120): ids of its own choice, one call at a time, the record written
right after each answer, PreStartContainer before each start, an answer that is kept. Of the runtime it plays what CDI devices do.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from kit.node_world import FakeKubelet
from kit.virtual_time import under_way
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.adapters.regular_files import replace_file
from pumice_lab.kubelet.devices import cdi
from pumice_lab.kubelet.devices.checkpoint import allocation_from
from pumice_lab.runtime.spec import StartFailed

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refused(Exception):
    """A call was answered by an error: the kubelet's words."""

    text: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The start of a container: its environment, the pod's own words in it, and the host's path behind each of its mounts."""

    env: Mapping[str, str]
    mounts: Mapping[str, str]


@dataclass(slots=True)
class DeviceAllocation:
    resource: str
    ids: frozenset[str]
    response: Any


@dataclass(slots=True)
class PodDevices:
    """Holdings, by (pod UID, container)."""

    entries: dict[tuple[str, str], DeviceAllocation] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        found = [{"PodUID": uid, "ContainerName": name, "ResourceName": allocated.resource,
                  "DeviceIDs": {"-1": sorted(allocated.ids)},
                  "AllocResp": base64.b64encode(allocated.response.SerializeToString()).decode()}
                 for (uid, name), allocated in self.entries.items()]  # fmt: skip
        content = json.dumps({"Data": {"PodDeviceEntries": found, "RegisteredDevices": {}}, "Checksum": 1})
        replace_file(folder / "kubelet_internal_checkpoint", content.encode(), 0o644, durable=False)

    def forget(self, uid: str) -> None:
        self.entries = {key: allocated for key, allocated in self.entries.items() if key[0] != uid}


class AdmittingKubelet(FakeKubelet):
    """``cdi_folder``: of the runtime; None where it has no CDI and passes names by in silence, as containerd 1.6 does."""

    def __init__(self, directory: Path, rng: random.Random, cdi_folder: Path | None = None) -> None:
        super().__init__(directory)
        self.rng, self.cdi_folder, self.pod_devices = rng, cdi_folder, PodDevices()

    async def admit(self, pod: Json, resource: str) -> None:
        """All of its containers in the kubelet's order. Raises Refused: the pod is then rejected for good."""
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        reusable: set[str] = set()
        for kind in ("initContainers", "containers"):
            for container in spec.get(kind) or ():
                count = int((container["resources"].get("limits") or {}).get(resource, 0))
                if not count:
                    continue
                sidecar = container.get("restartPolicy") == "Always"
                ids = await self._choose(resource, count, set() if sidecar else reusable)
                await self._allocate(uid, container["name"], resource, ids)
                if kind == "initContainers" and not sidecar:
                    reusable |= ids
                else:
                    reusable -= ids

    async def start_container(self, pod: Json, container: Json, pre_start: bool = True) -> Seen:
        """Raises Refused: the container waits, and is tried again. Not ``pre_start``: the kubelet has just been restarted, and
        the plugin has not registered anew."""
        allocated = self.pod_devices.entries.get((pod["metadata"]["uid"], container["name"]))
        if allocated is None:
            return Seen(_env(container), {})
        if pre_start and self.options[allocated.resource].pre_start_required:
            request = pb.PreStartContainerRequest(devices_ids=self._shuffled(allocated.ids))
            await self._call(self._stubs[allocated.resource].PreStartContainer, request, 30)
        answer = allocation_from(allocated.response)
        edits = cdi.Edits()
        if self.cdi_folder is not None:
            try:
                edits = cdi.resolve(cdi.requested([answer]), [self.cdi_folder])
            except StartFailed as error:
                raise Refused(str(error)) from error
        mounts = {mount.container_path: _source(Path(mount.host_path)) for mount in answer.mounts}
        mounts |= {mount.target: mount.source for mount in edits.mounts.values()}
        return Seen({**dict(answer.envs), **_env(container), **edits.env}, mounts)

    def leave(self, uid: str) -> None:
        """The pod is over; its devices are free when the next one asks."""
        self.pod_devices.forget(uid)

    async def _choose(self, resource: str, count: int, reusable: set[str]) -> frozenset[str]:
        if len(reusable) >= count:
            return frozenset(self.rng.sample(sorted(reusable), count))
        units = await self.until(resource, lambda _: True)
        taken = {unit for allocated in self.pod_devices.entries.values() for unit in allocated.ids} - reusable
        free = [unit for unit, healthy in units.items() if healthy and unit not in taken]
        if len(free) < count:
            raise Refused(f"requested number of devices unavailable for {resource}")
        if self.options[resource].get_preferred_allocation_available:
            request = pb.ContainerPreferredAllocationRequest(
                available_deviceIDs=self._shuffled(free), must_include_deviceIDs=sorted(reusable), allocation_size=count)
            call = self._stubs[resource].GetPreferredAllocation
            answer = await self._call(call, pb.PreferredAllocationRequest(container_requests=[request]), None)
            liked = [unit for unit in answer.container_responses[0].deviceIDs if unit in free]
            if len(liked) >= count:
                return frozenset(liked[:count])
        return frozenset([*sorted(reusable), *self._shuffled(set(free) - reusable)][:count])

    async def _allocate(self, uid: str, container: str, resource: str, ids: frozenset[str]) -> None:
        request = pb.ContainerAllocateRequest(devices_ids=self._shuffled(ids))
        answer = await self._call(self._stubs[resource].Allocate, pb.AllocateRequest(container_requests=[request]), 120)
        self.pod_devices.entries[uid, container] = DeviceAllocation(resource, ids, answer.container_responses[0])
        self.pod_devices.save(self.directory)

    async def _call(self, call: Any, request: Any, seconds: float | None) -> Any:
        try:
            with under_way():
                return await call(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise Refused(error.details() or str(error.code())) from error

    def _shuffled(self, ids: Sequence[str] | set[str] | frozenset[str]) -> list[str]:
        found = sorted(ids)
        self.rng.shuffle(found)
        return found


def _source(path: Path) -> str:
    """Return where a mount's source leads, as containerd looks at it: what is missing is made, but nothing behind a link that
    leads nowhere. Raises Refused."""
    try:
        if not path.exists():
            path.mkdir(parents=True)
    except OSError as error:
        raise Refused(f"failed to mkdir {path}: {error.strerror}") from error
    return str(path.resolve())


def _env(container: Json) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container.get("env") or ()}
