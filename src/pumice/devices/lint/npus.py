"""Findings in section ``vnpus`` of a device ConfigMap: templates that a card has not enough for, and amounts in another unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pumice.model.hardware.npu import NpuChip
from pumice.wire import names
from pumice.wire.npu_config import VnpuConfig

LARGEST, SMALLEST = 1 << 20, 1024
"""MB that a card has; beyond them somebody has written bytes or GiB."""
Path = tuple[str | int, ...]


def npu_findings(document: Any, config: VnpuConfig) -> Iterator[tuple[Path, str]]:
    """(where, what) of the entries that are used."""
    section = document.get(names.CHIPS_SECTION) if isinstance(document, dict) else None
    path: Path = (names.CHIPS_SECTION, "configs") if isinstance(section, dict) else (names.CHIPS_SECTION,)
    listed = section.get("configs") if isinstance(section, dict) else section
    entries = [(number, entry) for number, entry in enumerate(listed or ()) if isinstance(entry, dict)]
    for chip in config.chips:
        number, entry = next(found for found in entries if str(found[1].get("chipName", "")).strip() == chip.name)
        yield from (((*path, number, *below), text) for below, text in _chip(chip, entry))


def _chip(chip: NpuChip, entry: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    if chip.memory > LARGEST:
        yield ("memoryAllocatable",), f"{chip.word}: {chip.memory} MB, more than any card has; {_meant(chip.memory)}"
    elif chip.memory < SMALLEST:
        yield ("memoryAllocatable",), f"{chip.word}: {chip.memory} MB; for {chip.memory} GiB write {1024 * chip.memory}"
    listed = [item["name"] for item in entry.get("templates") or ()]
    for template in chip.templates:
        here: Path = ("templates", listed.index(template.name))
        for what, wanted, has in (("AI cores", template.cores, chip.cores), ("AI CPUs", template.cpus, chip.cpus)):
            fit = chip.memory // template.memory
            if has and wanted > has:
                yield here, f"{chip.word}: template {template.name} has {wanted} {what}, the card {has}"
            elif has and wanted * fit > has:
                yield here, (
                    f"{chip.word}: {fit} × {template.name} fit by memory and need {wanted * fit} {what}, the card has {has}: "
                    "fewer are placed, and a scheduler that counts memory alone leaves it to the driver to refuse the rest"
                )


def _meant(memory: int) -> str:
    mib = memory >> 20 if memory >= 1 << 30 else memory >> 10
    return f"the unit is MB: write {mib}"
