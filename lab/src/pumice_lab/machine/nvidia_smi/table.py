"""The default table of ``nvidia-smi`` and its list of cards (``-L``)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pynvml

from pumice.adapters.nvml.cards import text
from pumice_lab.machine.nvidia_smi.cards import MIB, Card, ask, cuda_version, mig_profile_name, process_name

_LEFT, _MIDDLE, _RIGHT = 41, 24, 22
_WIDTH = _LEFT + _MIDDLE + _RIGHT + 2
NOTICE = "Emulated machine: these cards are simulated by Pumice, there is no NVIDIA hardware behind them."


def listed(cards: list[Card]) -> Iterator[str]:
    """``GPU 0: NAME (UUID: …)``, and under it its MIG devices."""
    for card in cards:
        yield f"GPU {card.index}: {card.name} (UUID: {card.uuid})"
        for number, device in enumerate(card.mig_devices()):
            uuid = text(pynvml.nvmlDeviceGetUUID(device))
            yield f"  MIG {mig_profile_name(device):<11} Device {number:>2}: (UUID: {uuid})"


def versions() -> Iterator[str]:
    driver = text(pynvml.nvmlSystemGetDriverVersion())
    facts = (
        ("NVIDIA-SMI version", f"{driver} (emulated)"), ("NVML version", text(pynvml.nvmlSystemGetNVMLVersion())),
        ("DRIVER version", driver), ("CUDA Version", cuda_version()),
    )  # fmt: skip
    yield from (f"{name:<20}: {value}" for name, value in facts)


def drawn(cards: list[Card], now: datetime) -> Iterator[str]:
    yield now.strftime("%a %b %e %H:%M:%S %Y")
    yield NOTICE
    yield from _summary(cards)
    if any(mode[0] for card in cards if (mode := card.mig_mode())):
        yield ""
        yield from _mig_devices(cards)
    yield ""
    yield from _processes(cards)


def _summary(cards: list[Card]) -> Iterator[str]:
    driver = text(pynvml.nvmlSystemGetDriverVersion())
    between = "+" + "-" * _LEFT + "+" + "-" * _MIDDLE + "+" + "-" * _RIGHT + "+"
    title = f" NVIDIA-SMI (emulated)      Driver Version: {driver:<18} CUDA Version: {cuda_version()}"
    yield "+" + "-" * _WIDTH + "+"
    yield f"|{title:<{_WIDTH}}|"
    yield "|" + between[1:-1] + "|"
    yield _row(" GPU  Name                 Persistence-M", " Bus-Id          Disp.A ", " Volatile Uncorr. ECC ")
    yield _row(" Fan  Temp   Perf          Pwr:Usage/Cap", "           Memory-Usage ", " GPU-Util  Compute M. ")
    yield _row("", "", "               MIG M. ")
    yield "|" + "=" * _LEFT + "+" + "=" * _MIDDLE + "+" + "=" * _RIGHT + "|"
    for card in cards:
        yield from _card_rows(card)
        yield between
    if not cards:
        yield f"|{' No devices were found':<{_WIDTH}}|"
        yield "+" + "-" * _WIDTH + "+"


def _card_rows(card: Card) -> Iterator[str]:
    mode = card.mig_mode()
    memory, load, ecc = card.memory(), card.utilization(), card.ecc_errors() if card.ecc() else None
    persistence = {True: "On", False: "Off", None: "N/A"}[card.persistence()]
    errors = "On" if mode and mode[0] else _or_na(ecc)
    yield _row(
        f" {card.index:>3}  {card.name[:30]:<30} {persistence:>3} ",
        f"   {card.bus_id} Off ",
        f"{errors:>21} ",
    )
    fan = "N/A" if card.fan() is None else f"{card.fan()}%"
    power, limit = card.power_mw(), card.power_limit_mw()
    watts = f"{_watts(power)} / {_watts(limit)}"
    state = card.performance_state()
    temperature = card.temperature()
    degrees = "N/A" if temperature is None else f"{temperature}C"
    used = "N/A" if memory is None else f"{memory[2] // MIB}MiB / {memory[0] // MIB:>6}MiB"
    percent = "N/A" if load is None or (mode and mode[0]) else f"{load[0]}%"
    yield _row(
        f" {fan:>3}  {degrees:>4}    {'P' + str(state) if state is not None else 'N/A':<3}{watts:>23} ",
        f"{used:>23} ",
        f"{percent:>8}{card.compute_mode() or 'N/A':>13} ",
    )
    yield _row("", "", f"{'N/A' if mode is None else 'Enabled' if mode[0] else 'Disabled':>21} ")


def _mig_devices(cards: list[Card]) -> Iterator[str]:
    line = "+" + "-" * 18 + "+" + "-" * 34 + "+" + "-" * 35 + "+"
    yield "+" + "-" * _WIDTH + "+"
    yield f"|{' MIG devices:':<{_WIDTH}}|"
    yield line
    yield f"|{' GPU  GI  CI  MIG':<18}|{'Memory-Usage':>33} |{' SM':<35}|"
    yield f"|{'      ID  ID  Dev':<18}|{'':<34}|{' profile':<35}|"
    yield "|" + "=" * 18 + "+" + "=" * 34 + "+" + "=" * 35 + "|"
    for card in cards:
        for number, device in enumerate(card.mig_devices()):
            gi = ask(pynvml.nvmlDeviceGetGpuInstanceId, device)
            ci = ask(pynvml.nvmlDeviceGetComputeInstanceId, device)
            info = ask(pynvml.nvmlDeviceGetMemoryInfo, device)
            facts: Any = ask(pynvml.nvmlDeviceGetAttributes, device)
            used = "N/A" if info is None else f"{info.used // MIB}MiB / {info.total // MIB}MiB"
            sms = (
                f" {facts.multiprocessorCount} of {mig_profile_name(device)}"
                if facts
                else f" {mig_profile_name(device)}"
            )
            yield f"|{card.index:>3}{_or_na(gi):>5}{_or_na(ci):>4}{number:>4}  |{used:>33} |{sms:<35}|"
            yield line


def _processes(cards: list[Card]) -> Iterator[str]:
    border = "+" + "-" * _WIDTH + "+"
    yield border
    yield f"|{' Processes:':<{_WIDTH}}|"
    yield f"|{'  GPU   GI   CI        PID   Type   Process name':<{_WIDTH - 13}}{'GPU Memory ':>13}|"
    yield f"|{'        ID   ID':<{_WIDTH - 13}}{'Usage      ':>13}|"
    yield "|" + "=" * _WIDTH + "|"
    rows = [(card, kind, process) for card in cards for kind, process in card.processes()]
    for card, kind, process in rows:
        gi, ci = (_instance(getattr(process, name, None)) for name in ("gpuInstanceId", "computeInstanceId"))
        used = "N/A" if process.usedGpuMemory is None else f"{process.usedGpuMemory // MIB}MiB"
        left = f"{card.index:>5}{gi:>5}{ci:>5}{process.pid:>11}{kind:>7}   {process_name(process.pid)}"
        yield f"|{left[: _WIDTH - 12]:<{_WIDTH - 12}}{used:>11} |"
    if not rows:
        yield f"|{'  No running processes found':<{_WIDTH}}|"
    yield border


def _row(left: str, middle: str, right: str) -> str:
    return f"|{left[:_LEFT]:<{_LEFT}}|{middle[:_MIDDLE]:<{_MIDDLE}}|{right[:_RIGHT]:<{_RIGHT}}|"


def _instance(number: int | None) -> str:
    return "N/A" if number is None or number == 0xFFFFFFFF else str(number)


def _or_na(value: int | None) -> str:
    return "N/A" if value is None else str(value)


def _watts(milliwatts: int | None) -> str:
    return "N/A" if milliwatts is None else f"{milliwatts // 1000}W"
