"""The processes on a card and its MIG devices, as NVML lists them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pynvml

from pumice.ports.cards import CardProcess, InstanceReading

_NO_INSTANCE = 0xFFFFFFFF


def processes_on(handle: Any) -> Iterator[CardProcess]:
    """Nothing where the card does not answer. In MIG mode each MIG device is asked, for then a card names its processes only to
    who may see all of them."""
    with suppress(pynvml.NVMLError):
        card = _text(pynvml.nvmlDeviceGetUUID(handle))
        for target in list(_mig_devices(handle)) or [handle]:
            with suppress(pynvml.NVMLError):
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(target):
                    instance = getattr(process, "gpuInstanceId", _NO_INSTANCE)
                    yield CardProcess(
                        card, int(process.pid), int(process.usedGpuMemory or 0),
                        -1 if instance in (None, _NO_INSTANCE) else int(instance),
                    )  # fmt: skip


def instances_of(handle: Any) -> Iterator[InstanceReading]:
    with suppress(pynvml.NVMLError):
        card = _text(pynvml.nvmlDeviceGetUUID(handle))
        for device in _mig_devices(handle):
            with suppress(pynvml.NVMLError):
                gpu, compute = pynvml.nvmlDeviceGetGpuInstanceId(device), pynvml.nvmlDeviceGetComputeInstanceId(device)
                memory, uuid = pynvml.nvmlDeviceGetMemoryInfo(device), _text(pynvml.nvmlDeviceGetUUID(device))
                held = int(memory.used), int(memory.total)
                yield InstanceReading(card, uuid, *_place(handle, gpu), int(gpu), int(compute), *held)


def _mig_devices(handle: Any) -> Iterator[Any]:
    with suppress(pynvml.NVMLError):
        if pynvml.nvmlDeviceGetMigMode(handle)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return
        for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(pynvml.NVMLError):
                yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)


def _place(handle: Any, gpu: int) -> tuple[str, int]:
    """Profile and start of a GPU instance; nothing and -1 where this process may not see it."""
    with suppress(pynvml.NVMLError):
        info = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(handle, gpu))
        for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
                profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, kind)
                if profile.id == info.profileId:
                    return _text(profile.name).removeprefix("MIG "), int(info.placement.start)
    return "", -1


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
