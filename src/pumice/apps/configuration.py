"""Reads the device and node ConfigMaps once, when a daemon of the node starts (spec nvidia-device-plugin 2.1)."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from pumice.apps.own_node import CONFIG_MAPS
from pumice.model.refusal import BadInput
from pumice.node.sharing import Flags, Sharing, effective
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig, parse_device_config
from pumice.wire.node_config import NodeEntry, parse_node_config

log = logging.getLogger("pumice.node")


async def load_sharing(
    node: str, file: Path, namespace: str, flags: Flags, cluster: Cluster, clock: Clock
) -> tuple[Sharing, str]:
    """The values in force on ``node`` and the library's log level. ``file`` is the node ConfigMap's, where mounted.

    Raises BadInput when a document cannot be meant.
    """
    entries: tuple[NodeEntry, ...] = ()
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            document = parse_node_config(file.read_bytes())
        except BadInput as error:
            raise BadInput(f"{file}: {error}") from error
        for warning in document.warnings:
            log.warning("%s: %s", file, warning)
        entries = document.of(node)
    sharing = effective(await load_device_config(namespace, cluster, clock), entries, flags)
    log.info(
        "sharing mode=%s shares=%d factor=%d memory_scaling=%s core_scaling=%s",
        sharing.mode, sharing.split, sharing.factor, float(sharing.memory_scaling), float(sharing.core_scaling),
    )  # fmt: skip
    return sharing, next((entry.log_level for entry in reversed(entries) if entry.log_level), "")


async def load_device_config(namespace: str, cluster: Cluster, clock: Clock) -> NvidiaConfig:
    """The device ConfigMap, from ``namespace`` or where upstream keeps it; defaults when there is none."""
    spaces = dict.fromkeys([namespace or names.DEVICE_CONFIG_NAMESPACE, "kube-system", names.SYSTEM_NAMESPACE])
    for space in spaces:
        while True:
            try:
                found = await cluster.get(CONFIG_MAPS, names.DEVICE_CONFIGMAP, space)
            except ApiError as error:
                if error.code in (403, 404):
                    break
                log.warning("reading ConfigMap %s/%s: %s", space, names.DEVICE_CONFIGMAP, error)
                await clock.sleep(2.0)
                continue
            text = (found.get("data") or {}).get(names.DEVICE_CONFIG_KEY, "")
            try:
                config = parse_device_config(text)
            except BadInput as error:
                raise BadInput(f"ConfigMap {space}/{names.DEVICE_CONFIGMAP}: {error}") from error
            for warning in config.warnings:
                log.warning("ConfigMap %s/%s: %s", space, names.DEVICE_CONFIGMAP, warning)
            return config.nvidia
    log.warning("no ConfigMap %s in %s: using the defaults", names.DEVICE_CONFIGMAP, " or ".join(spaces))
    return NvidiaConfig()
