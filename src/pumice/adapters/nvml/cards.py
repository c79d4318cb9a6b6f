"""``ports.cards.Cards`` and ``WatchedCards`` over NVML.

One unhealthy card never takes the others with it: a call that fails for one card leaves that card out (defects D11, D16).
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from pumice.ports.cards import LOST, CardEvent, CardFacts, CardProcess, CardReading, CardsUnavailable, InstanceReading

_EVENTS = pynvml.nvmlEventTypeXidCriticalError | (
    pynvml.nvmlEventTypeDoubleBitEccError | pynvml.nvmlEventTypeSingleBitEccError
)
_RECOVERY_ACTION = 230  # field id "GPU recovery action"; 0 means none


def _warn(words: str, *about: object) -> None:
    import logging  # here: a program of `pumice run` waits for what is imported, and is warned of nothing

    logging.getLogger("pumice.nvml").warning(words, *about)


class NvmlCards:
    """The cards of this machine. Raises CardsUnavailable when the driver does not answer at all.

    ``library``: a directory or file with the library to load; empty means the system's. A library of the same SONAME
    that the process has already loaded is the one that answers.
    """

    def __init__(self, library: str | Path = "") -> None:
        if library:
            path = Path(library)
            path = path / "libnvidia-ml.so.1" if path.is_dir() else path
            try:
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise CardsUnavailable(f"cannot load {path}: {error}") from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise CardsUnavailable(f"no NVIDIA driver answers: {error}") from error
        self._set: Any = None
        self._wanted: dict[str, None] = {}
        self._watched: dict[int, str] = {}
        """UUID by handle of the cards whose events come: a card that is lost does not tell its UUID any more."""
        self._failing = ""

    def close(self) -> None:
        with suppress(pynvml.NVMLError):
            if self._set is not None:
                pynvml.nvmlEventSetFree(self._set)
            pynvml.nvmlShutdown()
        self._set = None

    def driver_version(self) -> str:
        try:
            return text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            raise CardsUnavailable(f"the NVIDIA driver does not tell its version: {error}") from error

    def facts(self) -> tuple[CardFacts, ...]:
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise CardsUnavailable(f"the NVIDIA driver does not count its cards: {error}") from error
        found, ends = [], {}
        for index in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                card = _facts(index, handle)
            except pynvml.NVMLError as error:
                _warn("card %d does not answer: %s", index, error)
                continue
            found.append(card)
            ends[card.uuid] = link_ends(handle)
        return with_links(found, ends)

    def readings(self) -> tuple[CardReading, ...]:
        return tuple(reading for index, handle in self._handles() if (reading := _reading(index, handle)))

    def processes(self) -> tuple[CardProcess, ...]:
        return tuple(process for _, handle in self._handles() for process in processes_on(handle))

    def instances(self) -> tuple[InstanceReading, ...]:
        return tuple(reading for _, handle in self._handles() for reading in instances_of(handle))

    def subscribe(self, uuids: Sequence[str]) -> dict[str, str]:
        try:
            self._set = self._set or pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            _warn("the driver has no events, so only lost cards are noticed: %s", error)
            return dict.fromkeys(uuids, "unsupported")
        self._wanted |= dict.fromkeys(uuids)
        return {uuid: trouble for uuid in uuids if (trouble := self._register(uuid))}

    def _register(self, uuid: str) -> str:
        """Let the events of a card come; what is in the way, else empty."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            kinds = _EVENTS & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
            pynvml.nvmlDeviceRegisterEvents(handle, kinds, self._set)
        except pynvml.NVMLError_NotSupported:
            return "unsupported"
        except pynvml.NVMLError as error:
            return str(error)
        self._watched[_address(handle)] = uuid
        return ""

    def events(self) -> tuple[CardEvent, ...]:
        found: list[CardEvent] = []
        while self._set is not None and len(found) < 256:
            try:
                data = pynvml.nvmlEventSetWait(self._set, 0)
            except pynvml.NVMLError_Timeout:
                break
            except pynvml.NVMLError as error:
                found += self._wait_failed(str(error))
                break
            self._failing = ""
            if data.eventType & pynvml.nvmlEventTypeXidCriticalError:
                uuid = self._watched.get(_address(data.device)) or _uuid(data.device)
                found.append(CardEvent(uuid, int(data.eventData)))
        return tuple(found)

    def _wait_failed(self, error: str) -> list[CardEvent]:
        """The wait does not say which card failed it: those that answer no more did. The others get a new set, for a set
        with a lost card may fail every wait from now on."""
        lost = [uuid for uuid in self._watched.values() if not self.answers(uuid)]
        if error != self._failing:
            _warn("waiting for events of the cards failed: %s; lost=%s", error, ",".join(lost) or "none")
            self._failing = error
        if lost:
            watched, self._watched = list(self._watched.values()), {}
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._set)
            self._set = None
            self.subscribe([uuid for uuid in watched if uuid not in lost])
        return [CardEvent(uuid, LOST) for uuid in lost]

    def answers(self, uuid: str) -> bool:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            pynvml.nvmlDeviceGetMemoryInfo(handle)
        except pynvml.NVMLError:
            return False
        with suppress(pynvml.NVMLError):  # older drivers do not know the field
            value = pynvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_ACTION])[0]
            if value.nvmlReturn == pynvml.NVML_SUCCESS and value.value.uiVal != 0:
                return False
        if self._set is not None and uuid in self._wanted and uuid not in self._watched.values():
            self._register(uuid)  # it is back
        return True

    def _handles(self) -> Iterator[tuple[int, Any]]:
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise CardsUnavailable(f"the NVIDIA driver does not count its cards: {error}") from error
        for index in range(count):
            with suppress(pynvml.NVMLError):
                yield index, pynvml.nvmlDeviceGetHandleByIndex(index)


