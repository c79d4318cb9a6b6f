"""``pumice device-plugin nvidia``: NVIDIA's cards, in shares with limits. Its flags go by HAMi's and NVIDIA's names (HAMi
volcano-vgpu-device-plugin pkg/plugin/vgpu/config); those whose promise is not kept here are named, or refused where a container
would miss what it was promised."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

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
    Nvml,
    Socket,
    common,
    of_any_daemon,
)
from pumice.model.errors import BadInput
from pumice.ports.mps import PROGRAM
from pumice.wire import variables
from pumice.wire.cdi import STRATEGIES, strategies

log = logging.getLogger("pumice.cli")

WITH_CDI: Final = " With cdi-annotations or cdi-cri."


class Advertise(StrEnum):
    STATUS = "status"
    DEVICES = "devices"
    AUTO = "auto"


class Handshake(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class IdStrategy(StrEnum):
    UUID = "uuid"
    INDEX = "index"


HookPath = Annotated[Path, flags.Option(envvar="HOOK_PATH", help="Host folder of library and regions.")]
LockDir = Annotated[Path, flags.Option(envvar=variables.LOCK_DIR, help="Host folder of the library's lock.")]
Library = Annotated[
    Path | None, flags.Option(envvar=variables.LIBVGPU, help="libvgpu.so to install; default: the package's own.")
]
Advertised = Annotated[
    Advertise, flags.Option(help="How memory and cores reach the node object; auto: as devices where the list fits.")
]
Percentage = Annotated[
    bool, flags.Option(help="Offer volcano.sh/vgpu-memory-percentage as well, which Volcano 1.13 and later look for.")
]
Handshakes = Annotated[Handshake, flags.Option(help="For schedulers up to Volcano 1.15.")]
SplitCount = Annotated[int, flags.Option(min=0, max=1000, help="Shares per card; 0: as configured.")]
MemoryFactor = Annotated[int, flags.Option(min=0, help="MiB per memory unit; 0: as configured.")]
CoresScaling = Annotated[float, flags.Option(min=0.0, help="Scale of the cores; 0: as configured.")]
ConfigNamespace = Annotated[
    str, flags.Option(envvar="DEVICE_CONFIG_NAMESPACE", help="Where to look first for the device ConfigMap.")
]
NodeConfig = Annotated[Path, flags.Option(help="config.json of the node ConfigMap.")]
DeviceLists = Annotated[
    list[str] | None,
    flags.Option(envvar=variables.DEVICE_LIST_STRATEGY, help=f"How cards are named: {', '.join(STRATEGIES)}."),
]
DeviceIds = Annotated[IdStrategy, flags.Option(envvar="DEVICE_ID_STRATEGY", help="Name cards by UUID or index.")]
DeviceSpecs = Annotated[bool, flags.Option(envvar="PASS_DEVICE_SPECS", help="Answer /dev/nvidia* too.")]
DevRoot = Annotated[
    str, flags.Option("--nvidia-dev-root", "--dev-root", envvar=variables.DEV_ROOT, help="Root of the device files.")
]
Gdrcopy = Annotated[bool, flags.Option(envvar="GDRCOPY_ENABLED", help="NVIDIA_GDRCOPY=enabled.")]
Gds = Annotated[bool, flags.Option(envvar="GDS_ENABLED", help="NVIDIA_GDS=enabled.")]
Mofed = Annotated[bool, flags.Option(envvar="MOFED_ENABLED", help="NVIDIA_MOFED=enabled.")]
AllowDisable = Annotated[
    bool, flags.Option(help="CUDA_DISABLE_CONTROL in a pod, of any value, leaves the library and so its limits out, as upstream.")
]
DisableStrict = Annotated[
    bool, flags.Option(help="With --allow-disable-control: only CUDA_DISABLE_CONTROL=true does, not any value.")
]
DisableNever = Annotated[
    bool, flags.Option(help="The default by now: no pod leaves the library out. Stands above --allow-disable-control.")
]
MigStrategy = Annotated[
    str, flags.Option(envvar="MIG_STRATEGY", help="none: cards in MIG mode are cut on demand; mixed: as they are cut.")
]
MpsControl = Annotated[str, flags.Option(help="MPS's control program, by name or path.")]


def _from_file(ctx: flags.Context, path: Path | None) -> Path | None:
    """Flag, then environment variable, then this file, then default."""
    if path is not None:
        from pumice.cli.streams import read
        from pumice.wire.document import read_document
        from pumice.wire.nvidia_plugin_config import nvidia_plugin_config

        config = nvidia_plugin_config(read_document(read(path), file=str(path)))
        for warning in config.warnings:
            log.warning("%s", warning)
        ctx.defaults |= config.options
    return path


def _of(*names: str, env: str | list[str], text: str) -> flags.Option:
    return flags.Option(*names, envvar=env, help=text)


ConfigFile = Annotated[
    Path | None, flags.Option("--config-file", envvar="CONFIG_FILE", first=_from_file,
                              help="Its configuration file, version v1; flags and variables count before it."),
]  # fmt: skip
DriverRoot = Annotated[str, _of("--nvidia-driver-root", "--driver-root", env=variables.DRIVER_ROOT, text="The driver's root.")]
Discovery = Annotated[str, _of("--device-discovery-strategy", env="DEVICE_DISCOVERY_STRATEGY", text="auto or nvml.")]
ImexIds = Annotated[str, _of("--imex-channel-ids", env="IMEX_CHANNEL_IDS", text="Empty: no channels are handed out.")]
ImexRequired = Annotated[bool, _of("--imex-required", env="IMEX_REQUIRED", text="Not served.")]
MpsRoot = Annotated[Path | None, _of("--mps-root", env="MPS_ROOT", text="Host folder of MPS's pipes, for operatingmode mps.")]
CdiPrefix = Annotated[str, _of("--cdi-annotation-prefix", env="CDI_ANNOTATION_PREFIX", text="Of the answer's annotation.")]
CdiHook = Annotated[
    str, _of("--nvidia-cdi-hook-path", "--nvidia-ctk-path", env=[*variables.CDI_HOOK_PATHS],
             text=f"The host's hook that the file names.{WITH_CDI}"),
]  # fmt: skip
CdiFeatures = Annotated[str, _of("--cdi-feature-flags", env="CDI_FEATURE_FLAGS", text=f"For nvidia-ctk.{WITH_CDI}")]
RootInside = Annotated[
    str, _of("--driver-root-ctr-path", "--container-driver-root", text=f"Where the driver's root is mounted here.{WITH_CDI}",
             env=["DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"]),
]  # fmt: skip


def check(mig: str, discovery: str, imex_ids: str, imex_required: bool) -> None:
    """Refuse what would not be kept. Raises BadInput."""
    if mig == "single":
        raise BadInput("--mig-strategy single is not served; with none a card in MIG mode is cut as pods need it, with mixed its "
                       "slices are resources of their own")  # fmt: skip
    if mig not in ("none", "mixed"):
        raise BadInput(f"--mig-strategy {mig!r}: use none or mixed")
    if discovery == "tegra":
        raise BadInput("--device-discovery-strategy tegra: cards of Tegra boards are not served; use auto or nvml")
    if discovery not in ("auto", "nvml"):
        raise BadInput(f"--device-discovery-strategy {discovery!r}: use auto or nvml")
    if imex_ids.strip("[] "):
        raise BadInput(f"--imex-channel-ids {imex_ids}: no IMEX channels are handed out to containers; leave it empty")
    if imex_required:
        raise BadInput("--imex-required: no IMEX channels are handed out to containers")


def say_without_effect(**options: str) -> None:
    """Name those that were given."""
    if given := sorted(f"--{name.replace('_', '-')}" for name, value in options.items() if value):
        log.warning("without effect: %s", ", ".join(given))


def nvidia(
    node: NodeName = "",
    kubeconfig: Kubeconfig = None,
    kubelet_socket: Socket = KUBELET_SOCKET,
    hook_path: HookPath = Path("/usr/local/vgpu"),
    lock_dir: LockDir = Path("/tmp/vgpulock"),
    library: Library = None,
    nvml: Nvml = "",
    advertise: Advertised = Advertise.STATUS,
    advertise_percentage: Percentage = False,
    handshake: Handshakes = Handshake.AUTO,
    device_split_count: SplitCount = 0,
    gpu_memory_factor: MemoryFactor = 0,
    device_cores_scaling: CoresScaling = 0.0,
    device_config_namespace: ConfigNamespace = "",
    node_config: NodeConfig = Path("/config/config.json"),
    device_list_strategy: DeviceLists = None,
    device_id_strategy: DeviceIds = IdStrategy.UUID,
    pass_device_specs: DeviceSpecs = False,
    dev_root: DevRoot = "",
    gdrcopy_enabled: Gdrcopy = False,
    gds_enabled: Gds = False,
    mofed_enabled: Mofed = False,
    allow_disable_control: AllowDisable = False,
    disable_control_strict: DisableStrict = False,
    disable_control_never: DisableNever = False,
    mig_strategy: MigStrategy = "none",
    cleanup_on_exit: Cleanup = False,
    config_file: ConfigFile = None,
    driver_root: DriverRoot = "/",
    device_discovery_strategy: Discovery = "auto",
    imex_channel_ids: ImexIds = "",
    imex_required: ImexRequired = False,
    mps_root: MpsRoot = None,
    mps_control: MpsControl = PROGRAM,
    cdi: CdiShares = Cdi.AUTO,
    cdi_root: CdiRoot = "",
    cdi_annotation_prefix: CdiPrefix = "",
    nvidia_cdi_hook_path: CdiHook = "",
    cdi_feature_flags: CdiFeatures = "",
    driver_root_ctr_path: RootInside = "",
    fail_on_init_error: FailOnInit = True,
    health_bind_address: HealthAddress = "",
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
) -> None:
    """Share this node's NVIDIA cards: volcano.sh/vgpu-number, vgpu-memory and vgpu-cores."""
    import asyncio

    from pumice.devices.nvidia_vgpu.node.answer import ResponseOptions
    from pumice.devices.nvidia_vgpu.node.sharing import Flags
    from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
    from pumice.devices.nvidia_vgpu.plugin.cdi_files import CdiPlaces
    from pumice.wire.cdi import ANNOTATION_PREFIX

    check(mig_strategy, device_discovery_strategy, imex_channel_ids, imex_required)
    options = ResponseOptions(
        strategies=strategies(device_list_strategy or ()),
        annotation_prefix=cdi_annotation_prefix or ANNOTATION_PREFIX,
        by_index=device_id_strategy is IdStrategy.INDEX,
        device_specs=pass_device_specs,
        dev_root=(dev_root or driver_root).rstrip("/"),
        gdrcopy=gdrcopy_enabled,
        gds=gds_enabled,
        mofed=mofed_enabled,
        strict_disable=disable_control_strict,
        allow_disable=allow_disable_control and not disable_control_never,
    )
    if not options.cdi:
        say_without_effect(
            cdi_annotation_prefix=cdi_annotation_prefix, cdi_feature_flags=cdi_feature_flags,
            nvidia_cdi_hook_path=nvidia_cdi_hook_path, driver_root_ctr_path=driver_root_ctr_path,
        )  # fmt: skip
    usual = CdiPlaces()
    settings = vgpu_plugin.Settings(
        **common(node, kubelet_socket, nvml, fail_on_init_error, health_bind_address, cdi, cdi_root),
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
        cdi=CdiPlaces(
            Path(cdi_root) if cdi_root else usual.root, nvidia_cdi_hook_path or usual.hook, driver_root,
            Path(driver_root_ctr_path) if driver_root_ctr_path else usual.inside, options.dev_root, cdi_feature_flags,
        ),
        response_options=options,
    )  # fmt: skip
    setup_logging(log_format, log_level)
    run_daemon(vgpu_plugin.run, settings, kubeconfig, "pumice-device-plugin")


