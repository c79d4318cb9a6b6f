"""``pumice device-plugin gpushare``: cards shared by memory without limits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.daemon import Kubeconfig, LogAs, LogFormat, LogLevel, run_daemon, setup_logging
from pumice.cli.plugin_options import (
    KUBELET_SOCKET,
    Cdi,
    CdiRoot,
    CdiShares,
    FailOnInit,
    HealthAddress,
    NodeName,
    Nvml,
    Socket,
    common,
)
from pumice.model.errors import BadInput
from pumice.wire import variables

log = logging.getLogger("pumice.cli")


def gpushare(
    node: NodeName = "",
    kubeconfig: Kubeconfig = None,
    kubelet_socket: Socket = KUBELET_SOCKET,
    gpu_strategy: Annotated[str, flags.Option(envvar=variables.GPU_STRATEGY, help="share (by memory) or number.")] = "share",
    gpu_memory_factor: Annotated[int, flags.Option(envvar=variables.GPU_MEMORY_FACTOR, min=1, help="MiB per unit.")] = 1,
    config_file: Annotated[
        Path | None, flags.Option(envvar="CONFIG_FILE", help="YAML with flags.GPUStrategy and flags.GPUMemoryFactor.")
    ] = None,
    nvml: Nvml = "",
    fail_on_init_error: FailOnInit = True,
    cdi: CdiShares = Cdi.AUTO,
    cdi_root: CdiRoot = "",
    health_bind_address: HealthAddress = "",
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
) -> None:
    """Share cards without limits, as the older plugin: volcano.sh/gpu-memory and gpu-number."""
    from pumice.devices.nvidia_gpushare.node.allocator import STRATEGIES, Legacy
    from pumice.devices.nvidia_gpushare.plugin import daemon as gpushare_plugin

    if gpu_strategy not in STRATEGIES:
        raise BadInput(f"--gpu-strategy {gpu_strategy!r}: use {' or '.join(STRATEGIES)}")
    if config_file is not None:
        _check_config_file(config_file)
    settings = gpushare_plugin.Settings(
        **common(node, kubelet_socket, nvml, fail_on_init_error, health_bind_address, cdi, cdi_root),
        legacy=Legacy(gpu_strategy, gpu_memory_factor),
    )
    setup_logging(log_format, log_level)
    run_daemon(gpushare_plugin.run, settings, kubeconfig, "pumice-device-plugin")


def _check_config_file(path: Path) -> None:
    """The file has no effect, as upstream: the flags' defaults always win. It is still told when it is broken."""
    from pumice.cli.streams import read
    from pumice.wire.document import read_document

    document = read_document(read(path), file=str(path)).value
    if not isinstance(document, dict) or document.get("version") not in ("v1", "v1beta1"):
        raise BadInput(f"{path}: expected `version: v1beta1`")
    log.warning("%s has no effect: --gpu-strategy and --gpu-memory-factor count", path)
