"""Configurations of the scheduler, as the text that a ConfigMap holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.devices.registry import ARGUMENTS

Plugin = str | Mapping[str, Mapping[str, Any]]


def conf(*plugins: Plugin | list[Plugin], actions: str = "enqueue, allocate, backfill",
         init: Mapping[str, str] | None = None) -> str:  # fmt: skip
    """A scheduler.conf with these plugins, in one tier, or in one for each list. A plugin is its name, or its name with what it
    is told: what begins with ``enable`` is a switch, the rest are arguments. ``init``: arguments of ``init-params``."""
    lines = [f'actions: "{actions}"']
    if init is not None:
        lines += ["configurations:", "- name: init-params", "  arguments:", *_pairs(init, "    ")]
    lines.append("tiers:")
    for tier in plugins if any(isinstance(plugin, list) for plugin in plugins) else [plugins]:
        lines.append("- plugins:")
        for plugin in tier:
            name, told = (plugin, {}) if isinstance(plugin, str) else next(iter(plugin.items()))  # type: ignore[union-attr]
            switches = {key: value for key, value in told.items() if key.startswith("enable")}
            lines += [f"  - name: {name}", *_pairs(switches, "    ")]
            if len(switches) < len(told):
                lines += ["    arguments:", *_pairs({key: told[key] for key in told if key not in switches}, "      ")]
    return "\n".join(lines) + "\n"


def sharing(*device_types: str, **told: Any) -> Plugin:
    """Plugin deviceshare for ``VGPU``, ``GPUSharing`` and others, with further arguments by the words behind their prefix."""
    found = {f"deviceshare.{device_type}Enable": True for device_type in device_types}
    known = {name.partition(".")[2]: name for name in ARGUMENTS}
    return {"deviceshare": {**found, **{known[key]: value for key, value in told.items()}}}


def _pairs(said: Mapping[str, Any], indent: str) -> list[str]:
    """Words stand as they are written: they may have to be put in quotation marks, or be filled in later."""
    return [f"{indent}{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in said.items()]
