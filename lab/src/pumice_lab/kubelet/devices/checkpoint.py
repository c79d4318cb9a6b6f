"""``kubelet_internal_checkpoint``: what the device manager remembers over a restart (ADR 120, Restarts).

The layout is the kubelet's; the checksum is ours (FNV-1a of the canonical JSON of Data), because the kubelet's is a hash of a
Go memory dump. A file with a wrong checksum is ignored: the twin goes on with empty books, as the kubelet does.
"""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.adapters.regular_files import replace_file
from pumice_lab.kubelet.devices.manager import DeviceAllocation, PodDevices
from pumice_lab.kubelet.devices.plugin import Allocation, AnsweredMount, Device

log = logging.getLogger("pumice.kubelet")
NAME = "kubelet_internal_checkpoint"


def save(directory: Path, pod_devices: PodDevices, registered: dict[str, list[str]]) -> None:
    entries = [
        {"PodUID": uid, "ContainerName": container, "ResourceName": resource,
         "DeviceIDs": {numa: list(ids) for numa, ids in allocated.by_numa} or {"-1": sorted(allocated.ids)},
         "AllocResp": base64.b64encode(allocated.answer.raw).decode()}
        for uid, container, resource, allocated in pod_devices
    ]  # fmt: skip
    data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
    replace_file(directory / NAME, json.dumps({"Data": data, "Checksum": checksum(data)}).encode(), 0o644, durable=False)


def load(directory: Path) -> tuple[PodDevices, list[str]]:
    """Books and the resources once registered; both empty when there is no readable checkpoint."""
    path = directory / NAME
    try:
        content = json.loads(path.read_text())
        data = content["Data"]
        if content["Checksum"] != checksum(data):
            raise ValueError("the checksum does not match")
        pod_devices = PodDevices()
        for entry in data["PodDeviceEntries"] or ():
            pod_devices.insert(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], _held(entry))
        return pod_devices, list(data["RegisteredDevices"] or ())
    except FileNotFoundError:
        return PodDevices(), []
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error("the device checkpoint is unreadable, going on without it path=%s cause=%s", path, error)
        return PodDevices(), []


def _held(entry: dict[str, Any]) -> DeviceAllocation:
    from pumice_lab.kubelet.devices.checkpoint import allocation_from_bytes  # protobuf only where it is needed

    raw = base64.b64decode(entry["AllocResp"] or "")
    by_numa = tuple((str(numa), tuple(ids)) for numa, ids in entry["DeviceIDs"].items())
    ids = frozenset(ident for _, group in by_numa for ident in group)
    return DeviceAllocation(ids, allocation_from_bytes(raw) if raw else Allocation(), by_numa)


def checksum(data: dict[str, Any]) -> int:
    """32-bit FNV-1a."""
    value = 0x811C9DC5
    for byte in json.dumps(data, sort_keys=True, separators=(",", ":")).encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


# -- Device plugin messages as our values ----------------------------------------------------------------------------


def device_from(message: pb.Device) -> Device:
    return Device(message.ID, message.health, tuple(node.ID for node in message.topology.nodes))


def allocation_from(message: pb.ContainerAllocateResponse) -> Allocation:
    return Allocation(
        envs=tuple(message.envs.items()),
        mounts=tuple(AnsweredMount(m.container_path, m.host_path, m.read_only) for m in message.mounts),
        devices=tuple(AnsweredMount(d.container_path or d.host_path, d.host_path) for d in message.devices),
        annotations=tuple(message.annotations.items()),
        cdi_devices=tuple(d.name for d in message.cdi_devices),
        raw=message.SerializeToString(deterministic=True),
    )


def allocation_from_bytes(raw: bytes) -> Allocation:
    return allocation_from(pb.ContainerAllocateResponse.FromString(raw))
