"""The kubelet's own record of devices, ``kubelet_internal_checkpoint``: whom it has given devices of a resource.

It is rewritten after every Allocate (spec real-kubelet 2, Restarts) and lies in the folder of the plugins' sockets.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

log = logging.getLogger("pumice.kubelet")

NAME = "kubelet_internal_checkpoint"


class _Entry(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID", default="")
    container_name: str = ""
    resource_name: str = ""


class _Data(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_Entry] | None = None


class _Checkpoint(msgspec.Struct, rename="pascal"):
    data: _Data


def holders(directory: Path, resource: str) -> frozenset[tuple[str, str]] | None:
    """(pod UID, container) of everyone who holds devices of ``resource``; None when there is no readable record."""
    try:
        record = msgspec.json.decode((directory / NAME).read_bytes(), type=_Checkpoint)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the kubelet's record of devices cannot be read: %s", error)
        return None
    entries = record.data.pod_device_entries or ()
    return frozenset((entry.pod_uid, entry.container_name) for entry in entries if entry.resource_name == resource)
