"""The device ConfigMap, read when a daemon of the node starts and again from time to time (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu/config)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pumice.model.errors import BadInput
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig, NvidiaConfig
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.kinds import CONFIGMAPS

log = logging.getLogger("pumice.node")


async def load_device_config(namespace: str, cluster: Cluster, clock: Clock) -> NvidiaConfig:
    """The device ConfigMap, from ``namespace`` or where upstream keeps it; defaults when there is none. Asks until the API
    server answers. Raises BadInput."""
    while True:
        try:
            found = await read_device_config(namespace, cluster)
        except ApiError as error:
            log.warning("reading ConfigMap %s: %s", names.DEVICE_CONFIGMAP, error)
            await clock.sleep(2.0)
            continue
        if found is None:
            log.warning("no ConfigMap %s in %s: using the defaults", names.DEVICE_CONFIGMAP, " or ".join(spaces(namespace)))
            return NvidiaConfig()
        for warning in found.warnings:
            log.warning("ConfigMap %s: %s", names.DEVICE_CONFIGMAP, warning)
        return found.nvidia


async def follow_device_config(
    namespace: str, cluster: Cluster, clock: Clock, take: Callable[[NvidiaConfig], None], every: float
) -> None:
    """Read it again every so many seconds and hand over what changed; one that cannot be meant leaves the last one."""
    last: DeviceConfig | None = None
    complained = ""
    while True:
        await clock.sleep(every)
        try:
            found = await read_device_config(namespace, cluster)
        except (ApiError, BadInput) as error:
            if str(error) != complained:
                log.warning("device configuration kept: %s", error)
            complained = str(error)
            continue
        complained = ""
        if found is not None and found != last:
            last = found
            take(found.nvidia)


def spaces(namespace: str) -> list[str]:
    """Return where the device ConfigMap is looked for, in this order."""
    return list(dict.fromkeys([namespace or names.DEVICE_CONFIG_NAMESPACE, "kube-system", names.SYSTEM_NAMESPACE]))


async def read_device_config(namespace: str, cluster: Cluster) -> DeviceConfig | None:
    """None: there is none, or it may not be read. Raises ApiError and BadInput."""
    for space in spaces(namespace):
        try:
            found = await cluster.get(CONFIGMAPS, names.DEVICE_CONFIGMAP, space)
        except ApiError as error:
            if error.code == 403:
                log.warning("ConfigMap %s/%s may not be read: %s", space, names.DEVICE_CONFIGMAP, error.message)
            if error.code in (403, 404):
                continue
            raise
        try:
            return parse_device_config((found.get("data") or {}).get(names.DEVICE_CONFIG_KEY, ""))
        except BadInput as error:
            raise BadInput(f"ConfigMap {space}/{names.DEVICE_CONFIGMAP}: {error}") from error
    return None