def own_library() -> Path | None:
    """``libvgpu.so`` of the installed package; None (with a warning) where it was not built."""
    from pumice.adapters.native import vgpu_library

    path = vgpu_library()
    if path.is_file():
        return path
    log.warning("%s is not there: nothing is installed into the hook path and limits are not enforced", path)
    return None


# -- The driver of claims (Dynamic Resource Allocation) ------------------------------------------------------------


class Worlds(StrEnum):
    SHARED = "shared"
    WHOLE = "whole"
    BOTH = "both"
    HAMI = "hami"


CardWorlds = Annotated[
    Worlds,
    flags.Option(help="Publish each card as shared, as whole, or as both, which needs a scheduler that counts shares; "
                 "hami: as shared, by the names of HAMi's driver."),
]


ClaimMpsRoot = Annotated[
    Path | None, flags.Option(help="Host folder of MPS's pipes, for claims with the strategy MPS; another than the plugin's.")
]  # fmt: skip


def claims(
    node: NodeName = "",
    kubeconfig: Kubeconfig = None,
    kubelet_dir: KubeletDir = Path("/var/lib/kubelet"),
    hook_path: HookPath = Path("/usr/local/vgpu"),
    lock_dir: LockDir = Path("/tmp/vgpulock"),
    library: Library = None,
    nvml: Nvml = "",
    worlds: CardWorlds = Worlds.SHARED,
    mps_root: ClaimMpsRoot = None,
    mps_control: MpsControl = PROGRAM,
    cdi_root: CdiRoot = "",
    fail_on_init_error: FailOnInit = True,
    health_bind_address: HealthAddress = "",
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
) -> None:
    """Serve claims for this node's NVIDIA cards (driver gpu.pumice.io; with --worlds hami hami-core-gpu.project-hami.io)."""
    from pumice.devices.nvidia_vgpu.plugin import claim_daemon

    settings = claim_daemon.Settings(
        kubelet_dir=kubelet_dir, hook_path=hook_path, lock_dir=lock_dir,
        library=library or own_library(), nvml=nvml, worlds=worlds.value,
        mps_root=mps_root, mps_program=mps_control,
        **of_any_daemon(node, fail_on_init_error, health_bind_address, cdi_root),
    )  # fmt: skip
    setup_logging(log_format, log_level)
    run_daemon(claim_daemon.run, settings, kubeconfig, "pumice-dra-driver")
