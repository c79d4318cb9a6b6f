"""``device-config.yaml`` of the device ConfigMap, read with line numbers, merged over the defaults (D-04), and written.

Schema: Volcano pkg/scheduler/api/devices/config. Scheduler and node plugin read the same document. The values themselves are
a file of
their own: the defaults need no parser, and ``pumice run`` has no other configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from pumice.model.amount import INT32_MAX
from pumice.model.errors import BadInput, nearest
from pumice.wire import names
from pumice.wire.device_config import MOST_SLOTS, DeviceConfig, MigGroup, MigInstances, ModelGeometries, NvidiaConfig
from pumice.wire.document import Field, read_document
from pumice.wire.npu_config import read_vnpus
from pumice.wire.nvidia_vgpu import FORBIDDEN_IN_GROUP
from pumice.wire.without_effect import What, rows

KEYS: Mapping[str, str] = {
    "resourceCountName": "resource_count_name",
    "resourceMemoryName": "resource_memory_name",
    "resourceCoreName": "resource_core_name",
    "resourceMemoryPercentageName": "resource_memory_percentage_name",
    "resourcePriorityName": "resource_priority_name",
    "overwriteEnv": "overwrite_env",
    "defaultMemory": "default_memory",
    "defaultCores": "default_cores",
    "defaultGPUNum": "default_gpu_num",
    "deviceSplitCount": "device_split_count",
    "deviceMemoryScaling": "device_memory_scaling",
    "deviceCoreScaling": "device_core_scaling",
    "disableCoreLimit": "disable_core_limit",
    "passDeviceSpecs": "pass_device_specs",
    "migPlacements": "mig_placements",
    "bursts": "bursts",
    "gpuMemoryFactor": "gpu_memory_factor",
    "knownMigGeometries": "known_mig_geometries",
}
_TYPES = {f.name: f.type for f in fields(NvidiaConfig)}
SECTIONS = (names.CARDS_SECTION, names.CHIPS_SECTION)


@lru_cache(maxsize=4)  # it is read again with each change of the scheduler's configuration, and seldom changes itself
def parse_device_config(text: str) -> DeviceConfig:
    """Parse the document. Raises BadInput with line and key on what cannot be meant; unknown keys are warnings."""
    config, errors = read_device_config(text)
    if errors:
        raise BadInput(errors[0])
    return config


def read_device_config(text: str, *, first_line: int = 1) -> tuple[DeviceConfig, tuple[str, ...]]:
    """Return the readable part and every reason to refuse the whole. Raises BadInput where it is no such document at all."""
    document = read_document(text, first_line=first_line)
    root = document.root
    if root.value is None:
        return DeviceConfig(), ()
    if not isinstance(root.value, dict):
        raise root.error("expected a mapping with the keys nvidia and vnpus")
    warnings = [f"line {line}: key {path[-1]!r} is given twice; the last one counts" for path, line in document.duplicates]
    for key in root.unknown(SECTIONS):
        warnings.append(f"line {document.line(*key.path)}: unknown key {key.path[-1]!r}{nearest(str(key.path[-1]), SECTIONS)}")
    section, npus = root[names.CARDS_SECTION], root[names.CHIPS_SECTION]
    errors: list[str] = []
    nvidia = NvidiaConfig() if section.value is None else _nvidia(section, warnings, errors)
    vnpus = None if npus.value is None else read_vnpus(npus, warnings)
    warnings += _in_vain(section, npus)
    return DeviceConfig(nvidia, vnpus, tuple(warnings)), tuple(errors)


def _in_vain(nvidia: Field, npus: Field) -> Iterator[str]:
    """Yield what is asked for and changes nothing, with its line."""
    chips = npus["configs"] if isinstance(npus.value, dict) else npus
    entries = [nvidia, *(chips.items() if isinstance(chips.value, list) else ())]
    for name, row in rows(What.DEVICES).items():
        owner, _, key = name.partition(".")
        for entry in entries:
            if entry.path[0] == owner and isinstance(entry.value, dict) and row.asks(entry.value.get(key)):
                yield f"line {entry.document.line(*entry.path, key)}: {row.text}"


def _nvidia(section: Field, warnings: list[str], errors: list[str]) -> NvidiaConfig:
    if not isinstance(section.value, dict):
        raise section.error("expected a mapping")
    values: dict[str, Any] = {}
    for key, value in section.mapping().items():
        name = KEYS.get(key)
        if name is None:
            warnings.append(f"{value}: unknown key{nearest(key, KEYS)}")
        elif value.value is not None:
            try:
                if name == "known_mig_geometries":
                    values[name] = tuple(_model(item, warnings) for item in value.items())
                else:
                    values[name] = _READERS[str(_TYPES[name])](value)
            except BadInput as error:
                errors.append(str(error))
    if values.get("gpu_memory_factor") == 0:
        values["gpu_memory_factor"] = 1
    config = NvidiaConfig(**values)
    for key in ("resourceCountName", "resourceMemoryName", "resourceCoreName"):
        if not getattr(config, KEYS[key]):
            errors.append(str(section[key].error("may not be empty")))
    return config


def _whole(field: Field) -> int:
    """Return the number. A text of digits and a float without a fraction are taken, too."""
    value = field.value
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT32_MAX:
        raise field.error(f"expected a whole number from 0 to {INT32_MAX}, not {value!r}")
    return value


def _real(field: Field) -> float:
    try:
        number = float(field.value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isinstance(field.value, bool) or not 0 < number < 1e6:
        raise field.error(f"expected a number above 0, not {field.value!r}")
    return number


def _flag(field: Field) -> bool:
    if isinstance(field.value, str) and field.value.lower() in ("true", "false"):
        return field.value.lower() == "true"
    return field.flag()


def _text(field: Field) -> str:
    if not isinstance(field.value, str):
        raise field.error(f"expected a text, not {field.value!r}")
    return field.value


_READERS: Mapping[str, Callable[[Field], Any]] = {"int": _whole, "float": _real, "bool": _flag, "str": _text}


def _model(entry: Field, warnings: list[str]) -> ModelGeometries:
    _only(entry, ("models", "allowedGeometries"))
    models = entry["models"].value
    if not isinstance(models, list) or not models or not all(isinstance(m, str) and m.strip() for m in models):
        raise entry["models"].error(f"expected a list of model names, not {models!r}")
    groups: list[MigGroup] = []
    for number, item in enumerate(entry["allowedGeometries"].items(), 1):
        group = _group(item, f"group{number}", warnings)
        if any(group.name == other.name for other in groups):
            raise item.error(f"group {group.name!r} is there twice")
        groups.append(group)
    return ModelGeometries(tuple(models), tuple(groups))


def _group(entry: Field, default: str, warnings: list[str]) -> MigGroup:
    if isinstance(entry.value, list):  # the form without group names that the HAMi project writes
        return MigGroup(default, _instances(entry, warnings))
    _only(entry, ("group", "geometries", "instances"))
    name = entry.value.get("group", default)
    if not isinstance(name, str) or not name or FORBIDDEN_IN_GROUP & set(name):
        raise entry["group"].error(f"group {name!r} must be a text without any of '- , : ; [ ]' and blanks; "
                                   "it becomes part of the id UUID[group-slot]")  # fmt: skip
    return MigGroup(name, _instances(entry["geometries" if "geometries" in entry.value else "instances"], warnings))


def _instances(listed: Field, warnings: list[str]) -> tuple[MigInstances, ...]:
    found: list[MigInstances] = []
    for item in listed.items():
        if isinstance(item.value, dict) and "core" in item.value:  # the HAMi project writes it
            warnings.append(f"{item['core']}: is not looked at; the profile says how much compute it has")
        _only(item, ("name", "memory", "count"), passed_over=("core",))
        name = item["name"].value
        if not isinstance(name, str) or not name:
            raise item["name"].error(f"expected a profile such as 1g.5gb, not {name!r}")
        if any(name == other.name for other in found):
            raise item.error(f"profile {name!r} is there twice in one group")
        numbers = [_whole(item[key]) for key in ("memory", "count")]
        if not all(numbers) or sum(other.count for other in found) + numbers[1] > MOST_SLOTS:
            raise item.error(f"profile {name!r} needs a memory above 0 and a count from 1, "
                             f"and a group has at most {MOST_SLOTS} instances")  # fmt: skip
        found.append(MigInstances(name, *numbers))
    if not found:
        raise listed.error("a group needs at least one instance under the key geometries")
    return tuple(found)


def _only(entry: Field, keys: tuple[str, ...], passed_over: tuple[str, ...] = ()) -> None:
    entry.mapping(wanted=f"a mapping with {', '.join(keys)}")
    for key in entry.unknown((*keys, *passed_over)):
        raise key.error(f"unknown key {key.path[-1]!r}{nearest(str(key.path[-1]), keys)}")
