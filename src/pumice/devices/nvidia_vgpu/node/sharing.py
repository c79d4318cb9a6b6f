"""Sharing of this node's cards: the values in force after all configuration (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu/config)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Final

from msgspec import Struct

from pumice.model.amount import MIB
from pumice.model.errors import BadInput
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.node_config import NodeEntry

MPS: Final = "mps"
"""The operating mode of a node whose cards are shared by MPS."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Effective values. ``factor`` is the memory unit in MiB, ``mode`` the node's operating mode as registered.

    ``memory_scaling`` above 1 promises more memory than the cards have; it does not apply in mode ``mig``.
    """

    number: str = names.VGPU_NUMBER
    memory: str = names.VGPU_MEMORY
    cores: str = names.VGPU_CORES
    split: int = 10
    factor: int = 1
    memory_scaling: Fraction = Fraction(1)
    core_scaling: Fraction = Fraction(1)
    limit_cores: bool = True
    pass_device_specs: bool = False
    mig_placements: bool = False
    mode: str = "hami-core"
    mps: bool = False
    """True if cards are shared by MPS instead of the library. Schedulers are told ``hami-core`` all the same (Volcano
    pkg/scheduler/api/devices/nvidia/gpushare)."""
    static_mig: bool = False
    """True if cards in MIG mode are for resources of their own, instance by instance as somebody has created them
    (``plugin/daemon.py``)."""
    prefers: bool = True
    """True if the kubelet shall ask which shares it is to hand out."""
    numa: bool = False
    """True if the kubelet is told on which NUMA node each share lies: its topology manager may then refuse a pod that the
    scheduler has placed."""
    without_uuids: frozenset[str] = frozenset()
    without_indices: frozenset[int] = frozenset()
    config: NvidiaConfig = field(default_factory=NvidiaConfig)
    """By which the scheduler reads requests, too."""

    @property
    def percentage(self) -> str:
        """The resource of memory in percent, which no kubelet knows."""
        return self.config.resource_memory_percentage_name

    @property
    def oversubscribed(self) -> bool:
        return self.memory_scaling > 1 and self.mode != "mig"

    def units(self, total_bytes: int) -> int:
        """Memory units that a card of that many bytes registers (Volcano pkg/scheduler/api/devices/config)."""
        mib = total_bytes // MIB
        scaled = mib if self.mode == "mig" else floor(mib * self.memory_scaling)
        return scaled // self.factor

    @property
    def cores_per_card(self) -> int:
        return int(100 * self.core_scaling)

    def leaves_out(self, index: int, uuid: str) -> bool:
        """Return whether the administrator took this card out by its UUID or NVML index."""
        return index in self.without_indices or uuid in self.without_uuids


class Flags(Struct, frozen=True):
    """The three flags of the command line that count only when given (0: not given)."""

    split: int = 0
    factor: int = 0
    core_scaling: float = 0.0


def needed_factor(entries: int, factor: int) -> int:
    """The ``gpuMemoryFactor`` at which a memory device list would be short enough (Volcano
    pkg/scheduler/api/devices/nvidia/vgpu)."""
    return max(1, -(-factor * entries // 60_000))


def effective(config: NvidiaConfig, entries: Sequence[NodeEntry] = (), flags: Flags | None = None) -> Sharing:
    """The values in force: node entries over flags over the device ConfigMap (Volcano pkg/scheduler/api/devices/config).
    Raises BadInput where they clash."""
    flags = flags or Flags()
    split = flags.split or config.device_split_count
    memory_scaling, core_scaling = config.device_memory_scaling, flags.core_scaling or config.device_core_scaling
    mode, uuids, indices = "hami-core", set[str](), set[int]()
    prefers, numa = True, False
    for entry in entries:
        split = entry.split or split
        memory_scaling = entry.memory_scaling or memory_scaling
        core_scaling = entry.core_scaling or core_scaling
        mode = entry.mode or mode
        prefers = prefers if entry.prefers is None else entry.prefers
        numa = numa if entry.numa is None else entry.numa
        uuids |= entry.without_uuids
        indices |= entry.without_indices
    if mode == MPS and memory_scaling > 1:
        raise BadInput(f"operatingmode mps with deviceMemoryScaling {memory_scaling}: an MPS server lends nobody memory that the "
                       "card does not have; scale by 1")  # fmt: skip
    return Sharing(
        number=config.resource_count_name,
        memory=config.resource_memory_name,
        cores=config.resource_core_name,
        split=split,
        factor=flags.factor or config.gpu_memory_factor or 1,
        memory_scaling=Fraction(str(memory_scaling)),
        core_scaling=Fraction(str(core_scaling)),
        limit_cores=not config.disable_core_limit,
        pass_device_specs=config.pass_device_specs,
        mig_placements=config.mig_placements,
        mode="hami-core" if mode == MPS else mode,
        mps=mode == MPS,
        prefers=prefers,
        numa=numa,
        without_uuids=frozenset(uuids),
        without_indices=frozenset(indices),
        config=config,
    )
