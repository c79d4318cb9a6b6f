"""``--config-file`` of NVIDIA's device plugin, ``version: v1`` (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/config):
which of our options it sets, and
what it asks for that is not served."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pumice.model.errors import nearest
from pumice.wire.document import Document, Field

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
    """The configuration of NVIDIA's plugin. ``options`` by the names of our command's parameters; ``warnings`` name what was
    not looked at."""

    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def nvidia_plugin_config(document: Document) -> NvidiaPluginConfig:
    """Raises BadInput on what cannot be meant, and on what would share cards in ways that are not served."""
    root = document.root
    if not isinstance(root.value, dict) or root.value.get("version") != "v1":
        raise root.error("expected `version: v1`")
    warnings = [_unknown(key, TOP) for key in root.unknown(TOP)]
    if root["resources"].value:
        warnings.append(f"{root['resources']}: has no effect: shares go by the names of the device ConfigMap")
    if root["health"].value:
        warnings.append(f"{root['health']}: has no effect: DP_DISABLE_HEALTHCHECKS says which errors are left out")
    instead_of = {"timeSlicing": "deviceSplitCount of the device ConfigMap", "mps": "operatingmode mps of the node ConfigMap"}
    sharing, flags, imex = (_section(root, name) for name in ("sharing", "flags", "imex"))
    for way, instead in instead_of.items():
        if way in sharing and sharing[way].value:
            raise root["sharing"].error(
                f"sharing.{way} is not served: replicas have no memory of their own; cards are shared by {instead}")
    plugin = flags.pop("plugin", None)
    options = _options(flags, FLAGS, warnings)
    options |= _options(plugin.mapping() if plugin is not None and plugin.value else {}, PLUGIN, warnings)
    if "channelIDs" in imex:
        options["imex_channel_ids"] = ",".join(str(channel) for channel in imex["channelIDs"].value or ())
    if "required" in imex:
        options["imex_required"] = bool(imex["required"].value)
    return NvidiaPluginConfig(options, tuple(warnings))


def _section(root: Field, name: str) -> dict[str, Field]:
    return root[name].mapping() if root[name].value else {}


def _options(given: Mapping[str, Field], known: Mapping[str, str], warnings: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, one in given.items():
        value = one.value
        if key in known:
            if value is None:
                continue
            if isinstance(value, dict) or (isinstance(value, list) and known[key] != "device_list_strategy"):
                raise one.error(f"expected one value, not {value!r}")
            several = known[key] == "device_list_strategy" and not isinstance(value, list)
            options[known[key]] = [value] if several else value
        elif key not in OF_OTHERS:
            warnings.append(_unknown(one, known))
    return options


def _unknown(field: Field, known: Collection[str]) -> str:
    return f"{field}: unknown key{nearest(str(field.path[-1]), known)}"
