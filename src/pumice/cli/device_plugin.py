"""``pumice device-plugin``: the node's device plugins, a file for each brand. Flags and environment: spec nvidia-device-plugin
2.2, 2.3, 19.1."""

from __future__ import annotations

from pumice.cli import flags
from pumice.cli.upstream_flags import as_upstream_writes
from pumice.devices.ascend_hami.plugin.command import ascend
from pumice.devices.nvidia_gpushare.plugin.command import gpushare
from pumice.devices.nvidia_vgpu.plugin.command import nvidia

app = flags.App(group=True, help="Register this node's cards with the kubelet and hand them out as the scheduler decided.",
    epilog="Example: NODE_NAME=n1 pumice device-plugin nvidia --kubeconfig ~/.kube/config",
)
app.command(epilog="Example: pumice device-plugin nvidia --node-name n1 --device-split-count 4",
            rewrite=as_upstream_writes)(nvidia)  # fmt: skip
app.command(epilog="Example: pumice device-plugin gpushare --node-name n1 --gpu-strategy share")(gpushare)
app.command(epilog="Example: NODE_NAME=n1 pumice device-plugin ascend --config_file /device-config.yaml")(ascend)
