"""``pumice dra-driver nvidia``: NVIDIA's cards by claim (Dynamic Resource Allocation), each share held to its limits."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.daemon import Kubeconfig, LogAs, LogFormat, LogLevel, bind_address, node_name, run_daemon, setup_logging
from pumice.cli.plugin_options import CdiRoot, FailOnInit, HealthAddress, KubeletDir, NodeName, Nvml
from pumice.devices.nvidia_vgpu.plugin.command import HookPath, Library, LockDir, own_library


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


def nvidia(
    node: NodeName = "",
    kubeconfig: Kubeconfig = None,
    kubelet_dir: KubeletDir = Path("/var/lib/kubelet"),
    hook_path: HookPath = Path("/usr/local/vgpu"),
    lock_dir: LockDir = Path("/tmp/vgpulock"),
    library: Library = None,
    nvml: Nvml = "",
    worlds: CardWorlds = Worlds.SHARED,
    cdi_root: CdiRoot = "",
    fail_on_init_error: FailOnInit = True,
    health_bind_address: HealthAddress = "",
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
) -> None:
    """Serve claims for this node's NVIDIA cards (driver gpu.pumice.io; with --worlds hami hami-core-gpu.project-hami.io)."""
    from pumice.adapters.bookings.foreign import booking_dirs
    from pumice.devices.nvidia_vgpu.plugin import claim_daemon

    address, port = bind_address(health_bind_address, "--health-bind-address") if health_bind_address else ("", 0)
    settings = claim_daemon.Settings(
        node_name=node_name(node), kubelet_dir=kubelet_dir, hook_path=hook_path, lock_dir=lock_dir,
        library=library or own_library(), nvml=nvml, wait_for_driver=not fail_on_init_error,
        booking_dirs=booking_dirs(os.environ), worlds=worlds.value, health_address=address, health_port=port,
        **({"cdi_folder": Path(cdi_root)} if cdi_root else {}),
    )  # fmt: skip
    setup_logging(log_format, log_level)
    run_daemon(claim_daemon.run, settings, kubeconfig, "pumice-dra-driver")
