"""``pumice dra-driver ascend``: Ascend NPUs and their slices by claim (Dynamic Resource Allocation)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.daemon import Kubeconfig, LogAs, LogFormat, LogLevel, bind_address, node_name, run_daemon, setup_logging
from pumice.cli.plugin_options import CdiRoot, FailOnInit, HealthAddress, KubeletDir, NodeName
from pumice.wire import variables


def ascend(
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
    from pumice.adapters.bookings.foreign import booking_dirs
    from pumice.devices.ascend_mindcluster.plugin import claim_daemon

    address, port = bind_address(health_bind_address, "--health-bind-address") if health_bind_address else ("", 0)
    settings = claim_daemon.Settings(
        node_name=node_name(node), kubelet_dir=kubelet_dir, hook_path=hook_path, dcmi=dcmi,
        wait_for_driver=not fail_on_init_error, booking_dirs=booking_dirs(os.environ), health_address=address, health_port=port,
        **({"cdi_folder": Path(cdi_root)} if cdi_root else {}),
    )  # fmt: skip
    setup_logging(log_format, log_level)
    run_daemon(claim_daemon.run, settings, kubeconfig, "pumice-dra-driver")
