"""MIG by ``nvidia-smi``: the mode (``-mig 0|1``) and the instances (``nvidia-smi mig …``).

Every decision is the driver's; here its verdicts are only put into words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from pumice.adapters.nvml.cards import text
from pumice_lab.machine.nvidia_smi.cards import Card, ask


class Refused(Exception):
    """The driver refused; the text is the line to print."""


def set_mode(cards: list[Card], enable: bool) -> Iterator[str]:
    """Switches MIG mode; a card in use keeps the old mode and shows the new one as pending."""
    word = "Enabled" if enable else "Disabled"
    for card in cards:
        try:
            status = pynvml.nvmlDeviceSetMigMode(card.handle, int(enable))
        except pynvml.NVMLError as error:
            raise Refused(f"Unable to {word[:-1].lower()} MIG Mode for GPU {card.bus_id}: {_reason(error)}") from None
        if status != pynvml.NVML_SUCCESS:
            yield (
                f"Warning: MIG mode is in pending {word[:-1].lower()} state for GPU {card.bus_id}:"
                f"{_reason(pynvml.NVMLError(status))}"
            )
        else:
            yield f"{word} MIG Mode for GPU {card.bus_id}"
    yield "All done."


def list_profiles(cards: list[Card]) -> Iterator[str]:
    """``mig -lgip``: what can be made, and how often still."""
    line = "+" + "-" * 79 + "+"
    yield line
    yield f"|{' GPU instance profiles:':<79}|"
    yield f"|{' GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC':<79}|"
    yield f"|{'                                Free/Total   GiB              CE    JPEG  OFA':<79}|"
    yield "|" + "=" * 79 + "|"
    for card in cards:
        for info in profiles(card):
            free = pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(card.handle, info.id)
            name = f"MIG {profile_name(info)}"
            counts = f"{free}/{info.instanceCount}"
            first = (
                f"{card.index:>4}  {name:<19}{info.id:>3}{counts:>8}{info.memorySizeMB / 1024:>12.2f}"
                f"{'Yes' if info.isP2pSupported else 'No':>8}{info.multiprocessorCount:>7}"
                f"{info.decoderCount:>6}{info.encoderCount:>6}"
            )
            second = f"{info.copyEngineCount:>63}{info.jpegCount:>6}{info.ofaCount:>6}"
            yield f"|{first:<79}|"
            yield f"|{second:<79}|"
            yield line


def list_placements(cards: list[Card]) -> Iterator[str]:
    """``mig -lgipp``: where each profile may lie."""
    for card in cards:
        for info in profiles(card):
            room = _array(pynvml.c_nvmlGpuInstancePlacement_t, 32)
            count = ctypes.c_uint(32)
            pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(card.handle, info.id, room, ctypes.byref(count))
            starts = ",".join(str(room[number].start) for number in range(count.value))
            word = "Placements" if count.value > 1 else "Placement "
            yield f"GPU {card.index:>2} Profile ID {info.id:>2} {word}: {{{starts}}}:{room[0].size}"


def list_instances(cards: list[Card]) -> Iterator[str]:
    """``mig -lgi``: the GPU instances."""
    rows = [(card, info, made) for card in cards for info in profiles(card) for _, made in gpu_instances(card, info)]
    if not rows:
        raise Refused("No GPU instances found: Not Found")
    line = "+" + "-" * 55 + "+"
    yield line
    yield f"|{' GPU instances:':<55}|"
    yield f"|{' GPU   Name             Profile  Instance   Placement':<55}|"
    yield f"|{'                          ID       ID       Start:Size':<55}|"
    yield "|" + "=" * 55 + "|"
    for card, info, made in sorted(rows, key=lambda row: (row[0].index, row[2].id)):
        place = f"{made.placement.start}:{made.placement.size}"
        yield f"|{card.index:>4}  {'MIG ' + profile_name(info):<19}{info.id:>4}{made.id:>9}{place:>13}{'':<4}|"
        yield line


def create(cards: list[Card], wanted: list[str], *, with_compute: bool) -> Iterator[str]:
    """``mig -cgi``: each wanted is a profile id or name, with ``:start`` when it is to lie there."""
    for card in cards:
        for word in wanted:
            name, _, start = word.strip().removeprefix("MIG ").partition(":")
            info = _wanted(card, name)
            try:
                instance = _create(card, info, start)
            except pynvml.NVMLError as error:
                raise Refused(
                    f"Unable to create a GPU instance on GPU {card.index:>2} using profile {info.id}: {_reason(error)}\n"
                    f"Failed to create GPU instances: {_reason(error)}"
                ) from None
            number = pynvml.nvmlGpuInstanceGetInfo(instance).id
            label = f"profile MIG {profile_name(info)} (ID {info.id:>2})"
            yield f"Successfully created GPU instance ID {number:>2} on GPU {card.index:>2} using {label}"
            if with_compute:
                yield from _fill(card, instance, number, info)


def destroy(cards: list[Card], numbers: list[int]) -> Iterator[str]:
    """``mig -dgi``: the GPU instances of the given ids, or all; compute instances in them must be gone."""
    yield from _each_instance(cards, numbers, _destroy_instance)


def destroy_compute(cards: list[Card], numbers: list[int]) -> Iterator[str]:
    """``mig -dci``: the compute instances in the GPU instances of the given ids, or in all."""
    yield from _each_instance(cards, numbers, _destroy_compute)


def profiles(card: Card) -> list[Any]:
    """The GPU instance profiles of the card, as NVML describes them."""
    numbers = range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
    found = (ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, card.handle, number) for number in numbers)
    return [info for info in found if info is not None]


def profile_name(info: Any) -> str:
    return text(info.name).removeprefix("MIG ")


def gpu_instances(card: Card, info: Any) -> list[tuple[Any, Any]]:
    """``(handle, info)`` of the card's GPU instances of one profile."""
    room = _array(pynvml.c_nvmlGpuInstance_t, max(1, info.instanceCount))
    count = ctypes.c_uint(0)
    if ask(pynvml.nvmlDeviceGetGpuInstances, card.handle, info.id, room, ctypes.byref(count)) is None:
        return []
    return [(room[number], pynvml.nvmlGpuInstanceGetInfo(room[number])) for number in range(count.value)]


