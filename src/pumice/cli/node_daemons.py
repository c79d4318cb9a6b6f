"""``pumice device-plugin`` and ``pumice dra-driver``: a command of each for every device type."""

from __future__ import annotations

from importlib import import_module

from pumice.cli import flags
from pumice.cli.upstream_flags import as_upstream_writes
from pumice.devices.registry import DEVICE_TYPES

device_plugin = flags.App(group=True,
    help="Register this node's cards with the kubelet and hand them out as the scheduler decided.",
    epilog="Example: NODE_NAME=n1 pumice device-plugin nvidia --kubeconfig ~/.kube/config",
)
dra_driver = flags.App(group=True, help="Serve ResourceClaims for this node's cards, and hold each share to its limits.",
    epilog="Example: NODE_NAME=n1 pumice dra-driver nvidia --kubeconfig ~/.kube/config",
)
for _type in DEVICE_TYPES:
    for _app, _row in ((device_plugin, _type.command), (dra_driver, _type.claim_command)):
        if _row is not None:
            _rewrite = as_upstream_writes if _row.upstream else None
            _function = getattr(import_module(_row.module), _row.function or _row.word)
            _app.command(_row.word, epilog=f"Example: {_row.example}", rewrite=_rewrite)(_function)
