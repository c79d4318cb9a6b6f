"""``pumice device-plugin``: the node's device plugins, a command for each way in which they are started."""

from __future__ import annotations

from importlib import import_module

from pumice.cli import flags
from pumice.cli.upstream_flags import as_upstream_writes
from pumice.devices.registry import DEVICE_TYPES

app = flags.App(group=True, help="Register this node's cards with the kubelet and hand them out as the scheduler decided.",
    epilog="Example: NODE_NAME=n1 pumice device-plugin nvidia --kubeconfig ~/.kube/config",
)
for _row in (found.command for found in DEVICE_TYPES if found.command is not None):
    _rewrite = as_upstream_writes if _row.upstream else None
    app.command(epilog=f"Example: {_row.example}", rewrite=_rewrite)(getattr(import_module(_row.module), _row.word))
