"""The content of ``device-config.yaml`` of the device ConfigMap (Volcano pkg/scheduler/api/devices/config), with its defaults
(D-04)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from pumice.wire import names

if TYPE_CHECKING:
    from pumice.wire.npu_config import VnpuConfig


class MigInstances(Struct, frozen=True):
    """A row of a MIG geometry: ``count`` instances of one profile of ``memory`` MiB each."""

    name: str
    memory: int
    count: int


class MigGroup(Struct, frozen=True):
    """One way to partition a card; slot numbers count the instances in listed order (Volcano pkg/scheduler/cache)."""

    name: str
    instances: tuple[MigInstances, ...]


class ModelGeometries(Struct, frozen=True):
    """The groups of all cards whose type contains one of ``models``."""

    models: tuple[str, ...]
    groups: tuple[MigGroup, ...]


@dataclass(frozen=True, slots=True)
class NvidiaConfig:
    """Section ``nvidia``. An empty percentage name switches percentages off; factor 0 is read as 1. ``migPlacements`` is
    ours: the node plugins announce that they understand slices outside the geometry groups. So is ``bursts``: a pod may have more
    than it asked for (``wire.bursts``)."""

    resource_count_name: str = names.VGPU_NUMBER
    resource_memory_name: str = names.VGPU_MEMORY
    resource_core_name: str = names.VGPU_CORES
    resource_memory_percentage_name: str = names.VGPU_MEMORY_PERCENTAGE
    resource_priority_name: str = ""
    overwrite_env: bool = False
    default_memory: int = 0
    default_cores: int = 0
    default_gpu_num: int = 1
    device_split_count: int = 10
    device_memory_scaling: float = 1.0
    device_core_scaling: float = 1.0
    disable_core_limit: bool = False
    pass_device_specs: bool = False
    mig_placements: bool = False
    bursts: bool = False
    gpu_memory_factor: int = 1
    known_mig_geometries: tuple[ModelGeometries, ...] = ()

    @property
    def memory_unit(self) -> str:
        """Return what an amount of memory counts."""
        return "MiB" if self.gpu_memory_factor <= 1 else f"x {self.gpu_memory_factor} MiB"


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """The whole document. ``vnpus`` is None where it says nothing of NPUs; ``warnings`` each name line and key."""

    nvidia: NvidiaConfig = field(default_factory=NvidiaConfig)
    vnpus: VnpuConfig | None = None
    warnings: tuple[str, ...] = ()


MOST_SLOTS = 16
"""More instances than any card can hold (7 on today's); it bounds the tables that are made of a geometry."""
