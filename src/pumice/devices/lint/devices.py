"""Findings in a device ConfigMap: keys, and MIG geometries that NVIDIA's cards do not offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pumice.devices.lint.finding import Finding
from pumice.model.errors import BadInput
from pumice.model.hardware.mig import MigProfile, MigTable, mig_table_for
from pumice.model.hardware.npu import NpuChip
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig, MigGroup, MigInstances, ModelGeometries
from pumice.wire.device_config_text import read_device_config
from pumice.wire.document import read_document
from pumice.wire.npu_config import VnpuConfig

EMPTY_DEVICES = (
    "Volcano's scheduler then knows no resource of cards, and binds pods with shares without any; ours and the plugins go by the "
    "defaults"
)
NVIDIA = (names.CARDS_SECTION, "knownMigGeometries")


def is_empty(text: str) -> bool:
    """Return whether it says nothing: no text, comments alone, ``{}``, ``null``."""
    try:
        return read_document(text).value in (None, {}, "")
    except BadInput:
        return False


def lint_devices(file: str, text: str, first_line: int) -> tuple[list[Finding], DeviceConfig | None]:
    """The findings, and the parsed document when it can be used."""
    try:
        config, errors = read_device_config(text, first_line=first_line)
        lined = read_document(text, first_line=first_line)
    except BadInput as error:
        return [Finding.from_error(file, error, first_line)], None
    if is_empty(text):
        return [Finding(file, first_line, f"{names.DEVICE_CONFIG_KEY} is empty: {EMPTY_DEVICES}", error=True)], None
    findings = [Finding.from_text(file, text, error=True, line=first_line) for text in errors]
    findings += [Finding.from_text(file, warning, line=first_line) for warning in config.warnings]
    seen: dict[str, int] = {}
    for m, model in enumerate(config.nvidia.known_mig_geometries):
        where = (*NVIDIA, m, "models")
        for name in model.models:
            if name in seen and seen[name] != m:
                findings.append(Finding(file, lined.line(*where), f"model {name!r} is listed before; this entry is never used"))
            seen.setdefault(name, m)
        table = next((t for t in map(mig_table_for, model.models) if t is not None), None)
        if table is None:
            listed = ", ".join(model.models)
            findings.append(Finding(file, lined.line(*where), f"no card that we know with MIG is called {listed}"))
            continue
        for g, group in enumerate(model.groups):
            at = (*NVIDIA, m, "allowedGeometries", g)
            findings += [Finding(file, lined.line(*at, *below), text) for below, text in _group(model, group, table)]
    if config.vnpus is not None:
        findings += [Finding(file, lined.line(*at), text) for at, text in npu_findings(lined.value, config.vnpus)]
    return findings, config


def _group(model: ModelGeometries, group: MigGroup, table: MigTable) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(where below the group, what)"""
    who = f"group {group.name} of {model.models[0]}"
    wanted: list[MigProfile] = []
    for number, instance in enumerate(group.instances):
        here = ("geometries", number)
        try:
            profile = table.profile(instance.name)
        except KeyError:
            meant = _meant(instance, table)
            yield here, f"{who}: NVIDIA offers no profile {instance.name} on this model; did you mean {meant.name!r}?"
            return
        wanted += [profile] * instance.count
        if not 0.85 < instance.memory / profile.memory < 1.15:
            unit = "; the unit is MiB" if instance.memory <= 1024 or instance.memory > 1 << 20 else ""
            yield here, f"{who}: {instance.name} is given {instance.memory} MiB, the driver gives it {profile.memory}{unit}"
    if not placeable(wanted, table):
        sizes = " + ".join(f"{i.count} × {i.name}" for i in group.instances)
        slices = f"({table.memory_slices} memory slices, {table.compute_slices} compute)"
        yield (), f"{who}: {sizes} do not fit on one card {slices}"
    sizes_in_order = [profile.size for profile in wanted]
    if sizes_in_order != sorted(sizes_in_order, reverse=True):
        yield (), (
            f"{who}: list the larger profiles first; upstream's node plugin takes the position for the driver's "
            "device index, and the driver numbers larger instances first"
        )


def _meant(instance: MigInstances, table: MigTable) -> MigProfile:
    """The profile of that name in other letters, else the one of as much compute, else the one whose memory is nearest."""
    offered = [profile for profile in table.profiles if not profile.media]
    written = instance.name.lower()
    compute = written.partition(".")[0]
    return min(offered, key=lambda p: (p.name != written, not p.name.startswith(f"{compute}."), abs(p.memory - instance.memory)))


def placeable(profiles: Sequence[MigProfile], table: MigTable) -> bool:
    """Return whether all instances find a legal place side by side (at most 16 of them, larger ones first)."""
    if sum(p.slices for p in profiles) > table.compute_slices or len(profiles) > 16:
        return False
    ordered = sorted(profiles, key=lambda p: -p.size)

    def place(number: int, used: int) -> bool:
        if number == len(ordered):
            return True
        profile = ordered[number]
        for start in profile.starts:
            mask = (1 << profile.size) - 1 << start
            if not used & mask and place(number + 1, used | mask):
                return True
        return False

    return place(0, 0)


LARGEST, SMALLEST = 1 << 20, 1024
"""MB that a card has; beyond them somebody has written bytes or GiB."""
Path = tuple[str | int, ...]


def npu_findings(document: Any, config: VnpuConfig) -> Iterator[tuple[Path, str]]:
    """(where, what) of the entries that are used."""
    section = document.get(names.CHIPS_SECTION) if isinstance(document, dict) else None
    path: Path = (names.CHIPS_SECTION, "configs") if isinstance(section, dict) else (names.CHIPS_SECTION,)
    listed = section.get("configs") if isinstance(section, dict) else section
    listed = listed if isinstance(listed, list) else []  # the reading itself has said so of anything else
    entries = [(number, entry) for number, entry in enumerate(listed) if isinstance(entry, dict)]
    for chip in config.chips:
        number, entry = next(found for found in entries if str(found[1].get("chipName", "")).strip() == chip.name)
        yield from (((*path, number, *below), text) for below, text in _chip(chip, entry))


def _chip(chip: NpuChip, entry: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    if chip.memory > LARGEST:
        yield ("memoryAllocatable",), f"{chip.word}: {chip.memory} MB, more than any card has; {_meant_memory(chip.memory)}"
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


def _meant_memory(memory: int) -> str:
    mib = memory >> 20 if memory >= 1 << 30 else memory >> 10
    return f"the unit is MB: write {mib}"
