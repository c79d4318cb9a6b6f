"""``--config-file`` of NVIDIA's device plugin, ``version: v1`` (spec nvidia-device-plugin 2.6): which of our options it sets, and
what it asks for that is not served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from pumice.model.errors import BadInput
from pumice.wire.nearest import nearest
from pumice.wire.yaml_text import safe_load

FLAGS: Final[Mapping[str, str]] = {
    "migStrategy": "mig_strategy", "failOnInitError": "fail_on_init_error", "nvidiaDriverRoot": "driver_root",
    "nvidiaDevRoot": "dev_root", "gdrcopyEnabled": "gdrcopy_enabled", "gdsEnabled": "gds_enabled",
    "mofedEnabled": "mofed_enabled", "deviceDiscoveryStrategy": "device_discovery_strategy", "mpsRoot": "mps_root",
    "cdiFeatureFlags": "cdi_feature_flags",
}  # fmt: skip
PLUGIN: Final[Mapping[str, str]] = {
    "passDeviceSpecs": "pass_device_specs", "deviceListStrategy": "device_list_strategy",
    "deviceIDStrategy": "device_id_strategy", "cdiAnnotationPrefix": "cdi_annotation_prefix",
    "nvidiaCTKPath": "nvidia_cdi_hook_path", "nvidiaCDIHookPath": "nvidia_cdi_hook_path",
    "containerDriverRoot": "driver_root_ctr_path",
}  # fmt: skip
OF_OTHERS: Final = ("gfd", "useNodeFeatureAPI")
"""Flags of GPU feature discovery, which reads the same file."""
TOP: Final = ("version", "flags", "sharing", "imex", "resources", "health")


@dataclass(frozen=True, slots=True)
class NvidiaPluginConfig:
    """``options`` by the names of our command's parameters; ``warnings`` name what was not looked at."""

    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def parse_nvidia_plugin_config(text: str) -> NvidiaPluginConfig:
    """Raises BadInput on what cannot be meant, and on what would share cards in ways that are not served."""
    try:
        document: Any = safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(f"not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or document.get("version") != "v1":
        raise BadInput("expected `version: v1`")
    warnings = [f"unknown key {key!r}{nearest(str(key), TOP)}" for key in document if key not in TOP]
    if document.get("resources"):
        warnings.append("resources: has no effect: shares go by the names of the device ConfigMap")
    if document.get("health"):
        warnings.append("health: has no effect: DP_DISABLE_HEALTHCHECKS says which errors are left out")
    instead_of = {"timeSlicing": "deviceSplitCount of the device ConfigMap", "mps": "operatingmode mps of the node ConfigMap"}
    for way, instead in instead_of.items():
        if _section(document, "sharing").get(way):
            raise BadInput(f"sharing.{way} is not served: replicas have no memory of their own; cards are shared by {instead}")
    flags = dict(_section(document, "flags"))
    plugin = flags.pop("plugin", None) or {}
    options = _options(flags, FLAGS, "flags", warnings) | _options(plugin, PLUGIN, "flags.plugin", warnings)
    imex = _section(document, "imex")
    if "channelIDs" in imex:
        options["imex_channel_ids"] = ",".join(str(channel) for channel in imex["channelIDs"] or ())
    if "required" in imex:
        options["imex_required"] = bool(imex["required"])
    return NvidiaPluginConfig(options, tuple(warnings))


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name) or {}
    if not isinstance(found, dict):
        raise BadInput(f"{name}: expected a mapping, not {found!r}")
    return found


def _options(given: Any, known: Mapping[str, str], where: str, warnings: list[str]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise BadInput(f"{where}: expected a mapping, not {given!r}")
    options: dict[str, Any] = {}
    for key, value in given.items():
        if key in known:
            if value is None:
                continue
            if isinstance(value, dict) or (isinstance(value, list) and known[key] != "device_list_strategy"):
                raise BadInput(f"{where}.{key}: expected one value, not {value!r}")
            several = known[key] == "device_list_strategy" and not isinstance(value, list)
            options[known[key]] = [value] if several else value
        elif key not in OF_OTHERS:
            warnings.append(f"{where}: unknown key {key!r}{nearest(str(key), known)}")
    return options
