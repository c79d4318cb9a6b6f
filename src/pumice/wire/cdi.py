"""Specification files of the Container Device Interface (its SPEC.md, version 0.5), and what NVIDIA's plugin calls things in them
(NVIDIA k8s-device-plugin internal/cdi)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from pumice.model.errors import BadInput
from pumice.wire import names

VENDOR: Final = "k8s.device-plugin.nvidia.com"
GPU: Final = "gpu"
TOOLKIT: Final = names.WHOLE_GPU
"""The kind under which NVIDIA's container toolkit names cards (`nvidia-ctk cdi generate`)."""
ALL: Final = "all"
"""The name of the one device of a class that is not counted: gdrcopy, gds, mofed."""
VERSION: Final = "0.5.0"
"""The oldest that knows another path on the host for a device node."""
ANNOTATION_PREFIX: Final = "cdi.k8s.io/"
"""Runtimes take the devices that annotations of this prefix name (CDI, pkg/cdi/annotations.go)."""


class DeviceNode(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    path: str
    host_path: str = ""
    permissions: str = ""


class Mount(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    host_path: str
    container_path: str
    options: tuple[str, ...] = ()


class Hook(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    hook_name: str
    path: str
    args: tuple[str, ...] = ()


class Edits(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The changes to a container. ``env`` are words ``NAME=value``."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()

    def __add__(self, other: Edits) -> Edits:
        return Edits(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


NOTHING: Final = Edits()


class Device(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_edits: Edits


class Specification(msgspec.Struct, frozen=True, rename="camel"):
    """The devices of one kind, and in ``container_edits`` what each container gets that has one of them."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...] = ()
    container_edits: Edits = NOTHING


OWN_VENDOR: Final = names.OUR_DOMAIN
SHARE: Final = "share"
"""Ours: one device for what one container is given, under a number that is used once."""
OLDEST: Final = {"containerd": (2, 0), "cri-o": (1, 28), "pumice": (0, 0)}
"""Runtimes by the name that they have in the node's status, and since when they heed CDI devices unless they are told not to."""
OLDEST_KUBELET: Final = (1, 29)
"""From this one on the kubelet passes on the CDI devices of an answer, unless it is told not to."""


def share(number: str) -> str:
    """The name by which an answer asks for a container's share."""
    return f"{OWN_VENDOR}/{SHARE}={number}"


def share_file_name(number: str) -> str:
    return f"{OWN_VENDOR}-{SHARE}_{number}.json"


def named_share_file_name(name: str) -> str:
    """The file of a share of ``pumice share create``: no plugin takes it for one of its own that nobody needs any more."""
    return f"{OWN_VENDOR}-{SHARE}-{name}.json"


def share_number(names: Iterable[str]) -> str:
    """The number of the share that is among these names; empty where none is."""
    of = share("")
    return next((name.removeprefix(of) for name in names if name.startswith(of)), "")


def heeded(runtime: str, kubelet: str) -> bool:
    """True if this runtime (``containerd://2.1.0``) and kubelet (``v1.36.1``) give containers CDI devices, as they come."""
    name, _, version = runtime.partition("://")
    oldest = OLDEST.get(name)
    return oldest is not None and _release(version) >= oldest and _release(kubelet) >= OLDEST_KUBELET


def _release(version: str) -> tuple[int, int]:
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})", version)
    return (int(found[1]), int(found[2])) if found else (-1, -1)


def qualified(device: str, of: str = GPU) -> str:
    """The name by which an answer asks for a device."""
    return f"{VENDOR}/{of}={device}"


def file_name(of: str = GPU) -> str:
    return f"{VENDOR}-{of}.json"


def specification(devices: Iterable[Device], edits: Edits = NOTHING, of: str = GPU) -> Specification:
    return Specification(VERSION, f"{VENDOR}/{of}", tuple(devices), edits)


def render(spec: Specification) -> bytes:
    return msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n"


def parse(text: str | bytes) -> Specification:
    """JSON or YAML. Raises BadInput."""
    from pumice.wire.document import read_document  # only here: a share of `pumice run` is started without YAML

    try:
        return msgspec.convert(read_document(text).value, Specification)
    except msgspec.ValidationError as error:
        raise BadInput(str(error)) from error


# -- How a container is told which cards it has ----------------------------------------------------------------------

# The words of ``--device-list-strategy`` (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu, NVIDIA k8s-device-plugin
# internal/cdi).

CDI_ANNOTATIONS: Final = "cdi-annotations"
CDI_FIELD: Final = "cdi-cri"
STRATEGIES: Final = ("envvar", "volume-mounts", CDI_ANNOTATIONS, CDI_FIELD)
"""The last two name devices of a file that the plugin writes."""


def strategies(given: Iterable[str]) -> tuple[str, ...]:
    """Words that may hold several, separated by commas. Raises BadInput."""
    words = tuple(word.strip() for text in given for word in text.split(",") if word.strip())
    if unknown := next((word for word in words if word not in STRATEGIES), ""):
        raise BadInput(f"--device-list-strategy {unknown!r}: use {', '.join(STRATEGIES)}")
    return words or STRATEGIES[:1]
