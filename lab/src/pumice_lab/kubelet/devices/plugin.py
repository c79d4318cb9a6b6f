"""The kubelet's side of the device plugin protocol v1beta1, as values and a port. gRPC is in ``grpc_plugin``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pumice.wire.quantity import round_up

HEALTHY = "Healthy"  # exactly this word; any other one counts as unhealthy


@dataclass(frozen=True, slots=True)
class Device:
    id: str
    health: str = HEALTHY
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    pre_start: bool = False
    preferred: bool = False


@dataclass(frozen=True, slots=True)
class AnsweredMount:
    container_path: str
    host_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """One container's part of an Allocate answer. ``raw`` is the protobuf message, kept for the checkpoint."""

    envs: tuple[tuple[str, str], ...] = ()
    mounts: tuple[AnsweredMount, ...] = ()
    devices: tuple[AnsweredMount, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    cdi_devices: tuple[str, ...] = ()
    raw: bytes = b""


class PluginError(Exception):
    """A call to the plugin failed; the text is what the kubelet prints (Go's spelling of a gRPC status)."""


class Plugin(Protocol):
    """One connected plugin. Every call raises PluginError."""

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str] | None:
        """The ids that the plugin would like; None for an answer without containers."""
        ...

    async def allocate(self, ids: Sequence[str]) -> Allocation | None:
        """None for an answer without containers."""
        ...

    async def pre_start(self, ids: Sequence[str]) -> None: ...
    def close(self) -> None: ...


# -- Which resource names a device plugin may register (Kubernetes: extended resources) ------------------------------

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def is_extended(resource: str) -> bool:
    """A name outside kubernetes.io that is a qualified name and no quota's ``requests.`` name."""
    domain, slash, name = resource.partition("/")
    if not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return False
    if resource.startswith("requests.") or len(domain) > 253:
        return False
    return bool(_DOMAIN.fullmatch(domain) and _NAME.fullmatch(name))


def device_limits(container: Mapping[str, Any]) -> dict[str, int]:
    """Extended resources that a container asks for, above zero."""
    limits = (container.get("resources") or {}).get("limits") or {}
    counts = {name: round_up(amount) for name, amount in limits.items() if is_extended(name)}
    return {name: count for name, count in counts.items() if count > 0}
