"""The kubelet's side of the device plugin protocol v1beta1, as values and a port. gRPC is in ``grpc_plugin``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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
