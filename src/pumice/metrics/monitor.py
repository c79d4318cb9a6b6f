"""What the node's monitor tells: cards by NVML, containers by their shared regions (spec nvidia-device-plugin 18.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.metrics.exposition import Family, render
from pumice.ports.cards import CardReading
from pumice.ports.region import DeviceUse, RegionSnapshot

ZONE: Final = {"zone": "vGPU"}


@dataclass(frozen=True, slots=True)
class Granted:
    """One device that a container was given: by its annotation, in the order in which the container sees its cards."""

    uuid: str
    limit: int  # bytes


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container with cards. ``region`` is None while it has made no CUDA call."""

    namespace: str
    pod: str
    container: str
    granted: Sequence[Granted] = ()
    region: RegionSnapshot | None = None


def exposition(readings: Iterable[CardReading], containers: Iterable[ContainerView], now: float, *,
               legacy: bool = True, troubles: int = 0) -> str:  # fmt: skip
    """The whole page. ``legacy``: also the three families that carry values in labels; ``troubles``: bad regions."""
    families = [*_host(readings), *_containers(containers, now, legacy)]
    bad = Family("pumice_monitor_bad_regions", "gauge", "Region files that could not be read at this scrape")
    bad.add(troubles, {})
    return render([*families, bad])


def _host(readings: Iterable[CardReading]) -> list[Family]:
    memory = Family("HostGPUMemoryUsage", "gauge", "GPU device memory usage")
    cores = Family("HostCoreUtilization", "gauge", "GPU core utilization")
    for card in readings:
        labels = {"deviceidx": str(card.index), "deviceuuid": card.uuid, **ZONE}
        memory.add(card.memory_used, labels)
        if card.utilization >= 0:
            cores.add(card.utilization, labels)
    return [memory, cores]


def _containers(containers: Iterable[ContainerView], now: float, legacy: bool) -> list[Family]:
    usage = Family("vGPU_device_memory_usage_in_bytes", "gauge", "vGPU device usage")
    limit = Family("vGPU_device_memory_limit_in_bytes", "gauge", "vGPU device limit")
    # Declared a counter although it falls, and with values in its labels: kept as upstream's dashboards know it.
    memory = Family("Device_memory_desc_of_container", "counter", "Container device memory description")
    compute = Family("Device_utilization_desc_of_container", "gauge", "Container device utilization description")
    last = Family("Device_last_kernel_of_container", "gauge", "Container device last kernel description")
    for view in containers:
        for labels, use, bytes_allowed in _devices(view):
            usage.add(use.total, labels)
            limit.add(bytes_allowed, labels)
            if view.region is None or not legacy:
                continue
            parts = {"context": use.context, "module": use.module, "data": use.data, "offset": use.offset}
            memory.add(use.total, {**labels, **{name: str(value) for name, value in parts.items()}})
            compute.add(use.sm, labels)
            if view.region.last_kernel:
                last.add(max(0, int(now) - view.region.last_kernel), labels)
    return [usage, limit, memory, compute, last]


def _devices(view: ContainerView) -> Iterator[tuple[Mapping[str, str], DeviceUse, int]]:
    base = {"podnamespace": view.namespace, "podname": view.pod, "ctrname": view.container, **ZONE}
    if view.region is not None and view.region.devices:
        for device in view.region.devices:
            labels = {**base, "vdeviceid": str(device.index), "deviceuuid": device.uuid}
            yield labels, view.region.used(device.index), device.limit
        return
    for index, granted in enumerate(view.granted):
        yield {**base, "vdeviceid": str(index), "deviceuuid": granted.uuid}, DeviceUse(), granted.limit
