"""The words that people write on pods for vGPUs, as far as lint and what explain tries need to know it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pumice.devices.card_policies import POLICIES
from pumice.devices.protocol import Tunables
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig

MODES = ("hami-core", "mig")
FORBIDDING = (
    names.USE_GPU_TYPE,
    names.NOUSE_GPU_TYPE,
    names.USE_GPU_UUID,
    names.NOUSE_GPU_UUID,
    names.PODGROUP_POLICY,
)
"""Annotations that only ever keep a pod from cards."""


def tunables(c: NvidiaConfig) -> Tunables:
    return Tunables(
        c.resource_count_name, c.resource_memory_name, c.resource_core_name, c.resource_memory_percentage_name,
        memory_unit=c.memory_unit, mode=names.VGPU_MODE, modes=MODES, forbids=FORBIDDING,
    )  # fmt: skip


def steering() -> dict[str, tuple[str, ...]]:
    policies = tuple(POLICIES)
    anything: dict[str, tuple[str, ...]] = dict.fromkeys(FORBIDDING, ())
    return anything | {
        names.VGPU_MODE: MODES, names.PODGROUP_POLICY: ("spread",),
        names.NODE_POLICY: policies, names.CARD_POLICY: policies,
    }  # fmt: skip


def remarks(c: NvidiaConfig, limits: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what does not go together, and UUIDs that are none."""
    if c.resource_count_name in limits or c.resource_memory_name in limits:
        if names.GPU_MEMORY in limits or names.GPU_NUMBER in limits:
            yield "", "vgpu-… and the older gpu-… resources exclude each other on one scheduler"
        if names.WHOLE_GPU in limits:
            yield "", "nvidia.com/gpu belongs to another plugin and gives a whole card beside the share"
    if names.NOUSE_GPU_TYPE in notes and names.USE_GPU_TYPE in notes:
        yield names.NOUSE_GPU_TYPE, f"{names.NOUSE_GPU_TYPE} is not looked at, because {names.USE_GPU_TYPE} is there"
    for key in (names.USE_GPU_UUID, names.NOUSE_GPU_UUID):
        if notes.get(key) and "GPU-" not in str(notes[key]):
            yield key, f"{key}: {notes[key]!r} names no card; UUIDs begin with GPU-"
