"""``pumice device-plugin nvidia``: NVIDIA's cards, in shares with limits."""

from __future__ import annotations

import logging
from pathlib import Path

from pumice.cli.daemon import Kubeconfig, LogAs, LogLevel, run_daemon
from pumice.cli.log_options import LogFormat, setup_logging
from pumice.cli.plugin_options import (
    KUBELET_SOCKET,
    Cdi,
    CdiRoot,
    CdiShares,
    Cleanup,
    FailOnInit,
    HealthAddress,
    NodeName,
    Nvml,
    Socket,
    common,
)
from pumice.devices.nvidia_vgpu.plugin import options as flags
from pumice.ports.mps import PROGRAM
from pumice.wire.cdi import strategies

log = logging.getLogger("pumice.cli")


def nvidia(
    node: NodeName = "",
    kubeconfig: Kubeconfig = None,
    kubelet_socket: Socket = KUBELET_SOCKET,
    hook_path: flags.HookPath = Path("/usr/local/vgpu"),
    lock_dir: flags.LockDir = Path("/tmp/vgpulock"),
    library: flags.Library = None,
    nvml: Nvml = "",
    advertise: flags.Advertised = flags.Advertise.STATUS,
    advertise_percentage: flags.Percentage = False,
    handshake: flags.Handshakes = flags.Handshake.AUTO,
    device_split_count: flags.SplitCount = 0,
    gpu_memory_factor: flags.MemoryFactor = 0,
    device_cores_scaling: flags.CoresScaling = 0.0,
    device_config_namespace: flags.ConfigNamespace = "",
    node_config: flags.NodeConfig = Path("/config/config.json"),
    device_list_strategy: flags.DeviceLists = None,
    device_id_strategy: flags.DeviceIds = flags.IdStrategy.UUID,
    pass_device_specs: flags.DeviceSpecs = False,
    dev_root: flags.DevRoot = "",
    gdrcopy_enabled: flags.Gdrcopy = False,
    gds_enabled: flags.Gds = False,
    mofed_enabled: flags.Mofed = False,
    allow_disable_control: flags.AllowDisable = False,
    disable_control_strict: flags.DisableStrict = False,
    disable_control_never: flags.DisableNever = False,
    mig_strategy: flags.MigStrategy = "none",
    cleanup_on_exit: Cleanup = False,
    config_file: flags.ConfigFile = None,
    driver_root: flags.DriverRoot = "/",
    device_discovery_strategy: flags.Discovery = "auto",
    imex_channel_ids: flags.ImexIds = "",
    imex_required: flags.ImexRequired = False,
    mps_root: flags.MpsRoot = None,
    mps_control: flags.MpsControl = PROGRAM,
    cdi: CdiShares = Cdi.AUTO,
    cdi_root: CdiRoot = "",
    cdi_annotation_prefix: flags.CdiPrefix = "",
    nvidia_cdi_hook_path: flags.CdiHook = "",
    cdi_feature_flags: flags.CdiFeatures = "",
    driver_root_ctr_path: flags.RootInside = "",
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

    flags.check(mig_strategy, device_discovery_strategy, imex_channel_ids, imex_required)
    options = ResponseOptions(
        strategies=strategies(device_list_strategy or ()),
        annotation_prefix=cdi_annotation_prefix or ANNOTATION_PREFIX,
        by_index=device_id_strategy is flags.IdStrategy.INDEX,
        device_specs=pass_device_specs,
        dev_root=(dev_root or driver_root).rstrip("/"),
        gdrcopy=gdrcopy_enabled,
        gds=gds_enabled,
        mofed=mofed_enabled,
        strict_disable=disable_control_strict,
        allow_disable=allow_disable_control and not disable_control_never,
    )
    if not options.cdi:
        flags.say_without_effect(
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
