"""vNPUs by ``npu-smi``. Every decision is the driver's; here its verdicts are only put into words."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from pumice.adapters.dcmi.driver import Dcmi, Device
from pumice.model.hardware.npu_driver import driver_chips
from pumice.ports.vnpus import UNOPENED

_WIDTH = 79
_MEDIA = ("vpc", "venc", "vdec", "jpegd", "jpege", "pngd")


def listed(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    """``info -t info-vnpu``: what is free of each unit, and the slices. A container id of twelve f is a slice that no container
    has opened, one of zeros a slice whose container has ended."""
    for device in devices:
        total, free = dcmi.totals(device), dcmi.available(device)
        rule = f"+{'-' * _WIDTH}+"
        yield rule
        yield _text("NPU resource static info as follow:")
        yield _text("Format:Free/Total                   NA: Currently, query is not supported.")
        yield _text("AICORE    Memory    AICPU   VPC     VENC    VDEC    JPEGD   JPEGE   PNGD")
        yield _text("          GB")
        yield f"|{'=' * _WIDTH}|"
        yield _text(_units(free, total))
        yield rule
        ones = list(dcmi.ones(device))
        yield _text(f"Total number of vnpu: {len(ones)}")
        yield rule
        yield _row("Vnpu ID", "Vgroup ID", "Container ID", "Status", "Template Name")
        yield rule
        for one in ones:
            container = f"{one.info.container & UNOPENED:012x}"
            yield _row(one.id, one.info.group, container, one.info.status, one.info.name.decode(errors="replace"))
            yield rule


def templates(dcmi: Dcmi, devices: list[Device]) -> Iterator[str]:
    """``info -t template-info``: what the chip can be cut by."""
    yield f"{'Name':<18}{'AICORE':>8}{'Memory(GB)':>12}{'AICPU':>8}{'VPC':>6}{'VENC':>6}{'VDEC':>6}{'JPEGD':>7}{'JPEGE':>7}"
    for device in devices[:1]:
        chip = driver_chips().get(ctypes.string_at(dcmi.chip(device).name).decode(errors="replace"))
        for word, size in chip.templates if chip else ():
            jpegd, jpege, vpc, vdec, _, venc = size.media
            yield f"{word:<18}{size.cores:>8}{_gb(size.memory):>12}{size.cpus:>8}{vpc:>6}{venc:>6}{vdec:>6}{jpegd:>7}{jpege:>7}"


def create(dcmi: Dcmi, device: Device, template: str, ident: int, group: int) -> Iterator[str]:
    made = dcmi.create(device, template, ident, group)
    yield from ("Status : OK", "Message : Create vnpu success", f"Vnpu ID : {made.id}", f"Vgroup ID : {made.group}")


def destroy(dcmi: Dcmi, device: Device, ident: int) -> Iterator[str]:
    dcmi.destroy(device, ident)
    yield from ("Status : OK", f"Message : Destroy vnpu {ident} success")


def _units(free: Any, total: Any) -> str:
    left, most = free.computing, total.computing
    cells = [
        f"{left.aic:.0f}/{most.aic:.0f}", f"{_gb(left.memory_total)}/{_gb(most.memory_total)}",
        f"{left.device_aicpu}/{most.device_aicpu}" if most.device_aicpu else "NA/NA",
    ]  # fmt: skip
    for unit in _MEDIA:
        have, of = getattr(free.media, unit), getattr(total.media, unit)
        cells.append(f"{have:.0f}/{of:.0f}" if of else "NA/NA")
    return f"{cells[0]:<10}{cells[1]:<10}" + "".join(f"{cell:<8}" for cell in cells[2:])


def _gb(megabytes: int) -> int:
    return megabytes // 1024


def _text(text: str) -> str:
    return f"|{' ' + text.rstrip():<{_WIDTH}}|"


def _row(*cells: object) -> str:
    widths = (11, 16, 16, 10, 22)
    return "|" + "|".join(f"{f'  {cell}':<{width}}" for cell, width in zip(cells, widths, strict=True)) + "|"
