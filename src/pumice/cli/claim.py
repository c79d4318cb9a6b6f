"""``pumice claim fits``: another name of ``pumice fits``, for who asks about claims of devices (``resource.k8s.io``)."""

from __future__ import annotations

from pumice.cli import flags
from pumice.cli.fits import fits

EXAMPLE = "Example: pumice claim fits -f slices.yaml -f claim.yaml"
app = flags.App(group=True, help="Ask about claims of devices (Dynamic Resource Allocation), from files.", epilog=EXAMPLE)
app.command(epilog=EXAMPLE)(fits)
