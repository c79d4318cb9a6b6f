"""``pumice doctor``: what is wrong with a node or a cluster, and how it is mended."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.daemon import Kubeconfig
from pumice.cli.output import Output
from pumice.local.plugin import KUBELET
from pumice.wire import variables

app = flags.App(group=True, help="Say what is wrong, and how it is mended. Changes nothing.",
                  epilog="Example: pumice doctor cluster --kubeconfig ~/.kube/config")  # fmt: skip


@app.command(epilog="Example: pumice doctor node --node-name n1 -o json")
def node(
    name: Annotated[str, flags.Option("--node-name", envvar="NODE_NAME", help="This node's name; default: the host's.")] = "",
    kubeconfig: Kubeconfig = None,
    hook_path: Annotated[Path, flags.Option(envvar="HOOK_PATH", help="The plugin's host folder.")] = Path("/usr/local/vgpu"),
    kubelet_dir: Annotated[Path, flags.Option(help="The kubelet's folder of device plugins.")] = KUBELET,
    node_config: Annotated[Path, flags.Option(help="config.json of the node ConfigMap.")] = Path("/config/config.json"),
    root: Annotated[Path, flags.Option(help="Where the host's files lie, for the runtimes' configurations.")] = Path("/"),
    metrics: Annotated[str, flags.Option(help="The monitor's page.")] = "http://127.0.0.1:9394/metrics",
    device_config_namespace: Annotated[
        str, flags.Option(envvar="DEVICE_CONFIG_NAMESPACE", help="Where to look first for the device ConfigMap.")
    ] = "",
    nvml: Annotated[str, flags.Option(envvar=variables.NVML, help="NVML library or its folder; empty: system's.")] = "",
    output: Annotated[Output, flags.Option("-o", "--output", help="json: for programs.")] = Output.TEXT,
) -> None:
    """Check everything that sharing this node's cards needs: prerequisites, and whether annotations, cards, the kubelet's record,
    regions and processes agree. To be run on the node, as root. Exit code 1 where something is bad."""
    from pumice.apps.doctor.node import Places
    from pumice.cli.diagnosis import look_at_node, report

    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    host = name or socket.gethostname()
    places = Places(host, hook_path, kubelet_dir, root, node_config, nvml, device_config_namespace, metrics)
    facts = asyncio.run(look_at_node(places, kubeconfig))
    if report(facts, output):
        raise SystemExit(1)


@app.command(epilog="Example: pumice doctor cluster -o json > report.json")
def cluster(
    kubeconfig: Kubeconfig = None,
    output: Annotated[Output, flags.Option("-o", "--output", help="json: for programs, and for reports of bugs.")] = Output.TEXT,
) -> None:
    """Check what the API server tells: versions, kinds, daemons that stand in each other's way, rights, configuration, webhooks
    and the nodes' plugins. Needs to read these, and to create subjectaccessreviews. Exit code 1 where something is bad."""
    from pumice.cli.diagnosis import look_at_cluster, report_cluster

    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    facts = asyncio.run(look_at_cluster(kubeconfig))
    if report_cluster(facts, output):
        raise SystemExit(1)
