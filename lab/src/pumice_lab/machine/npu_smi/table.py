"""The table of whole chips of ``npu-smi info``."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.adapters.dcmi.cards import HEALTH
from pumice.adapters.dcmi.driver import Dcmi, Device
from pumice.ports.slices import NpuRefused

_LEFT, _MIDDLE, _RIGHT = 27, 17, 56
_WIDTH = _LEFT + _MIDDLE + _RIGHT + 2


def drawn(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    """The table: two lines a chip."""
    rule = f"+{'-' * _LEFT}+{'-' * _MIDDLE}+{'-' * _RIGHT}+"
    double = rule.replace("-", "=")
    version = dcmi.version()
    yield f"+{'-' * _WIDTH}+"
    yield f"|{f' npu-smi {version}':<50}{f'Version: {version}':<{_WIDTH - 50}}|"
    yield rule
    yield _row("NPU     Name", "Health", "Power(W)    Temp(C)           Hugepages-Usage(page)")
    yield _row("Chip", "Bus-Id", "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)")
    yield double
    for device in devices:
        used, total = dcmi.memory(device)
        hbm_used, hbm = dcmi.hbm(device)
        health = HEALTH[min(dcmi.health(device), 3)]
        yield _row(f"{device.card:<8}{name(dcmi, device)}", health,
                   f"{dcmi.power(device):<12.1f}{dcmi.temperature(device):<18}0    / 0")  # fmt: skip
        memory = f"{used:<5}/ {total}"
        yield _row(f"{device.device}", dcmi.bus_id(device),
                   f"{dcmi.utilization(device):<12}{memory:<18}{f'{hbm_used:<5}/ {hbm}' if hbm else ''}")  # fmt: skip
        yield rule


def cards(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    yield f"\t{'Total Count':<31}: {len(devices)}"
    for device in devices:
        yield ""
        yield f"\t{'NPU ID':<31}: {device.card}"
        yield f"\t{'Chip Count':<31}: 1"


def mapping(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    yield f"\t{'NPU ID':<20}{'Chip ID':<20}{'Chip Logic ID':<20}{'Chip Name'}"
    for device in devices:
        yield f"\t{device.card:<20}{device.device:<20}{dcmi.logic(device):<20}{name(dcmi, device)}"


def board(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    for device in devices:
        yield from _facts({
            "NPU ID": device.card, "Chip ID": device.device, "Product Name": name(dcmi, device), "Driver Version": dcmi.version(),
            "PCIe Bus Info": dcmi.bus_id(device), "VDie ID": dcmi.uuid(device).replace("-", " "),
            "AI Core Count": dcmi.chip(device).cores,
        })  # fmt: skip


def memory(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    for device in devices:
        (_, ddr), (_, hbm) = dcmi.memory(device), dcmi.hbm(device)
        yield from _facts({"NPU ID": device.card, "DDR Capacity(MB)": ddr, "HBM Capacity(MB)": hbm, "Chip ID": device.device})


def usages(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    for device in devices:
        used, total = max(dcmi.memory(device), dcmi.hbm(device), key=lambda pair: pair[1])
        yield from _facts({
            "NPU ID": device.card, "Chip ID": device.device, "Memory Capacity(MB)": total,
            "Memory Usage Rate(%)": 100 * used // total if total else 0, "Aicore Usage Rate(%)": dcmi.utilization(device),
        })  # fmt: skip


def health(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    for device in devices:
        codes = " ".join(f"0x{code:08X}" for code in dcmi.errors(device))
        yield from _facts({
            "NPU ID": device.card, "Health": HEALTH[min(dcmi.health(device), 3)], "Error Code": codes or "NA",
        })  # fmt: skip


def name(dcmi: Dcmi, device: Device) -> str:
    try:
        return str(dcmi.chip(device).npu.decode(errors="replace"))
    except NpuRefused:
        return "NA"


def _facts(facts: dict[str, object]) -> Iterator[str]:
    for key, value in facts.items():
        yield f"\t{key:<31}: {value}"
    yield ""


def _row(left: str, middle: str, right: str) -> str:
    return f"|{' ' + left:<{_LEFT}}|{' ' + middle:<{_MIDDLE}}|{' ' + right:<{_RIGHT}}|"
