"""Section ``vnpus`` of the device ConfigMap, as a mapping or as a plain list (spec ascend 3).

An entry that cannot be meant is left out with a warning that names line and key; the others count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pumice.model.hardware.npu import NpuChip, Template, shipped_chips
from pumice.model.units import INT32_MAX
from pumice.wire import names
from pumice.wire.nearest import nearest

if TYPE_CHECKING:
    from pumice.wire.yaml_lines import Lined, Path


@dataclass(frozen=True, slots=True)
class VnpuConfig:
    """``soft``: nodes share their cards by the intercepting library unless they say otherwise (``hamiVnpuCore``)."""

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
    """What counts where no configuration says anything of NPUs."""
    return VnpuConfig(shipped_chips(names.HUAWEI))


def read_vnpus(section: Any, lined: Lined, warnings: list[str]) -> VnpuConfig:
    """The section's entries that can be used; everything else is one of ``warnings``."""
    path: Path = (names.CHIPS_SECTION,)
    soft = False
    if isinstance(section, dict):
        for key in section:
            if key not in ("configs", "hamiVnpuCore"):
                warnings.append(f"{_at(lined, (*path, key))}: unknown key{nearest(key, ('configs', 'hamiVnpuCore'))}")
        given = section.get("hamiVnpuCore", False)
        soft = given is True
        if not isinstance(given, bool):
            warnings.append(f"{_at(lined, (*path, 'hamiVnpuCore'))}: expected true or false, not {given!r}; it counts as false")
        section, path = section.get("configs", []), (*path, "configs")
    if not isinstance(section, list):
        warnings.append(f"{_at(lined, path)}: expected a list of chips, not {section!r}; no NPU is shared")
        return VnpuConfig((), soft)
    chips: list[NpuChip] = []
    for number, entry in enumerate(section):
        here = (*path, number)
        found = _chip(entry, lined, here, warnings)
        if isinstance(found, NpuChip):
            found = next(_twice(found, chips), found)
        if isinstance(found, str):
            warnings.append(f"{_at(lined, here)}: {found}; this chip is left out")
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


def _chip(entry: Any, lined: Lined, path: Path, warnings: list[str]) -> NpuChip | str:
    """The chip, or why there is none."""
    if not isinstance(entry, dict):
        return f"expected a mapping, not {entry!r}"
    values: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in _KEYS:
            warnings.append(f"{_at(lined, (*path, key))}: unknown key{nearest(key, _KEYS)}")
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
    templates = _templates(entry.get("templates") or [], values)
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


def _at(lined: Lined, path: Path) -> str:
    return f"line {lined.line(*path)}: {'.'.join(map(str, path))}"
