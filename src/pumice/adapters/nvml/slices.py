"""``ports.slices.Slices`` over NVML: GPU instances with exact placements, each filled by one compute instance.

Places are the driver's own (``nvmlDeviceGetGpuInstancePossiblePlacements``), and nothing is kept between calls but what a
card's model offers: whoever else cuts the card is seen at the next look.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from pumice.adapters.nvml.cards import text
from pumice.ports.slices import CutRefused, NoRights, Place, Slice, SliceProfile

_MOST = 32
"""Instances and placements of one card; today's have 7 and 8."""
CAPABILITIES = Path("/proc/driver/nvidia-caps/mig-minors")


@dataclass(frozen=True, slots=True)
class _Profile:
    """A profile of GPU instances. ``compute`` is how many compute slices an instance has, ``id`` the driver's number of the
    profile."""

    facts: SliceProfile
    id: int
    compute: int


class NvmlSlices:
    """The slices of this machine's cards; NVML is initialised by whoever opened them (``NvmlCards``)."""

    def __init__(self, capabilities: Path = CAPABILITIES) -> None:
        self._offered: dict[str, tuple[_Profile, ...]] = {}
        self._capabilities = capabilities

    def profiles(self, card: str) -> tuple[SliceProfile, ...]:
        return tuple(profile.facts for profile in self._profiles(card))

    def slices(self, card: str) -> tuple[Slice, ...]:
        with _reported(f"card {card}"):
            devices = _devices(_card(card))
            minors = self._minors()
            found = []
            for profile, instance in self._instances(card):
                info = pynvml.nvmlGpuInstanceGetInfo(instance)
                parts = len(_computes(instance))
                here = devices.get(info.id, ()) if parts else ()
                found.append(Slice(
                    Place(card, profile.facts.name, int(info.placement.start)), int(info.placement.size),
                    here[0][0] if parts == 1 and here else "", parts, any(busy for _, _, busy in here),
                    _nodes(minors, _minor(card), info.id, [compute for _, compute, _ in here]),
                ))  # fmt: skip
        return tuple(sorted(found, key=lambda slice_: slice_.place))

    def allowed(self, card: str) -> str:
        """Asked of the driver with a placement that no card has, so that nothing can come of it."""
        nowhere = pynvml.c_nvmlGpuInstancePlacement_t(start=255, size=255)
        try:
            offered = self._profiles(card)
            if offered:
                pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(_card(card), offered[-1].id, ctypes.byref(nowhere))
        except NoRights as refused:
            return str(refused)
        except pynvml.NVMLError_NoPermission:
            return _RIGHTS
        except (pynvml.NVMLError, CutRefused):
            return ""
        return ""

    def make(self, place: Place) -> None:
        with _reported(f"slice {place} of card {place.card}"):
            profile = self._profile(place)
            at = pynvml.c_nvmlGpuInstancePlacement_t(start=place.start, size=profile.facts.size)
            pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(_card(place.card), profile.id, ctypes.byref(at))

    def fill(self, place: Place) -> str:
        with _reported(f"slice {place} of card {place.card}"):
            profile, instance = self._profile(place), self._instance(place)
            if not _computes(instance):
                pynvml.nvmlGpuInstanceCreateComputeInstance(instance, _filling(instance, profile.compute))
            here = _devices(_card(place.card)).get(pynvml.nvmlGpuInstanceGetInfo(instance).id, ())
        if len(here) != 1:
            raise CutRefused(f"slice {place} of card {place.card} has {len(here)} devices instead of one")
        return here[0][0]

    def drain(self, place: Place) -> None:
        with _reported(f"slice {place} of card {place.card}"):
            for compute in _computes(self._instance(place)):
                pynvml.nvmlComputeInstanceDestroy(compute)

    def remove(self, place: Place) -> None:
        with _reported(f"slice {place} of card {place.card}"):
            pynvml.nvmlGpuInstanceDestroy(self._instance(place))

    # -- what the driver offers and has --------------------------------------------------------------------------

    def _profiles(self, card: str) -> tuple[_Profile, ...]:
        if card not in self._offered:
            with _reported(f"card {card}"):
                found = tuple(_offered(_card(card)))
            if not found:
                return ()  # MIG mode may be switched on yet
            self._offered[card] = found
        return self._offered[card]

    def _profile(self, place: Place) -> _Profile:
        offered = self._profiles(place.card)
        for profile in offered:
            if profile.facts.name == place.profile:
                return profile
        names = ", ".join(profile.facts.name for profile in offered) or "none: its MIG mode is off"
        raise CutRefused(f"card {place.card} has no profile {place.profile}; its driver offers {names}")

    def _instances(self, card: str) -> Iterator[tuple[_Profile, Any]]:
        handle, room = _card(card), (pynvml.c_nvmlGpuInstance_t * _MOST)()
        for profile in self._profiles(card):
            count = ctypes.c_uint(_MOST)
            with suppress(pynvml.NVMLError_NotSupported):
                pynvml.nvmlDeviceGetGpuInstances(handle, profile.id, room, ctypes.byref(count))
                yield from ((profile, _kept(room[i])) for i in range(count.value))

    def _instance(self, place: Place) -> Any:
        for profile, instance in self._instances(place.card):
            if profile.facts.name == place.profile and pynvml.nvmlGpuInstanceGetInfo(instance).placement.start == place.start:
                return instance
        raise CutRefused(f"slice {place} of card {place.card} is not there")

    def _minors(self) -> dict[str, int]:
        try:
            lines = self._capabilities.read_text("ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            return {}
        words = (line.split() for line in lines)
        return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


_RIGHTS = "this process may not cut it; the plugin's container needs CAP_SYS_ADMIN and NVIDIA_MIG_CONFIG_DEVICES=all"


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """NVML's refusals in our words."""
    try:
        yield
    except pynvml.NVMLError_NoPermission as error:
        raise NoRights(f"{what}: {_RIGHTS}") from error
    except pynvml.NVMLError as error:
        raise CutRefused(f"{what}: {error}") from error


def _offered(handle: Any) -> Iterator[_Profile]:
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, kind)
            room, count = (pynvml.c_nvmlGpuInstancePlacement_t * _MOST)(), ctypes.c_uint(_MOST)
            pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, info.id, room, ctypes.byref(count))
            places = room[: count.value]
            if places:
                starts = tuple(sorted(int(place.start) for place in places))
                name = text(info.name).removeprefix("MIG ")
                yield _Profile(SliceProfile(name, int(places[0].size), starts), int(info.id), int(info.sliceCount))


def _devices(handle: Any) -> dict[int, tuple[tuple[str, int, bool], ...]]:
    """By GPU instance its MIG devices: UUID, compute instance, and whether a process is on it."""
    found: dict[int, tuple[tuple[str, int, bool], ...]] = {}
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            gpu, compute = pynvml.nvmlDeviceGetGpuInstanceId(device), pynvml.nvmlDeviceGetComputeInstanceId(device)
            busy = bool(pynvml.nvmlDeviceGetComputeRunningProcesses(device))
            found[gpu] = (*found.get(gpu, ()), (text(pynvml.nvmlDeviceGetUUID(device)), compute, busy))
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            continue  # none of that number, or gone meanwhile
    return found


def _computes(instance: Any) -> list[Any]:
    found: list[Any] = []
    for kind in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            room, count = (pynvml.c_nvmlComputeInstance_t * _MOST)(), ctypes.c_uint(_MOST)
            pynvml.nvmlGpuInstanceGetComputeInstances(instance, kind, room, ctypes.byref(count))
            found += [_kept(room[i]) for i in range(count.value)]
    return found


def _filling(instance: Any, slices: int) -> int:
    """The compute profile that takes the whole instance."""
    for kind in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, kind, 0)
            if info.sliceCount == slices:
                return int(info.id)
    raise CutRefused(f"no compute instance fills {slices} slices")


def _nodes(minors: dict[str, int], card: int, gpu: int, computes: list[int]) -> tuple[str, ...]:
    """The capability files of an instance and its compute instances (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu)."""
    names = [f"gpu{card}/gi{gpu}/access", *(f"gpu{card}/gi{gpu}/ci{compute}/access" for compute in computes)]
    return tuple(f"/dev/nvidia-caps/nvidia-cap{minors[name]}" for name in names if name in minors)


def _minor(card: str) -> int:
    with suppress(pynvml.NVMLError):
        return int(pynvml.nvmlDeviceGetMinorNumber(_card(card)))
    return -1


def _card(uuid: str) -> Any:
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def _kept(handle: Any) -> Any:
    """The handle as a value of its own, whatever the array that it lies in is used for next."""
    return ctypes.cast(handle, type(handle))
