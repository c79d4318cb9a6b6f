"""What the node's monitor tells: cards by NVML, containers by their shared regions (spec nvidia-device-plugin 18.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.metrics.text import Family, counter, gauge, render
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


def monitor_page(readings: Iterable[CardReading], containers: Iterable[ContainerView], now: float, *,
                 legacy: bool = True, troubles: int = 0) -> str:  # fmt: skip
    """The whole page: every value under the name that Volcano's dashboards know, then under HAMi's newer name.

    ``legacy``: also Volcano's three families with values in labels. ``troubles``: regions that could not be read.
    """
    cards, views = list(readings), list(containers)
    families = [*_host(cards), *_containers(views, now, legacy), *_hami_host(cards), *_hami_containers(views, now)]
    bad = gauge("pumice_monitor_bad_regions", "Region files that could not be read at this scrape", [({}, troubles)])
    return render([*(family for family in families if family.samples), bad])


def _host(cards: Sequence[CardReading]) -> list[Family]:
    memory = gauge("HostGPUMemoryUsage", "GPU device memory usage")
    cores = gauge("HostCoreUtilization", "GPU core utilization")
    for card in cards:
        labels = {"deviceidx": str(card.index), "deviceuuid": card.uuid, **ZONE}
        memory.add(card.memory_used, labels)
        if card.utilization >= 0:
            cores.add(card.utilization, labels)
    return [memory, cores]


def _hami_host(cards: Sequence[CardReading]) -> list[Family]:
    memory = gauge("hami_host_gpu_memory_used_bytes", "GPU device memory usage in bytes")
    cores = gauge("hami_host_gpu_utilization_ratio", "GPU core utilization (0 to 100)")
    bus = gauge("hami_host_gpu_memory_controller_utilization_ratio", "Memory controller utilization (0 to 100)")
    for card in cards:
        labels = {"device_index": str(card.index), "device_uuid": card.uuid, "device_type": card.name, **ZONE}
        memory.add(card.memory_used, labels)
        if card.utilization >= 0:
            cores.add(card.utilization, labels)
        if card.memory_utilization >= 0:
            bus.add(card.memory_utilization, labels)
    return [memory, cores, bus]


def _containers(views: Sequence[ContainerView], now: float, legacy: bool) -> list[Family]:
    usage = gauge("vGPU_device_memory_usage_in_bytes", "vGPU device usage")
    limit = gauge("vGPU_device_memory_limit_in_bytes", "vGPU device limit")
    # Declared a counter although it falls, and with values in its labels: kept as upstream's dashboards know it.
    memory = counter("Device_memory_desc_of_container", "Container device memory description")
    compute = gauge("Device_utilization_desc_of_container", "Container device utilization description")
    last = gauge("Device_last_kernel_of_container", "Container device last kernel description")
    for view in views:
        for device in _devices(view):
            labels = {
                "podnamespace": view.namespace, "podname": view.pod, "ctrname": view.container,
                "vdeviceid": str(device.index), "deviceuuid": device.uuid, **ZONE,
            }  # fmt: skip
            use = device.use
            usage.add(use.total, labels)
            limit.add(device.limit, labels)
            if view.region is None or not legacy:
                continue
            parts = {"context": use.context, "module": use.module, "data": use.data, "offset": use.offset}
            memory.add(use.total, {**labels, **{name: str(value) for name, value in parts.items()}})
            compute.add(use.sm, labels)
            if view.region.last_kernel:
                last.add(max(0, int(now) - view.region.last_kernel), labels)
    return [usage, limit, memory, compute, last]


def _hami_containers(views: Sequence[ContainerView], now: float) -> list[Family]:
    usage = gauge("hami_vgpu_memory_used_bytes", "vGPU device memory usage in bytes")
    limit = gauge("hami_vgpu_memory_limit_bytes", "vGPU device memory limit in bytes")
    total = gauge("hami_container_device_memory_bytes", "Container device memory usage in bytes")
    compute = gauge("hami_container_device_utilization_ratio", "Container device SM utilization (0 to 100)")
    last = gauge("hami_container_last_kernel_elapsed_seconds", "Seconds since the container's last kernel")
    context = gauge("hami_vgpu_memory_context_bytes", "Memory of CUDA contexts in bytes")
    module = gauge("hami_vgpu_memory_module_bytes", "Memory of CUDA modules in bytes")
    buffer = gauge("hami_vgpu_memory_buffer_bytes", "Memory of allocations in bytes")
    for view in views:
        for device in _devices(view):
            labels = {
                "namespace": view.namespace, "pod": view.pod, "container": view.container,
                "vdevice_index": str(device.index), "device_uuid": device.uuid, **ZONE,
            }  # fmt: skip
            use = device.use
            usage.add(use.total, labels)
            limit.add(device.limit, labels)
            if view.region is None:
                continue
            for family, value in ((total, use.total), (compute, use.sm), (context, use.context),
                                  (module, use.module), (buffer, use.data)):  # fmt: skip
                family.add(value, labels)
            if view.region.last_kernel:
                last.add(max(0, int(now) - view.region.last_kernel), labels)
    return [usage, limit, total, compute, last, context, module, buffer]


@dataclass(frozen=True, slots=True)
class _Device:
    index: int
    uuid: str
    limit: int
    use: DeviceUse


def _devices(view: ContainerView) -> Iterator[_Device]:
    if view.region is not None and view.region.devices:
        for device in view.region.devices:
            yield _Device(device.index, device.uuid, device.limit, view.region.used(device.index))
        return
    for index, granted in enumerate(view.granted):
        yield _Device(index, granted.uuid, granted.limit, DeviceUse())
