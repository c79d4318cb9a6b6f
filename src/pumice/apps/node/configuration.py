"""How the plugin shares the cards of its node: the device and node ConfigMaps, read once when it starts."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from pumice.apps.service.device_config import load_device_config
from pumice.model.errors import BadInput
from pumice.node.vgpu.sharing import Flags, Sharing, effective
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
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
