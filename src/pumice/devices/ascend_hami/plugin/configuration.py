"""How a node shares its NPUs, by the ConfigMaps or the files that are mounted in their place (spec ascend 15)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pumice.devices.ascend_hami.node.inventory import NpuSharing
from pumice.model.errors import BadInput
from pumice.model.hardware.npu import NpuChip
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import names
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.kinds import CONFIGMAPS
from pumice.wire.npu_config import VnpuConfig, shipped
from pumice.wire.npu_node_config import NpuNodeEntry, parse_npu_node_config

log = logging.getLogger("pumice.node")


def known(found: Sequence[str], chips: Sequence[NpuChip]) -> list[NpuChip]:
    """The configuration's entries of the chips that the driver reports. Raises BadInput where it has none for any of them."""
    by_name = {chip.name: chip for chip in chips}
    for name in found:
        if name not in by_name:
            log.error("can not find vnpu config for chip %s; it is not shared", name)
    if not any(name in by_name for name in found):
        raise BadInput(f"can not find vnpu config for chip {', '.join(found) or '(none: the driver lists no NPU)'}")
    return [by_name[name] for name in found if name in by_name]


def sharing_of(chip: NpuChip, config: VnpuConfig, entry: NpuNodeEntry | None) -> NpuSharing:
    """A node's entry replaces the global word on soft sharing (spec ascend 15.2)."""
    sharing = NpuSharing(chip, config.soft)
    if entry is None:
        return sharing
    return replace(sharing, soft=entry.soft, shares=entry.shares, without_indices=entry.without_indices,
                   without_uuids=entry.without_uuids)  # fmt: skip


async def load_vnpus(file: Path | None, cluster: Cluster, clock: Clock, *, tell: bool = True) -> VnpuConfig:
    """The chips and templates: of the file, else of the first ConfigMap that says something of NPUs, else as shipped. ``tell``:
    whether the log shall have what is wrong with them."""
    if file is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{file}: {error}") from error
        found = _parse(text, str(file), tell)
        if found is None:
            raise BadInput(f"{file}: nothing in it is about NPUs (vnpus)")
        return found
    for name in (names.NPU_CONFIGMAP, names.DEVICE_CONFIGMAP):
        text = await _config_map(name, cluster, clock)
        found = _parse(text, f"ConfigMap {names.DEVICE_CONFIG_NAMESPACE}/{name}", tell) if text else None
        if found is not None:
            return found
    if tell:
        log.warning("no ConfigMap says anything of NPUs: the chips and templates that are known are used")
    return shipped()


async def _config_map(name: str, cluster: Cluster, clock: Clock) -> str:
    while True:
        try:
            found = await cluster.get(CONFIGMAPS, name, names.DEVICE_CONFIG_NAMESPACE)
            return str((found.get("data") or {}).get(names.DEVICE_CONFIG_KEY, ""))
        except ApiError as error:
            if error.code in (403, 404):
                return ""
            log.warning("reading ConfigMap %s: %s", name, error)
            await clock.sleep(2.0)


def _parse(text: str, where: str, tell: bool) -> VnpuConfig | None:
    try:
        config = parse_device_config(text)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
    for warning in config.warnings if tell else ():
        log.warning("%s: %s", where, warning)
    return config.vnpus


def read_node_entry(file: Path | None, node: str) -> NpuNodeEntry | None:
    if file is None:
        return None
    try:
        entry, problems = parse_npu_node_config(file.read_text("utf-8"), node)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, BadInput) as error:
        raise BadInput(f"{file}: {error}") from error
    for problem in problems:
        log.warning("%s: %s", file, problem)
    return entry
