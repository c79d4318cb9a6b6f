"""Section ``vnpus`` of the device ConfigMap, as a mapping or as a plain list (Volcano pkg/scheduler/api/devices/config/vnpu.go).

An entry that cannot be meant is left out with a warning that names line and key; the others count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pumice.model.amount import INT32_MAX
from pumice.model.errors import nearest
from pumice.model.hardware.npu import NpuChip, Template, shipped_chips
from pumice.wire import names

if TYPE_CHECKING:
    from pumice.wire.document import Field


@dataclass(frozen=True, slots=True)
class VnpuConfig:
    """The section of NPUs of the device ConfigMap. ``soft``: nodes share their cards by the intercepting library unless they
    say otherwise (``hamiVnpuCore``)."""

    chips: tuple[NpuChip, ...] = ()
    soft: bool = False


_TEXTS: Mapping[str, str] = {
    "chipName": "name", "commonWord": "word", "resourceName": "resource", "resourceMemoryName": "memory_resource",
    "resourceCoreName": "core_resource", "runtimeClassName": "runtime_class",
}  # fmt: skip
_NUMBERS: Mapping[str, str] = {
    "memoryAllocatable": "memory", "memoryCapacity": "capacity", "aiCore": "cores", "aiCPU": "cpus", "memoryFactor": "factor",
}  # fmt: skip
_FLAGS: Mapping[str, str] = {"superPod": "pairs", "overwriteEnv": "overwrite_env"}
_KEYS = (*_TEXTS, *_NUMBERS, *_FLAGS, "templates")
_NEEDED = ("chipName", "commonWord", "resourceName", "resourceMemoryName", "memoryAllocatable")
_TEMPLATE = {"memory": "memory", "aiCore": "cores", "aiCPU": "cpus"}


def shipped() -> VnpuConfig:
    """The defaults where no configuration names NPUs."""
    return VnpuConfig(shipped_chips(names.HUAWEI))


def read_vnpus(section: Field, warnings: list[str]) -> VnpuConfig:
    """Return the section's entries that can be used; everything else is one of ``warnings``."""
    soft = False
    if isinstance(section.value, dict):
        keys = ("configs", "hamiVnpuCore")
        warnings += [f"{key}: unknown key{nearest(str(key.path[-1]), keys)}" for key in section.unknown(keys)]
        given = section.value.get("hamiVnpuCore", False)
        soft = given is True
        if not isinstance(given, bool):
            warnings.append(f"{section['hamiVnpuCore']}: expected true or false, not {given!r}; it counts as false")
        section = section["configs"] if "configs" in section.value else replace(section["configs"], value=[])
    if not isinstance(section.value, list):
        warnings.append(f"{section}: expected a list of chips, not {section.value!r}; no NPU is shared")
        return VnpuConfig((), soft)
    chips: list[NpuChip] = []
    for entry in section.items():
        found = _chip(entry, warnings)
        if isinstance(found, NpuChip):
            found = next(_twice(found, chips), found)
        if isinstance(found, str):
            warnings.append(f"{entry}: {found}; this chip is left out")
        else:
            chips.append(found)
    return VnpuConfig(tuple(chips), soft)


def _twice(chip: NpuChip, others: list[NpuChip]) -> Iterator[str]:
    for other in others:
        if other.word == chip.word:
            yield f"commonWord {chip.word!r} is there twice"
        if other.name == chip.name:
            yield f"chipName {chip.name!r} is there twice"
        if other.resource == chip.resource:
            yield f"resourceName {chip.resource!r} is there twice"


def _chip(entry: Field, warnings: list[str]) -> NpuChip | str:
    """Return the chip, or why there is none."""
    if not isinstance(entry.value, dict):
        return f"expected a mapping, not {entry.value!r}"
    values: dict[str, Any] = {}
    for key, value in entry.value.items():
        if key not in _KEYS:
            warnings.append(f"{entry[key]}: unknown key{nearest(key, _KEYS)}")
        elif value is None or key == "templates":
            continue
        elif key in _TEXTS and isinstance(value, str):
            values[_TEXTS[key]] = value.strip()
        elif key in _NUMBERS and _whole(value):
            values[_NUMBERS[key]] = value
        elif key in _FLAGS and isinstance(value, bool):
            values[_FLAGS[key]] = value
        else:
            return f"{key}: {value!r} is no {'text' if key in _TEXTS else 'whole number' if key in _NUMBERS else 'true or false'}"
    for key in _NEEDED:
        if not values.get({**_TEXTS, **_NUMBERS}[key]):
            return f"{key} is missing"
    if strange := set(values["word"]) - _WORD:
        return f"commonWord {values['word']!r} holds {sorted(strange)[0]!r}; it becomes part of annotation keys"
    values.setdefault("core_resource", f"{values['resource']}-core")
    values.setdefault("capacity", values["memory"])
    values["factor"] = max(1, values.get("factor", 1))
    if values["memory"] > values["capacity"]:
        return f"memoryAllocatable {values['memory']} is above memoryCapacity {values['capacity']}"
    templates = _templates(entry.value.get("templates") or [], values)
    return templates if isinstance(templates, str) else NpuChip(**values, templates=templates)


_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def _templates(listed: Any, chip: Mapping[str, Any]) -> tuple[Template, ...] | str:
    if not isinstance(listed, list):
        return f"templates: expected a list, not {listed!r}"
    found: list[Template] = []
    for item in listed:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            return f"templates: {item!r} has no name"
        numbers = {field: item.get(key, 0) for key, field in _TEMPLATE.items()}
        if not all(_whole(number) for number in numbers.values()) or not numbers["memory"]:
            return f"template {name} needs a memory above 0 in MB, and whole numbers"
        if numbers["memory"] > chip["memory"]:
            return f"template {name} has {numbers['memory']} MB, more than memoryAllocatable {chip['memory']}"
        if any(other.name == name for other in found):
            return f"template {name} is there twice"
        found.append(Template(name, **numbers))
    return tuple(sorted(found, key=lambda template: template.memory))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX
