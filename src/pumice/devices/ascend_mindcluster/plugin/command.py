"""``pumice device-plugin ascend``: NPUs, for MindCluster's scheduling or for HAMi's, which is a device type of its own: the two
share this command alone."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.daemon import Kubeconfig, LogAs, LogFormat, LogLevel, run_daemon, setup_logging
from pumice.cli.plugin_options import (
    KUBELET_SOCKET,
    Cdi,
    CdiRoot,
    CdiShares,
    Cleanup,
    FailOnInit,
    HealthAddress,
    KubeletDir,
    NodeName,
    Socket,
    common,
    of_any_daemon,
)
from pumice.devices.ascend_hami.node.keeper import MODES as SWEEPS
from pumice.model.errors import BadInput
from pumice.wire import variables


class NpuMode(StrEnum):
    HAMI = "hami"
    MINDCLUSTER = "mindcluster"


OF_ONE_MODE = {
    NpuMode.HAMI: ("config_file", "node_config_file", "check_idle_vnpu_interval", "report_time_offset"),
    NpuMode.MINDCLUSTER: ("list_watch_period",),
}
"""Options that the other mode does not read."""


def ascend(
    ctx: flags.Context,
    node: Annotated[str, flags.Option("--node-name", "--node_name", envvar="NODE_NAME", help="This node's name.")] = "",
    mode: Annotated[
        NpuMode, flags.Option(help="Whose scheduling it goes with: hami, or mindcluster (chips cut on demand).")
    ] = NpuMode.HAMI,
    kubeconfig: Kubeconfig = None,
    kubelet_socket: Socket = KUBELET_SOCKET,
    config_file: Annotated[
        Path | None, flags.Option("--config-file", "--config_file", help="device-config.yaml; without it the ConfigMap is read.")
    ] = None,
    node_config_file: Annotated[
        Path | None, flags.Option("--node-config-file", "--node_config_file", help="node-config.yaml: what nodes do otherwise.")
    ] = None,
    sweep: Annotated[str, flags.Option(help="Idle slices to destroy: off, owned (made for our pods) or all.")] = "owned",
    check_idle_vnpu_interval: Annotated[
        float, flags.Option("--check-idle-vnpu-interval", "--check_idle_vnpu_interval", min=1, help="Seconds between sweeps.")
    ] = 60.0,
    list_watch_period: Annotated[
        float, flags.Option("--list-watch-period", "--listWatchPeriod", min=1, max=1800,
                            help="Seconds between looks at what the kubelet gave (mindcluster).")
    ] = 5.0,
    cleanup_on_exit: Cleanup = False,
    dry_run: Annotated[bool, flags.Option(help="Say which slices would be destroyed, and destroy none.")] = False,
    report_time_offset: Annotated[
        float, flags.Option("--report-time-offset", "--report_time_offset", help="Seconds added to the handshake's time.")
    ] = 1.0,
    hook_path: Annotated[Path, flags.Option(envvar="HOOK_PATH", help="Host folder of journal and soft shares.")] = Path(
        "/usr/local/hami-vnpu-core"
    ),
    dcmi: Annotated[str, flags.Option(envvar=variables.DCMI, help="DCMI library or its folder; empty: the driver's.")] = "",
    fail_on_init_error: FailOnInit = True,
    cdi: CdiShares = Cdi.AUTO,
    cdi_root: CdiRoot = "",
    health_bind_address: HealthAddress = "",
    soft_share: Annotated[str, flags.Option("--soft-share-dev-config-dir", "--softShareDevConfigDir", hidden=True)] = "",
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
) -> None:
    """Share this node's Ascend NPUs: huawei.com/Ascend310P and the other chips, or huawei.com/npu-core (--mode mindcluster)."""
    import asyncio

    from pumice.devices.ascend_hami.plugin import daemon as ascend_plugin
    from pumice.devices.ascend_hami.plugin.daemon import assets_folder
    from pumice.devices.ascend_mindcluster.plugin import daemon as mindcluster_plugin
    from pumice.wire.ascend_hami import SOFT_SHARE_NOT_SERVED

    if sweep not in SWEEPS:
        raise BadInput(f"--sweep {sweep!r}: use {', '.join(SWEEPS)}")
    if soft_share:
        raise BadInput(f"--softShareDevConfigDir {SOFT_SHARE_NOT_SERVED}")
    _check_mode(ctx, mode)
    said = common(node, kubelet_socket, "", fail_on_init_error, health_bind_address, cdi, cdi_root)
    said["cleanup"] = cleanup_on_exit
    setup_logging(log_format, log_level)
    if mode is NpuMode.MINDCLUSTER:
        chips = mindcluster_plugin.Settings(
            **said, dcmi=dcmi, sweep=sweep, dry_run=dry_run, look_every=list_watch_period, journal=hook_path
        )
        run_daemon(mindcluster_plugin.run, chips, kubeconfig, "pumice-device-plugin")
        return
    settings = ascend_plugin.Settings(
        **said,
        hangup=asyncio.Event(),
        dcmi=dcmi,
        config_file=config_file,
        node_config=node_config_file,
        sweep=sweep,
        sweep_every=check_idle_vnpu_interval,
        dry_run=dry_run,
        report_offset=report_time_offset,
        hook_path=hook_path,
        assets=assets_folder(),
    )
    run_daemon(ascend_plugin.run, settings, kubeconfig, "pumice-device-plugin")


def _check_mode(ctx: flags.Context, mode: NpuMode) -> None:
    """Raises BadInput for an option that this mode would not read."""
    for other, options in OF_ONE_MODE.items():
        for option in options if other is not mode else ():
            if option in ctx.given:
                raise BadInput(f"--{option.replace('_', '-')} is for --mode {other} alone; leave it out")


# -- The driver of claims (Dynamic Resource Allocation) ------------------------------------------------------------


def claims(
    node: NodeName = "",
    kubeconfig: Kubeconfig = None,
    kubelet_dir: KubeletDir = Path("/var/lib/kubelet"),
    hook_path: Annotated[Path, flags.Option(envvar="HOOK_PATH", help="Host folder of journal and records.")] = Path(
        "/usr/local/hami-vnpu-core"
    ),
    dcmi: Annotated[str, flags.Option(envvar=variables.DCMI, help="DCMI library or its folder; empty: the driver's.")] = "",
    cdi_root: CdiRoot = "",
    fail_on_init_error: FailOnInit = True,
    health_bind_address: HealthAddress = "",
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
) -> None:
    """Serve claims for this node's Ascend NPUs, whole or in slices (driver npu.pumice.io)."""
    from pumice.devices.ascend_mindcluster.plugin import claim_daemon

    settings = claim_daemon.Settings(
        kubelet_dir=kubelet_dir, hook_path=hook_path, dcmi=dcmi,
        **of_any_daemon(node, fail_on_init_error, health_bind_address, cdi_root),
    )  # fmt: skip
    setup_logging(log_format, log_level)
    run_daemon(claim_daemon.run, settings, kubeconfig, "pumice-dra-driver")
