"""The kubelet's own record of devices, ``kubelet_internal_checkpoint``: whom it has given devices of a resource.

It is rewritten after every Allocate (ADR 120, Restarts) and lies in the folder of the plugins' sockets.
"""

from __future__ import annotations

import base64
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pumice.adapters.regular_files import content_of
from pumice.wire.names import GPU_MEMORY

log = logging.getLogger("pumice.kubelet")

NAME = "kubelet_internal_checkpoint"
CLAIMS = "dra_manager_state"


class _Entry(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID", default="")
    container_name: str = ""
    resource_name: str = ""
    device_ids: dict[str, list[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    alloc_resp: str | None = None


class _Data(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_Entry] | None = None


class _ClaimInfo(msgspec.Struct, rename="pascal"):
    claim_uid: str = msgspec.field(name="ClaimUID")


class _ClaimRecordData(msgspec.Struct, rename="pascal"):
    claim_info_state_list: list[_ClaimInfo] | None = None


class _ClaimRecord(msgspec.Struct, rename="pascal"):
    data: str
    checksum: int


class _Checkpoint(msgspec.Struct, rename="pascal"):
    data: _Data


def allocated_devices(directory: Path, resource: str) -> dict[tuple[str, str], frozenset[str]] | None:
    """The kubelet's own ids of what everyone, (pod UID, container), holds of ``resource``; None when there is no readable
    record."""
    entries = _entries(directory)
    if entries is None:
        return None
    return {(entry.pod_uid, entry.container_name): _ids(entry) for entry in entries if entry.resource_name == resource}


@dataclass(frozen=True, slots=True)
class Recorded:
    """Devices of one container by the kubelet's record, and the answer (a ContainerAllocateResponse) that it was given for
    that, with the names of its CDI devices and its annotations."""

    pod: str
    container: str
    ids: frozenset[str]
    cdi: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    answer: Any = None


def recorded(directory: Path, resource: str) -> tuple[Recorded, ...] | None:
    """Everybody who holds some of ``resource``; None when there is no readable record."""
    entries = _entries(directory)
    return None if entries is None else tuple(_recorded(entry) for entry in entries if entry.resource_name == resource)


def _recorded(entry: _Entry) -> Recorded:
    from google.protobuf.message import DecodeError  # `pumice run` looks into the record, and starts without protobuf

    from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb

    try:
        answer = pb.ContainerAllocateResponse.FromString(base64.b64decode(entry.alloc_resp or ""))
    except (DecodeError, ValueError):
        answer = pb.ContainerAllocateResponse()
    names = tuple(device.name for device in answer.cdi_devices)
    return Recorded(entry.pod_uid, entry.container_name, _ids(entry), names, dict(answer.annotations), answer)


def card_holders(directory: Path) -> frozenset[str]:
    """UIDs of the pods that hold NVIDIA cards or shares of them, whatever the resource's name and whose plugin it was."""
    return frozenset(entry.pod_uid for entry in _entries(directory) or () if _is_of_cards(entry))


def holders_of(directory: Path, maker: str) -> frozenset[str]:
    """UIDs of the pods that hold some of a maker's resources, whose names begin so."""
    return frozenset(entry.pod_uid for entry in _entries(directory) or () if entry.resource_name.startswith(maker))


def claims_held(kubelet: Path) -> frozenset[str] | None:
    """UIDs of the claims that the kubelet has asked drivers for and not given back (its ``dra_manager_state``); None when there
    is no readable record."""
    try:
        record = msgspec.json.decode(content_of(kubelet / CLAIMS), type=_ClaimRecord)
        if zlib.crc32(record.data.encode()) != record.checksum:
            return None
        infos = msgspec.json.decode(record.data, type=_ClaimRecordData).claim_info_state_list
        return frozenset(info.claim_uid for info in infos or ())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        log.warning("the kubelet's record of claims cannot be read: %s", error)
        return None


def _is_of_cards(entry: _Entry) -> bool:
    return entry.resource_name == GPU_MEMORY or any(device.startswith(("GPU-", "MIG-")) for device in _ids(entry))


def _ids(entry: _Entry) -> frozenset[str]:
    return frozenset(device for devices in (entry.device_ids or {}).values() for device in devices or ())


def _entries(directory: Path) -> list[_Entry] | None:
    try:
        record = msgspec.json.decode(content_of(directory / NAME), type=_Checkpoint)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        log.warning("the kubelet's record of devices cannot be read: %s", error)
        return None
    return record.data.pod_device_entries or []