def _create(card: Card, info: Any, start: str) -> Any:
    if not start:
        return pynvml.nvmlDeviceCreateGpuInstance(card.handle, info.id)
    room = _array(pynvml.c_nvmlGpuInstancePlacement_t, 32)
    count = ctypes.c_uint(32)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(card.handle, info.id, room, ctypes.byref(count))
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start=int(start), size=room[0].size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(card.handle, info.id, ctypes.byref(placement))


def _fill(card: Card, instance: Any, number: int, info: Any) -> Iterator[str]:
    """One compute instance that fills the GPU instance, as ``-C`` makes it."""
    for kind in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        compute = ask(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, kind, 0)
        if compute is not None and compute.sliceCount == info.sliceCount:
            try:
                made = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, compute.id)
            except pynvml.NVMLError as error:
                raise Refused(f"Failed to create compute instances: {_reason(error)}") from None
            compute_number = pynvml.nvmlComputeInstanceGetInfo(made).id
            yield (
                f"Successfully created compute instance ID {compute_number:>2} on GPU {card.index:>2} GPU instance ID"
                f" {number:>2} using profile MIG {profile_name(info)} (ID {compute.id:>2})"
            )
            return


def _each_instance(
    cards: list[Card], numbers: list[int], act: Callable[[Card, Any, Any], Iterator[str]]
) -> Iterator[str]:
    found = 0
    for card in cards:
        for info in profiles(card):
            for handle, made in gpu_instances(card, info):
                if not numbers or made.id in numbers:
                    found += 1
                    yield from act(card, handle, made)
    if not found:
        raise Refused("No GPU instances found: Not Found")


def _destroy_instance(card: Card, handle: Any, made: Any) -> Iterator[str]:
    try:
        pynvml.nvmlGpuInstanceDestroy(handle)
    except pynvml.NVMLError as error:
        raise Refused(
            f"Unable to destroy GPU instance ID {made.id:>2} from GPU {card.index:>2}: {_reason(error)}\n"
            f"Failed to destroy GPU instances: {_reason(error)}"
        ) from None
    yield f"Successfully destroyed GPU instance ID {made.id:>2} from GPU {card.index:>2}"


def _destroy_compute(card: Card, handle: Any, made: Any) -> Iterator[str]:
    for compute in _compute_instances(handle):
        number = pynvml.nvmlComputeInstanceGetInfo(compute).id
        place = f"compute instance ID {number:>2} from GPU {card.index:>2} GPU instance ID {made.id:>2}"
        try:
            pynvml.nvmlComputeInstanceDestroy(compute)
        except pynvml.NVMLError as error:
            raise Refused(f"Unable to destroy {place}: {_reason(error)}") from None
        yield f"Successfully destroyed {place}"


def _compute_instances(instance: Any) -> Iterator[Any]:
    for kind in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        compute = ask(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, kind, 0)
        if compute is None:
            continue
        room = _array(pynvml.c_nvmlComputeInstance_t, max(1, compute.instanceCount))
        count = ctypes.c_uint(0)
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, compute.id, room, ctypes.byref(count))
        yield from (room[number] for number in range(count.value))


def _wanted(card: Card, name: str) -> Any:
    known = profiles(card)
    for info in known:
        if name in (str(info.id), profile_name(info)):
            return info
    names = ", ".join(f"{info.id} ({profile_name(info)})" for info in known) or "none in this mode"
    raise Refused(f"Unable to create a GPU instance on GPU {card.index:>2}: no profile {name}; known: {names}")


def _array(kind: Any, count: int) -> Any:
    return (kind * count)()


def _reason(error: Any) -> str:
    return str(error)
