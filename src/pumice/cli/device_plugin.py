"""``pumice device-plugin``: the node's device plugins. Flags and environment: spec nvidia-device-plugin 2.2, 2.3, 19.1."""

from __future__ import annotations

import asyncio
import logging
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from pumice.adapters.bookings.foreign import booking_dirs
from pumice.adapters.mps import PROGRAM
from pumice.adapters.native import vgpu_library
from pumice.apps.node import ascend_plugin, gpushare_plugin, mindcluster_plugin, vgpu_plugin
from pumice.apps.node.soft_npus import assets_folder
from pumice.cli import nvidia_flags
from pumice.cli.daemon import Kubeconfig, LogLevel, bind_address, log_at, node_name, run_daemon
from pumice.cli.upstream_flags import UpstreamCommand
from pumice.model.errors import BadInput
from pumice.node.ascend.ownership import MODES as SWEEPS
from pumice.node.gpushare.sharing import STRATEGIES as SHARE_STRATEGIES
from pumice.node.gpushare.sharing import Legacy
from pumice.node.vgpu.answer import STRATEGIES, ResponseOptions, strategies
from pumice.node.vgpu.sharing import Flags
from pumice.wire import cdi, variables

log = logging.getLogger("pumice.cli")
KUBELET_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Register this node's cards with the kubelet and hand them out as the scheduler decided.",
    epilog="Example: NODE_NAME=n1 pumice device-plugin nvidia --kubeconfig ~/.kube/config",
)


class Advertise(StrEnum):
    STATUS = "status"
    DEVICES = "devices"
    AUTO = "auto"


