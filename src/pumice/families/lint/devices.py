"""Findings in a device ConfigMap: keys, and MIG geometries that NVIDIA's cards do not offer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pumice.families.lint.finding import Finding
from pumice.model.hardware.mig import MigProfile, MigTable, mig_table_for
from pumice.model.refusal import BadInput
from pumice.wire.device_config import DeviceConfig, MigGroup, ModelGeometries, parse_device_config
from pumice.wire.yaml_lines import load_lined

NVIDIA = ("nvidia", "knownMigGeometries")


def lint_devices(file: str, text: str, first_line: int) -> tuple[list[Finding], DeviceConfig | None]:
    """The findings, and the parsed document when it can be used."""
    try:
        config = parse_device_config(text, first_line=first_line)
        lined = load_lined(text, first_line=first_line)
    except BadInput as error:
        return [Finding.from_error(file, error, first_line)], None
    findings = [Finding.from_text(file, warning, line=first_line) for warning in config.warnings]
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
            at = lined.line(*NVIDIA, m, "allowedGeometries", g)
            findings += [Finding(file, at, text) for text in _group(model, group, table)]
    return findings, config


def _group(model: ModelGeometries, group: MigGroup, table: MigTable) -> Iterator[str]:
    who = f"group {group.name} of {model.models[0]}"
    wanted: list[MigProfile] = []
    for instance in group.instances:
        try:
            profile = table.profile(instance.name)
        except KeyError:
            offered = ", ".join(p.name for p in table.profiles if not p.media)
            yield f"{who}: NVIDIA offers no profile {instance.name} on this model; it has {offered}"
            return
        wanted += [profile] * instance.count
        if not 0.85 < instance.memory / profile.memory < 1.15:
            yield f"{who}: {instance.name} is given {instance.memory} MiB, the driver gives it {profile.memory}"
    if not placeable(wanted, table):
        sizes = " + ".join(f"{i.count} × {i.name}" for i in group.instances)
        yield f"{who}: {sizes} do not fit on one card ({table.memory_slices} memory slices, {table.compute_slices} compute)"
    sizes_in_order = [profile.size for profile in wanted]
    if sizes_in_order != sorted(sizes_in_order, reverse=True):
        yield (
            f"{who}: list the larger profiles first; upstream's node plugin takes the position for the driver's "
            "device index, and the driver numbers larger instances first"
        )


def placeable(profiles: Sequence[MigProfile], table: MigTable) -> bool:
    """Whether all instances find a legal place side by side (at most 16 of them, larger ones first)."""
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
