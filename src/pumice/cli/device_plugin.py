"""``pumice device-plugin``: the node's device plugins, a file for each brand. Flags and environment: spec nvidia-device-plugin
2.2, 2.3, 19.1."""

from __future__ import annotations

from pumice.cli import flags
from pumice.cli.ascend_plugin import ascend
from pumice.cli.gpushare_plugin import gpushare
from pumice.cli.nvidia_plugin import nvidia
from pumice.cli.upstream_flags import as_upstream_writes

app = flags.App(group=True, help="Register this node's cards with the kubelet and hand them out as the scheduler decided.",
    epilog="Example: NODE_NAME=n1 pumice device-plugin nvidia --kubeconfig ~/.kube/config",
)
app.command(epilog="Example: pumice device-plugin nvidia --node-name n1 --device-split-count 4",
            rewrite=as_upstream_writes)(nvidia)  # fmt: skip
app.command(epilog="Example: pumice device-plugin gpushare --node-name n1 --gpu-strategy share")(gpushare)
app.command(epilog="Example: NODE_NAME=n1 pumice device-plugin ascend --config_file /device-config.yaml")(ascend)
