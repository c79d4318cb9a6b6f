"""Device plugin messages as our values."""

from __future__ import annotations

from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice_lab.kubelet.devices.plugin import Allocation, AnsweredMount, Device


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