def _facts(index: int, handle: Any) -> CardFacts:
    """Facts of one card. UUID, name and memory must be told; without the rest it can still be shared."""
    bus_id = text(_or(b"", lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId))
    nodes = _or((), lambda: pynvml.nvmlDeviceGetMemoryAffinity(handle, 1, pynvml.NVML_AFFINITY_SCOPE_NODE))
    return CardFacts(
        index=index,
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        name=text(pynvml.nvmlDeviceGetName(handle)),
        memory=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        minor=_or(-1, lambda: int(pynvml.nvmlDeviceGetMinorNumber(handle))),
        mig=_or(False, lambda: pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE),
        numa=_first_bit(nodes) if any(nodes) else _numa(bus_id),
        bus_id=bus_id,
        pci_id=_or(0, lambda: int(pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId)),
        capability=_or((0, 0), lambda: _capability(handle)),
    )


def _capability(handle: Any) -> tuple[int, int]:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return int(major), int(minor)


def _reading(index: int, handle: Any) -> CardReading | None:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        uuid = text(pynvml.nvmlDeviceGetUUID(handle))
    except pynvml.NVMLError:
        return None
    rates = _or(None, lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))  # not told for cards in MIG mode
    return CardReading(
        index=index,
        uuid=uuid,
        memory_used=int(memory.used),
        memory_total=int(memory.total),
        utilization=int(rates.gpu) if rates else -1,
        memory_utilization=int(rates.memory) if rates else -1,
        name=text(_or("", lambda: pynvml.nvmlDeviceGetName(handle))),
    )


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _uuid(handle: Any) -> str:
    return text(_or("", lambda: pynvml.nvmlDeviceGetUUID(handle)))


def _first_bit(words: Iterable[int]) -> int:
    bits = sum(int(word) << (64 * position) for position, word in enumerate(words))
    return (bits & -bits).bit_length() - 1


def _numa(bus_id: str) -> int:
    # sysfs shortens NVML's eight digits of PCI domain to four
    domain, colon, rest = bus_id.lower().partition(":")
    path = Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node")
    try:
        return int(path.read_text("ascii")) if colon else -1
    except (OSError, ValueError):
        return -1


def _or(fallback: Any, ask: Any) -> Any:
    try:
        return ask()
    except pynvml.NVMLError:
        return fallback


def text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# -- NVLinks between the cards of one machine, directly or through switches -------------------------------------------


SWITCH = "switch"


def link_ends(handle: Any) -> Counter[str]:
    """The peers of the card's links that are up: PCI address of a card, or ``switch``, with the number of links."""
    ends: Counter[str] = Counter()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) != pynvml.NVML_FEATURE_ENABLED:
                continue
            ends[_end(handle, link)] += 1
        except pynvml.NVMLError:
            break  # no such link, so no further one either
    return ends


def _end(handle: Any, link: int) -> str:
    try:
        if pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return SWITCH
    except pynvml.NVMLError:  # older drivers tell only the address
        pass
    return text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId).upper()


def with_links(cards: Sequence[CardFacts], ends: Mapping[str, Mapping[str, int]]) -> tuple[CardFacts, ...]:
    """The cards with their peers. Cards on switches reach each other with as many links as the lesser of them has."""
    return tuple(replace(card, links=tuple(_peers(card, cards, ends))) for card in cards)


def _peers(
    card: CardFacts, cards: Sequence[CardFacts], ends: Mapping[str, Mapping[str, int]]
) -> list[tuple[str, int]]:
    mine = ends.get(card.uuid, {})
    peers = []
    for other in cards:
        switched = min(mine.get(SWITCH, 0), ends.get(other.uuid, {}).get(SWITCH, 0))
        width = mine.get(other.bus_id.upper(), 0) + switched
        if other.uuid != card.uuid and width:
            peers.append((other.uuid, width))
    return peers


# -- The processes on a card and its MIG devices, as NVML lists them --------------------------------------------------


_NO_INSTANCE = 0xFFFFFFFF


def processes_on(handle: Any) -> Iterator[CardProcess]:
    """Nothing where the card does not answer. In MIG mode each MIG device is asked, for then a card names its processes only to
    who may see all of them."""
    with suppress(pynvml.NVMLError):
        card = text(pynvml.nvmlDeviceGetUUID(handle))
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
        card = text(pynvml.nvmlDeviceGetUUID(handle))
        for device in _mig_devices(handle):
            with suppress(pynvml.NVMLError):
                gpu, compute = pynvml.nvmlDeviceGetGpuInstanceId(device), pynvml.nvmlDeviceGetComputeInstanceId(device)
                memory, uuid = pynvml.nvmlDeviceGetMemoryInfo(device), text(pynvml.nvmlDeviceGetUUID(device))
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
                    return text(profile.name).removeprefix("MIG "), int(info.placement.start)
    return "", -1