class Handshake(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class NpuMode(StrEnum):
    HAMI = "hami"
    MINDCLUSTER = "mindcluster"


OF_ONE_MODE = {
    NpuMode.HAMI: ("config_file", "node_config_file", "check_idle_vnpu_interval", "report_time_offset"),
    NpuMode.MINDCLUSTER: ("list_watch_period",),
}
"""Options that the other mode does not read."""

class IdStrategy(StrEnum):
    UUID = "uuid"
    INDEX = "index"


NodeName = Annotated[str, typer.Option(envvar="NODE_NAME", help="This node's name.")]
Socket = Annotated[Path, typer.Option(envvar="KUBELET_SOCKET", help="The kubelet's registration socket.")]
Nvml = Annotated[str, typer.Option(envvar=variables.NVML, help="NVML library or its folder; empty: the system's.")]
FailOnInit = Annotated[
    bool, typer.Option("--fail-on-init-error/--wait-for-driver", envvar="FAIL_ON_INIT_ERROR",
                       help="Stop when no driver answers, or wait for one."),
]  # fmt: skip
HealthAddress = Annotated[str, typer.Option(help="ADDRESS:PORT of /metrics, /healthz and /readyz; empty: none.")]


@app.command("nvidia", epilog="Example: pumice device-plugin nvidia --node-name n1 --device-split-count 4", cls=UpstreamCommand)
def nvidia(
    node: Annotated[str, typer.Option("--node-name", envvar="NODE_NAME", help="This node's name.")] = "",
    kubeconfig: Kubeconfig = None,
    kubelet_socket: Socket = KUBELET_SOCKET,
    hook_path: Annotated[Path, typer.Option(envvar="HOOK_PATH", help="Host folder of library and regions.")] = Path(
        "/usr/local/vgpu"
    ),
    lock_dir: Annotated[Path, typer.Option(envvar=variables.LOCK_DIR, help="Host folder of the library's lock.")] = Path(
        "/tmp/vgpulock"
    ),
    library: Annotated[
        Path | None, typer.Option(envvar=variables.LIBVGPU, help="libvgpu.so to install; default: the package's own.")
    ] = None,
    nvml: Nvml = "",
    advertise: Annotated[
        Advertise, typer.Option(help="How memory and cores reach the node object; auto: as devices where the list fits.")
    ] = Advertise.STATUS,
    advertise_percentage: Annotated[
        bool, typer.Option(help="Offer volcano.sh/vgpu-memory-percentage as well, which Volcano 1.13 and later look for.")
    ] = False,
    handshake: Annotated[Handshake, typer.Option(help="For schedulers up to Volcano 1.15.")] = Handshake.AUTO,
    device_split_count: Annotated[int, typer.Option(min=0, max=1000, help="Shares per card; 0: as configured.")] = 0,
    gpu_memory_factor: Annotated[int, typer.Option(min=0, help="MiB per memory unit; 0: as configured.")] = 0,
    device_cores_scaling: Annotated[float, typer.Option(min=0.0, help="Scale of the cores; 0: as configured.")] = 0.0,
    device_config_namespace: Annotated[
        str, typer.Option(envvar="DEVICE_CONFIG_NAMESPACE", help="Where to look first for the device ConfigMap.")
    ] = "",
    node_config: Annotated[Path, typer.Option(help="config.json of the node ConfigMap.")] = Path("/config/config.json"),
    device_list_strategy: Annotated[
        list[str] | None,
        typer.Option(envvar=variables.DEVICE_LIST_STRATEGY, help=f"How cards are named: {', '.join(STRATEGIES)}."),
    ] = None,
    device_id_strategy: Annotated[
        IdStrategy, typer.Option(envvar="DEVICE_ID_STRATEGY", help="Name cards by UUID or index.")
    ] = IdStrategy.UUID,
    pass_device_specs: Annotated[bool, typer.Option(envvar="PASS_DEVICE_SPECS", help="Answer /dev/nvidia* too.")] = False,
    dev_root: Annotated[
        str, typer.Option("--nvidia-dev-root", "--dev-root", envvar=variables.DEV_ROOT, help="Root of the device files.")
    ] = "",
    gdrcopy_enabled: Annotated[bool, typer.Option(envvar="GDRCOPY_ENABLED", help="NVIDIA_GDRCOPY=enabled.")] = False,
    gds_enabled: Annotated[bool, typer.Option(envvar="GDS_ENABLED", help="NVIDIA_GDS=enabled.")] = False,
    mofed_enabled: Annotated[bool, typer.Option(envvar="MOFED_ENABLED", help="NVIDIA_MOFED=enabled.")] = False,
    disable_control_strict: Annotated[
        bool, typer.Option(help="Only CUDA_DISABLE_CONTROL=true leaves the library out, not any value.")
    ] = False,
    disable_control_never: Annotated[
        bool, typer.Option(help="No pod leaves the library out, whatever its variables say.")
    ] = False,
    mig_strategy: Annotated[
        str, typer.Option(envvar="MIG_STRATEGY", help="none: cards in MIG mode are cut on demand; mixed: as they are cut.")
    ] = "none",
    cleanup_on_exit: Annotated[
        bool, typer.Option(help="Take from the node object, at the end, what the plugin has said there.")
    ] = False,
    config_file: nvidia_flags.ConfigFile = None,
    driver_root: nvidia_flags.DriverRoot = "/",
    device_discovery_strategy: nvidia_flags.Discovery = "auto",
    imex_channel_ids: nvidia_flags.ImexIds = "",
    imex_required: nvidia_flags.ImexRequired = False,
    mps_root: nvidia_flags.MpsRoot = None,
    mps_control: Annotated[str, typer.Option(help="MPS's control program, by name or path.")] = PROGRAM,
    cdi_root: nvidia_flags.CdiRoot = "",
    cdi_annotation_prefix: nvidia_flags.CdiPrefix = "",
    nvidia_cdi_hook_path: nvidia_flags.CdiHook = "",
    cdi_feature_flags: nvidia_flags.CdiFeatures = "",
    driver_root_ctr_path: nvidia_flags.RootInside = "",
    fail_on_init_error: FailOnInit = True,
    health_bind_address: HealthAddress = "",
    log_level: LogLevel = "info",
) -> None:
    """Share this node's NVIDIA cards: volcano.sh/vgpu-number, vgpu-memory and vgpu-cores."""
    if mig_strategy == "single":
        raise BadInput("--mig-strategy single is not served; with none a card in MIG mode is cut as pods need it, with mixed its "
                       "slices are resources of their own")  # fmt: skip
    if mig_strategy not in ("none", "mixed"):
        raise BadInput(f"--mig-strategy {mig_strategy!r}: use none or mixed")
    named = strategies(device_list_strategy or ())
    given = {"cdi_annotation_prefix": cdi_annotation_prefix, "cdi_feature_flags": cdi_feature_flags, "cdi_root": cdi_root,
             "nvidia_cdi_hook_path": nvidia_cdi_hook_path, "driver_root_ctr_path": driver_root_ctr_path}  # fmt: skip
    nvidia_flags.check(
        device_discovery_strategy, imex_channel_ids, imex_required,
        **({} if ResponseOptions(strategies=named).cdi else given),
    )  # fmt: skip
    settings = vgpu_plugin.Settings(
        **_common(node, kubelet_socket, nvml, fail_on_init_error, health_bind_address),
        cleanup=cleanup_on_exit,
        hangup=asyncio.Event(),
        hook_path=hook_path,
        lock_dir=lock_dir,
        library=library or own_library(),
        advertise=advertise.value,
        advertise_percentage=advertise_percentage,
        handshake=handshake.value,
        config_namespace=device_config_namespace,
        node_config=node_config,
        mig_strategy=mig_strategy,
        mps_root=mps_root,
        mps_program=mps_control,
        flags=Flags(device_split_count, gpu_memory_factor, device_cores_scaling),
        cdi=nvidia_flags.cdi_places(
            cdi_root, nvidia_cdi_hook_path, driver_root, driver_root_ctr_path, dev_root, cdi_feature_flags
        ),
        response_options=ResponseOptions(
            strategies=named,
            annotation_prefix=cdi_annotation_prefix or cdi.ANNOTATION_PREFIX,
            by_index=device_id_strategy is IdStrategy.INDEX,
            device_specs=pass_device_specs,
            dev_root=(dev_root or driver_root).rstrip("/"),
            gdrcopy=gdrcopy_enabled,
            gds=gds_enabled,
            mofed=mofed_enabled,
            strict_disable=disable_control_strict,
            never_disable=disable_control_never,
        ),
    )
    log_at(log_level)
    run_daemon(vgpu_plugin.run, settings, kubeconfig, "pumice-device-plugin")


@app.command("gpushare", epilog="Example: pumice device-plugin gpushare --node-name n1 --gpu-strategy share")
def gpushare(
    node: Annotated[str, typer.Option("--node-name", envvar="NODE_NAME", help="This node's name.")] = "",
    kubeconfig: Kubeconfig = None,
    kubelet_socket: Socket = KUBELET_SOCKET,
    gpu_strategy: Annotated[str, typer.Option(envvar=variables.GPU_STRATEGY, help="share (by memory) or number.")] = "share",
    gpu_memory_factor: Annotated[int, typer.Option(envvar=variables.GPU_MEMORY_FACTOR, min=1, help="MiB per unit.")] = 1,
    config_file: Annotated[
        Path | None, typer.Option(envvar="CONFIG_FILE", help="YAML with flags.GPUStrategy and flags.GPUMemoryFactor.")
    ] = None,
    nvml: Nvml = "",
    fail_on_init_error: FailOnInit = True,
    health_bind_address: HealthAddress = "",
    log_level: LogLevel = "info",
) -> None:
    """Share cards without limits, as the older plugin: volcano.sh/gpu-memory and gpu-number."""
    if gpu_strategy not in SHARE_STRATEGIES:
        raise BadInput(f"--gpu-strategy {gpu_strategy!r}: use {' or '.join(SHARE_STRATEGIES)}")
    if config_file is not None:
        _check_config_file(config_file)
    settings = gpushare_plugin.Settings(
        **_common(node, kubelet_socket, nvml, fail_on_init_error, health_bind_address),
        legacy=Legacy(gpu_strategy, gpu_memory_factor),
    )
    log_at(log_level)
    run_daemon(gpushare_plugin.run, settings, kubeconfig, "pumice-device-plugin")


@app.command("ascend", epilog="Example: NODE_NAME=n1 pumice device-plugin ascend --config_file /device-config.yaml")
def ascend(
    ctx: typer.Context,
    node: Annotated[str, typer.Option("--node-name", "--node_name", envvar="NODE_NAME", help="This node's name.")] = "",
    mode: Annotated[
        NpuMode, typer.Option(help="Whose scheduling it goes with: hami, or mindcluster (chips cut on demand).")
    ] = NpuMode.HAMI,
    kubeconfig: Kubeconfig = None,
    kubelet_socket: Socket = KUBELET_SOCKET,
    config_file: Annotated[
        Path | None, typer.Option("--config-file", "--config_file", help="device-config.yaml; without it the ConfigMap is read.")
    ] = None,
    node_config_file: Annotated[
        Path | None, typer.Option("--node-config-file", "--node_config_file", help="node-config.yaml: what nodes do otherwise.")
    ] = None,
    sweep: Annotated[str, typer.Option(help="Idle slices to destroy: off, owned (made for our pods) or all.")] = "owned",
    check_idle_vnpu_interval: Annotated[
        float, typer.Option("--check-idle-vnpu-interval", "--check_idle_vnpu_interval", min=1, help="Seconds between sweeps.")
    ] = 60.0,
    list_watch_period: Annotated[
        float, typer.Option("--list-watch-period", "--listWatchPeriod", min=1, max=1800,
                            help="Seconds between looks at what the kubelet gave (mindcluster).")
    ] = 5.0,
    cleanup_on_exit: Annotated[
        bool, typer.Option(help="Take from the node object, at the end, what the plugin has said there.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Say which slices would be destroyed, and destroy none.")] = False,
    report_time_offset: Annotated[
        float, typer.Option("--report-time-offset", "--report_time_offset", help="Seconds added to the handshake's time.")
    ] = 1.0,
    hook_path: Annotated[Path, typer.Option(envvar="HOOK_PATH", help="Host folder of journal and soft shares.")] = Path(
        "/usr/local/hami-vnpu-core"
    ),
    dcmi: Annotated[str, typer.Option(envvar=variables.DCMI, help="DCMI library or its folder; empty: the driver's.")] = "",
    fail_on_init_error: FailOnInit = True,
    health_bind_address: HealthAddress = "",
    soft_share: Annotated[str, typer.Option("--soft-share-dev-config-dir", "--softShareDevConfigDir", hidden=True)] = "",
    log_level: LogLevel = "info",
) -> None:
    """Share this node's Ascend NPUs: huawei.com/Ascend310P and the other chips, or huawei.com/npu-core (--mode mindcluster)."""
    if sweep not in SWEEPS:
        raise BadInput(f"--sweep {sweep!r}: use {', '.join(SWEEPS)}")
    if soft_share:
        raise BadInput("--softShareDevConfigDir is not served: nothing here shares NPUs as vCANN-RT does")
    _check_mode(ctx, mode)
    common = {**_common(node, kubelet_socket, "", fail_on_init_error, health_bind_address), "cleanup": cleanup_on_exit}
    log_at(log_level)
    if mode is NpuMode.MINDCLUSTER:
        chips = mindcluster_plugin.Settings(
            **common, dcmi=dcmi, sweep=sweep, dry_run=dry_run, look_every=list_watch_period, journal=hook_path
        )
        run_daemon(mindcluster_plugin.run, chips, kubeconfig, "pumice-device-plugin")
        return
    settings = ascend_plugin.Settings(
        **common,
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


def own_library() -> Path | None:
    """``libvgpu.so`` of the installed package; None (with a warning) where it was not built."""
    path = vgpu_library()
    if path.is_file():
        return path
    log.warning("%s is not there: nothing is installed into the hook path and limits are not enforced", path)
    return None


def _common(node: str, kubelet_socket: Path, nvml: str, fail_on_init_error: bool, health_address: str) -> dict[str, Any]:
    """What is said of a plugin whatever its brand, as PluginSettings has it."""
    address, port = bind_address(health_address, "--health-bind-address") if health_address else ("", 0)
    return {
        "node_name": node_name(node),
        "device_plugin_dir": _plugin_dir(kubelet_socket),
        "nvml": nvml,
        "wait_for_driver": not fail_on_init_error,
        "disable_health_checks": os.environ.get("DP_DISABLE_HEALTHCHECKS", ""),
        "enable_health_checks": os.environ.get("DP_ENABLE_HEALTHCHECKS", ""),
        "health_address": address,
        "health_port": port,
        "booking_dirs": booking_dirs(os.environ),
    }


def _check_mode(ctx: typer.Context, mode: NpuMode) -> None:
    """Raises BadInput for an option that this mode would not read."""
    for other, options in OF_ONE_MODE.items():
        for option in options if other is not mode else ():
            source = ctx.get_parameter_source(option)
            if source is not None and source.name == "COMMANDLINE":
                raise BadInput(f"--{option.replace('_', '-')} is for --mode {other} alone; leave it out")


def _plugin_dir(socket: Path) -> Path:
    if not socket.name:
        raise BadInput("--kubelet-socket is empty: nothing would be registered, and nothing handed out")
    if socket.name != "kubelet.sock":
        raise BadInput(f"--kubelet-socket {socket}: the kubelet's socket is called kubelet.sock")
    return socket.parent


def _check_config_file(path: Path) -> None:
    """The file has no effect, as upstream: the flags' defaults always win. It is still told when it is broken."""
    try:
        document: Any = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or document.get("version") not in ("v1", "v1beta1"):
        raise BadInput(f"{path}: expected `version: v1beta1`")
    log.warning("%s has no effect: --gpu-strategy and --gpu-memory-factor count", path)
