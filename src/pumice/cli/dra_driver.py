"""``pumice dra-driver``: the node's drivers of claims, a command for each device type that has one."""

from __future__ import annotations

from importlib import import_module

from pumice.cli import flags
from pumice.devices.registry import DEVICE_TYPES

app = flags.App(group=True, help="Serve ResourceClaims for this node's cards, and hold each share to its limits.",
    epilog="Example: NODE_NAME=n1 pumice dra-driver nvidia --kubeconfig ~/.kube/config",
)
for _row in (found.claim_command for found in DEVICE_TYPES if found.claim_command is not None):
    app.command(epilog=f"Example: {_row.example}")(getattr(import_module(_row.module), _row.word))
