"""The common options of the commands of all device plugins."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pumice.cli import flags
from pumice.cli.daemon import bind_address, node_name
from pumice.model.errors import BadInput
from pumice.wire import variables

KUBELET_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
NodeName = Annotated[str, flags.Option("--node-name", envvar="NODE_NAME", help="This node's name.")]
Socket = Annotated[Path, flags.Option(envvar="KUBELET_SOCKET", help="The kubelet's registration socket.")]
KubeletDir = Annotated[Path, flags.Option(envvar="KUBELET_DIR", help="The kubelet's own folder.")]
Nvml = Annotated[str, flags.Option(envvar=variables.NVML, help="NVML library or its folder; empty: the system's.")]
FailOnInit = Annotated[
    bool, flags.Option("--fail-on-init-error/--wait-for-driver", envvar="FAIL_ON_INIT_ERROR",
                       help="Stop when no driver answers, or wait for one."),
]  # fmt: skip
class Cdi(StrEnum):
    AUTO = "auto"
    ON = "on"
    OFF = "off"


CdiShares = Annotated[
    Cdi, flags.Option("--cdi",
                      help="Give containers their share as a CDI device; auto: where containerd is 2.0 or CRI-O 1.28 or later."),
]  # fmt: skip
CdiRoot = Annotated[str, flags.Option(envvar="CDI_ROOT", help="Where files of CDI devices are written; empty: /var/run/cdi.")]
Cleanup = Annotated[bool, flags.Option(help="Take from the node object, at the end, what the plugin has said there.")]
HealthAddress = Annotated[str, flags.Option(help="ADDRESS:PORT of /metrics, /healthz and /readyz; empty: none.")]


def common(
    node: str, kubelet_socket: Path, nvml: str, fail_on_init_error: bool, health_address: str, cdi: Cdi, cdi_root: str
) -> dict[str, Any]:
    """Return the settings of a plugin of any device type."""
    return {
        **of_any_daemon(node, fail_on_init_error, health_address, cdi_root),
        "device_plugin_dir": _plugin_dir(kubelet_socket),
        "nvml": nvml,
        "disable_health_checks": os.environ.get("DP_DISABLE_HEALTHCHECKS", ""),
        "enable_health_checks": os.environ.get("DP_ENABLE_HEALTHCHECKS", ""),
        "named_shares": cdi.value,
    }


def of_any_daemon(node: str, fail_on_init_error: bool, health_address: str, cdi_root: str) -> dict[str, Any]:
    """Return the settings that plugins and drivers of claims have in common."""
    from pumice.adapters.bookings.foreign import booking_dirs

    address, port = bind_address(health_address, "--health-bind-address") if health_address else ("", 0)
    return {
        "node_name": node_name(node),
        "wait_for_driver": not fail_on_init_error,
        "health_address": address,
        "health_port": port,
        "booking_dirs": booking_dirs(os.environ),
        **({"cdi_folder": Path(cdi_root)} if cdi_root else {}),
    }


def _plugin_dir(socket: Path) -> Path:
    if not socket.name:
        raise BadInput("--kubelet-socket is empty: nothing would be registered, and nothing handed out")
    if socket.name != "kubelet.sock":
        raise BadInput(f"--kubelet-socket {socket}: the kubelet's socket is called kubelet.sock")
    return socket.parent
