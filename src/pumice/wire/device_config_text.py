"""``device-config.yaml`` of the device ConfigMap, read with line numbers, merged over the defaults (D-04), and written.

Schema: spec deviceshare-nvidia 2.3 and 2.5. Scheduler and node plugin read the same document. The values themselves are a file of
their own: the defaults need no parser, and ``pumice run`` has no other configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from pumice.model.errors import BadInput
from pumice.model.units import INT32_MAX
from pumice.wire import names
from pumice.wire.device_config import MOST_SLOTS, DeviceConfig, MigGroup, MigInstances, ModelGeometries, NvidiaConfig
from pumice.wire.nearest import nearest
from pumice.wire.npu_config import read_vnpus
from pumice.wire.nvidia_vgpu import FORBIDDEN_IN_GROUP
from pumice.wire.without_effect import What, rows
from pumice.wire.yaml_lines import Lined, Path, load_lined

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
    "gpuMemoryFactor": "gpu_memory_factor",
    "knownMigGeometries": "known_mig_geometries",
}
_TYPES = {f.name: f.type for f in fields(NvidiaConfig)}
SECTIONS = (names.CARDS_SECTION, names.CHIPS_SECTION)


def parse_device_config(text: str, *, first_line: int = 1) -> DeviceConfig:
    """Parse the document. Raises BadInput with line and key on what cannot be meant; unknown keys are warnings."""
    config, errors = read_device_config(text, first_line=first_line)
    if errors:
        raise BadInput(errors[0])
    return config


def read_device_config(text: str, *, first_line: int = 1) -> tuple[DeviceConfig, tuple[str, ...]]:
    """What can be read of it, and every reason to refuse the whole. Raises BadInput where it is no such document at all."""
    lined = load_lined(text, first_line=first_line)
    if lined.value is None:
        return DeviceConfig(), ()
    if not isinstance(lined.value, dict):
        raise BadInput(f"line {lined.line()}: expected a mapping with the keys nvidia and vnpus")
    warnings = [f"line {line}: key {path[-1]!r} is given twice; the last one counts" for path, line in lined.duplicates]
    for key in lined.value:
        if key not in SECTIONS:
            warnings.append(f"line {lined.line(key)}: unknown key {key!r}{nearest(key, SECTIONS)}")
    section = lined.value.get(names.CARDS_SECTION)
    errors: list[str] = []
    nvidia = NvidiaConfig() if section is None else _nvidia(section, lined, warnings, errors)
    npus = lined.value.get(names.CHIPS_SECTION)
    vnpus = None if npus is None else read_vnpus(npus, lined, warnings)
    warnings += _in_vain(section, npus, lined)
    return DeviceConfig(nvidia, vnpus, tuple(warnings)), tuple(errors)


def _in_vain(nvidia: Any, npus: Any, lined: Lined) -> Iterator[str]:
    """What is asked for and changes nothing, with its line."""
    entries: list[tuple[Path, Any]] = [((names.CARDS_SECTION,), nvidia)]
    under: Path = (names.CHIPS_SECTION, "configs") if isinstance(npus, dict) else (names.CHIPS_SECTION,)
    chips = npus.get("configs") if isinstance(npus, dict) else npus
    entries += [((*under, number), chip) for number, chip in enumerate(chips if isinstance(chips, list) else ())]
    for name, row in rows(What.DEVICES).items():
        owner, _, key = name.partition(".")
        for path, entry in entries:
            if path[0] == owner and isinstance(entry, dict) and row.asks(entry.get(key)):
                yield f"line {lined.line(*path, key)}: {row.text}"


def _nvidia(section: Any, lined: Lined, warnings: list[str], errors: list[str]) -> NvidiaConfig:
    if not isinstance(section, dict):
        raise BadInput(f"line {lined.line('nvidia')}: nvidia: expected a mapping")
    values: dict[str, Any] = {}
    for key, value in section.items():
        where = f"line {lined.line('nvidia', key)}: nvidia.{key}"
        name = KEYS.get(key)
        if name is None:
            warnings.append(f"{where}: unknown key{nearest(key, KEYS)}")
        elif value is None:
            continue
        else:
            try:
                if name == "known_mig_geometries":
                    values[name] = _geometries(value, lined, (names.CARDS_SECTION, key), warnings)
                else:
                    values[name] = _READERS[str(_TYPES[name])](value, where)
            except BadInput as error:
                errors.append(str(error))
    if values.get("gpu_memory_factor") == 0:
        values["gpu_memory_factor"] = 1
    config = NvidiaConfig(**values)
    for key in ("resourceCountName", "resourceMemoryName", "resourceCoreName"):
        if not getattr(config, KEYS[key]):
            errors.append(f"line {lined.line('nvidia', key)}: nvidia.{key}: may not be empty")
    return config


def _whole(value: Any, where: str) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 12:
        value = int(value)  # D-08
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT32_MAX:
        raise BadInput(f"{where}: expected a whole number from 0 to {INT32_MAX}, not {value!r}")
    return value


def _real(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isinstance(value, bool) or not 0 < number < 1e6:
        raise BadInput(f"{where}: expected a number above 0, not {value!r}")
    return number


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise BadInput(f"{where}: expected true or false, not {value!r}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{where}: expected a text, not {value!r}")
    return value


_READERS: Mapping[str, Callable[[Any, str], Any]] = {"int": _whole, "float": _real, "bool": _flag, "str": _text}


def _geometries(value: Any, lined: Lined, path: Path, warnings: list[str]) -> tuple[ModelGeometries, ...]:
    return tuple(_model(item, lined, (*path, i), warnings) for i, item in enumerate(_listed(value, lined, path)))


def _model(value: Any, lined: Lined, path: Path, warnings: list[str]) -> ModelGeometries:
    _only(value, ("models", "allowedGeometries"), lined, path)
    models = value.get("models")
    if not isinstance(models, list) or not models or not all(isinstance(m, str) and m.strip() for m in models):
        raise BadInput(f"{_at(lined, (*path, 'models'))}: expected a list of model names, not {models!r}")
    here = (*path, "allowedGeometries")
    groups: list[MigGroup] = []
    for i, item in enumerate(_listed(value.get("allowedGeometries"), lined, here)):
        group = _group(item, lined, (*here, i), f"group{i + 1}", warnings)
        if any(group.name == other.name for other in groups):
            raise BadInput(f"{_at(lined, (*here, i))}: group {group.name!r} is there twice")
        groups.append(group)
    return ModelGeometries(tuple(models), tuple(groups))


def _group(value: Any, lined: Lined, path: Path, default: str, warnings: list[str]) -> MigGroup:
    if isinstance(value, list):  # the form without group names that the HAMi project writes
        return MigGroup(default, _instances(value, lined, path, warnings))
    _only(value, ("group", "geometries", "instances"), lined, path)
    name = value.get("group", default)
    if not isinstance(name, str) or not name or FORBIDDEN_IN_GROUP & set(name):
        raise BadInput(
            f"{_at(lined, (*path, 'group'))}: group {name!r} must be a text without any of '- , : ; [ ]' and blanks; "
            "it becomes part of the id UUID[group-slot]"
        )
    key = "geometries" if "geometries" in value else "instances"
    return MigGroup(name, _instances(value.get(key), lined, (*path, key), warnings))


def _instances(value: Any, lined: Lined, path: Path, warnings: list[str]) -> tuple[MigInstances, ...]:
    found: list[MigInstances] = []
    for i, item in enumerate(_listed(value, lined, path)):
        here = (*path, i)
        if isinstance(item, dict) and "core" in item:  # the HAMi project writes it
            warnings.append(f"{_at(lined, (*here, 'core'))}: is not looked at; the profile says how much compute it has")
            item = {key: given for key, given in item.items() if key != "core"}
        _only(item, ("name", "memory", "count"), lined, here)
        name = item.get("name")
        if not isinstance(name, str) or not name:
            raise BadInput(f"{_at(lined, (*here, 'name'))}: expected a profile such as 1g.5gb, not {name!r}")
        if any(name == other.name for other in found):
            raise BadInput(f"{_at(lined, here)}: profile {name!r} is there twice in one group")
        numbers = [_whole(item.get(key), _at(lined, (*here, key))) for key in ("memory", "count")]
        if not all(numbers) or sum(other.count for other in found) + numbers[1] > MOST_SLOTS:
            raise BadInput(
                f"{_at(lined, here)}: profile {name!r} needs a memory above 0 and a count from 1, "
                f"and a group has at most {MOST_SLOTS} instances"
            )
        found.append(MigInstances(name, *numbers))
    if not found:
        raise BadInput(f"{_at(lined, path)}: a group needs at least one instance under the key geometries")
    return tuple(found)


def _listed(value: Any, lined: Lined, path: Path) -> list[Any]:
    if not isinstance(value, list):
        raise BadInput(f"{_at(lined, path)}: expected a list, not {value!r}")
    return value


def _only(value: Any, keys: tuple[str, ...], lined: Lined, path: Path) -> None:
    if not isinstance(value, dict):
        raise BadInput(f"{_at(lined, path)}: expected a mapping with {', '.join(keys)}, not {value!r}")
    for key in value:
        if key not in keys:
            raise BadInput(f"{_at(lined, (*path, key))}: unknown key {key!r}{nearest(key, keys)}")


def _at(lined: Lined, path: Path) -> str:
    return f"line {lined.line(*path)}: {'.'.join(map(str, path))}"


def render_geometries(models: tuple[ModelGeometries, ...]) -> list[dict[str, Any]]:
    """The canonical YAML value of ``knownMigGeometries``."""
    return [
        {
            "models": list(model.models),
            "allowedGeometries": [
                {
                    "group": group.name,
                    "geometries": [{"name": i.name, "memory": i.memory, "count": i.count} for i in group.instances],
                }
                for group in model.groups
            ],
        }
        for model in models
    ]
