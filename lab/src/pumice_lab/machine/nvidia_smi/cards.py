"""Facts of each card by NVML, read once; a fact that the card does not have is None and shows as N/A."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from pumice.adapters.nvml.cards import text

MIB = 1 << 20
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Card:
    """One card by its NVML handle. The methods ask NVML when they are called."""

    index: int
    handle: Any
    uuid: str
    bus_id: str

    @property
    def name(self) -> str:
        return text(pynvml.nvmlDeviceGetName(self.handle))

    def memory(self) -> tuple[int, int, int, int] | None:
        """Total, reserved, used and free bytes, as v2 of the call has them; v1 counts the reserve as used."""
        if info := ask(pynvml.nvmlDeviceGetMemoryInfo, self.handle, pynvml.nvmlMemory_v2):
            return info.total, info.reserved, info.used, info.free
        if info := ask(pynvml.nvmlDeviceGetMemoryInfo, self.handle):
            return info.total, 0, info.used, info.free
        return None

    def bar1(self) -> Any | None:
        return ask(pynvml.nvmlDeviceGetBAR1MemoryInfo, self.handle)

    def utilization(self) -> tuple[int, int] | None:
        """GPU and memory percent; no value in MIG mode."""
        rates = ask(pynvml.nvmlDeviceGetUtilizationRates, self.handle)
        return (rates.gpu, rates.memory) if rates else None

    def temperature(self) -> int | None:
        return ask(lambda: int(pynvml.nvmlDeviceGetTemperature(self.handle, pynvml.NVML_TEMPERATURE_GPU)))

    def fan(self) -> int | None:
        return ask(lambda: int(pynvml.nvmlDeviceGetFanSpeed(self.handle)))

    def power_mw(self) -> int | None:
        return ask(lambda: int(pynvml.nvmlDeviceGetPowerUsage(self.handle)))

    def power_limit_mw(self) -> int | None:
        return ask(lambda: int(pynvml.nvmlDeviceGetEnforcedPowerLimit(self.handle)))

    def performance_state(self) -> int | None:
        return ask(lambda: int(pynvml.nvmlDeviceGetPerformanceState(self.handle)))

    def persistence(self) -> bool | None:
        return ask(lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(self.handle)))

    def compute_mode(self) -> str | None:
        names = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
        return ask(lambda: names[pynvml.nvmlDeviceGetComputeMode(self.handle)])

    def ecc(self) -> bool | None:
        return ask(lambda: bool(pynvml.nvmlDeviceGetEccMode(self.handle)[0]))

    def ecc_errors(self) -> int | None:
        kind, counter = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        return ask(lambda: int(pynvml.nvmlDeviceGetTotalEccErrors(self.handle, kind, counter)))

    def clock(self, kind: int, *, most: bool = False) -> int | None:
        call = pynvml.nvmlDeviceGetMaxClockInfo if most else pynvml.nvmlDeviceGetClockInfo
        return ask(lambda: int(call(self.handle, kind)))

    def mig_mode(self) -> tuple[bool, bool] | None:
        """Current and pending mode, or None on a card without MIG."""
        modes = ask(pynvml.nvmlDeviceGetMigMode, self.handle)
        return (bool(modes[0]), bool(modes[1])) if modes else None

    def mig_devices(self) -> Iterator[Any]:
        """The handles of the MIG devices, by their number on the card."""
        for number in range(ask(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(self.handle))) or 0):
            handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, self.handle, number)
            if handle is not None:
                yield handle

    def processes(self) -> list[tuple[str, Any]]:
        """``("C", process)`` for compute and ``("G", process)`` for graphics."""
        compute = ask(pynvml.nvmlDeviceGetComputeRunningProcesses, self.handle) or []
        graphics = ask(pynvml.nvmlDeviceGetGraphicsRunningProcesses, self.handle) or []
        return [("C", process) for process in compute] + [("G", process) for process in graphics]


def cards(wanted: list[str]) -> list[Card]:
    """The cards named by index, UUID or PCI address (all without names); raises ``LookupError`` with the odd one."""
    found = [_card(index) for index in range(pynvml.nvmlDeviceGetCount())]
    present = [card for card in found if card is not None]
    if not wanted:
        return present
    chosen: dict[int, Card] = {}
    for word in wanted:
        matching = [card for card in present if word in (str(card.index), card.uuid) or _same_bus(word, card.bus_id)]
        if not matching:
            raise LookupError(word)
        chosen.update((card.index, card) for card in matching)
    return [chosen[index] for index in sorted(chosen)]


def _card(index: int) -> Card | None:
    """None for a card that fell off the bus: it cannot even say its name."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        bus_id = text(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        return Card(index, handle, text(pynvml.nvmlDeviceGetUUID(handle)), bus_id)
    except pynvml.NVMLError:
        return None


def _same_bus(word: str, bus_id: str) -> bool:
    return ":" in word and bus_id.upper().endswith(word.upper().lstrip("0").lstrip(":"))


def ask(question: Callable[..., _T], *about: Any) -> _T | None:
    """The answer, or None where NVML has none (not supported, not found, card lost)."""
    try:
        return question(*about)
    except pynvml.NVMLError:
        return None


def enabled(value: bool | None) -> str | None:
    return None if value is None else "Enabled" if value else "Disabled"


def process_name(pid: int) -> str:
    return ask(lambda: text(pynvml.nvmlSystemGetProcessName(pid))) or "[Not Found]"


def mig_profile_name(mig_handle: Any) -> str:
    """``1g.5gb`` of ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``."""
    return text(pynvml.nvmlDeviceGetName(mig_handle)).rpartition("MIG ")[2]


def cuda_version() -> str:
    version = ask(lambda: int(pynvml.nvmlSystemGetCudaDriverVersion_v2())) or 0
    return f"{version // 1000}.{version % 1000 // 10}"
