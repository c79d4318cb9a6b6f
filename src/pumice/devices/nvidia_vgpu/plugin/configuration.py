"""How the plugin shares the cards of its node: the device and node ConfigMaps, read now and again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from pumice.apps.service.device_config import load_device_config, read_device_config, spaces
from pumice.devices.nvidia_vgpu.node.sharing import Flags, Sharing, effective
from pumice.model.errors import BadInput
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import names
from pumice.wire.kinds import CONFIGMAPS
from pumice.wire.node_config import NodeConfig, NodeEntry, parse_node_config
from pumice.wire.yaml_text import safe_load_all

log = logging.getLogger("pumice.node")


async def load_sharing(
    node: str, file: Path, namespace: str, flags: Flags, cluster: Cluster, clock: Clock
) -> tuple[Sharing, str]:
    """The values in force on ``node`` and the library's log level. ``file`` is the node ConfigMap's, where mounted.

    Raises BadInput when a document cannot be meant.
    """
    document = _node_config(file)
    for warning in document.warnings:
        log.warning("%s: %s", file, warning)
    entries = document.of(node)
    await _provide(namespace, cluster)
    sharing = effective(await load_device_config(namespace, cluster, clock), entries, flags)
    log.info(
        "sharing mode=%s shares=%d factor=%d memory_scaling=%s core_scaling=%s",
        sharing.mode, sharing.split, sharing.factor, float(sharing.memory_scaling), float(sharing.core_scaling),
    )  # fmt: skip
    return sharing, _log_level(entries)


async def read_sharing(
    node: str, file: Path, namespace: str, flags: Flags, cluster: Cluster
) -> tuple[Sharing, str] | None:
    """The same as it stands there now, without a word; None where there is no device ConfigMap. Raises BadInput and ApiError."""
    entries = _node_config(file).of(node)
    found = await read_device_config(namespace, cluster)
    return None if found is None else (effective(found.nvidia, entries, flags), _log_level(entries))


def _node_config(file: Path) -> NodeConfig:
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            return parse_node_config(file.read_bytes())
        except BadInput as error:
            raise BadInput(f"{file}: {error}") from error
    return NodeConfig()


def _log_level(entries: Sequence[NodeEntry]) -> str:
    return next((entry.log_level for entry in reversed(entries) if entry.log_level), "")


async def _provide(namespace: str, cluster: Cluster) -> None:
    """Make the device ConfigMap of our manifests where there is none, for people to change. What is there is theirs."""
    for space in spaces(namespace):
        try:
            await cluster.get(CONFIGMAPS, names.DEVICE_CONFIGMAP, space)
            return
        except ApiError as error:
            if error.code != 404:
                return  # whoever loads it says so
    wanted = spaces(namespace)[0]
    try:
        await cluster.create(CONFIGMAPS, _shipped(wanted), wanted)
        log.info("made ConfigMap %s/%s with the defaults", wanted, names.DEVICE_CONFIGMAP)
    except ApiError as error:
        if error.code != 409:  # another node's plugin was faster
            log.warning("ConfigMap %s/%s could not be made: %s", wanted, names.DEVICE_CONFIGMAP, error)


def _shipped(namespace: str) -> dict[str, Any]:
    text = (files("pumice") / "manifests" / "volcano-vgpu-device-plugin.yml").read_text("utf-8")
    found: dict[str, Any] = next(
        obj for obj in safe_load_all(text) if (obj["kind"], obj["metadata"]["name"]) == ("ConfigMap", names.DEVICE_CONFIGMAP)
    )
    return {**found, "metadata": {"name": names.DEVICE_CONFIGMAP, "namespace": namespace}}
