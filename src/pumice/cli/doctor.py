"""``pumice doctor``: what is wrong with a node or a cluster, and how it is mended."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape

from pumice import __version__
from pumice.adapters.kube import KubeClient
from pumice.apps.doctor.cluster import checks
from pumice.apps.doctor.cluster.facts import ClusterFacts
from pumice.apps.doctor.cluster.kinds import versions_of
from pumice.apps.doctor.cluster.look import look as look_at
from pumice.apps.doctor.node import Places, look
from pumice.cli import flags
from pumice.cli.daemon import Kubeconfig, access_to_ask, find_access
from pumice.cli.output import Output, document
from pumice.devices.nvidia_vgpu.node.doctor import NodeFacts, examine
from pumice.local.plugin import KUBELET
from pumice.model.errors import PumiceError
from pumice.node.findings import Finding, State
from pumice.ports.clock import SystemClock
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
    from pumice.cli.doctor import look_at_node, report

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
    from pumice.cli.doctor import look_at_cluster, report_cluster

    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    facts = asyncio.run(look_at_cluster(kubeconfig))
    if report_cluster(facts, output):
        raise SystemExit(1)


# -- The observations of `pumice doctor`, and the printing of its findings -------------------------------------------

COLOURS = {State.OK: "green", State.WARNING: "yellow", State.BAD: "bold red", State.UNKNOWN: "dim"}


async def look_at_node(places: Places, kubeconfig: Path | None) -> NodeFacts:
    try:
        access = find_access(kubeconfig)
    except PumiceError as error:
        return await look(places, None, SystemClock(), f"no API server: {error}")
    async with KubeClient(access) as kube:
        return await look(places, kube, SystemClock())


async def look_at_cluster(kubeconfig: Path | None) -> ClusterFacts:
    async with KubeClient(access_to_ask(kubeconfig)) as kube:
        return await look_at(kube)


def report_cluster(facts: ClusterFacts, output: Output) -> bool:
    """Print what the checks found; whether something is bad. JSON names the programs and versions as well."""
    head = {
        "pumice": __version__, "kubernetes": facts.kubernetes, "nodes": len(facts.nodes),
        "kinds": {name: [v.get("name", "") for v in versions_of(found)] for name, found in sorted(facts.definitions.items())
                  if name in facts.wanted},
        "programs": [{"program": str(one.program), "kind": one.kind, "name": one.key, "image": one.image, "wanted": one.wanted,
                      "ready": one.ready, "takes": list(one.program.names), "serves": one.program.resource}
                     for one in facts.workloads],
    }  # fmt: skip
    return _print([(check.name, finding) for check, found in checks.examine(facts) for finding in found], head, output)


def report(facts: NodeFacts, output: Output) -> bool:
    """Print what the checks found; whether something is bad."""
    rows = [(check.name, finding) for check, findings in examine(facts) for finding in findings]
    return _print(rows, {"node": facts.name}, output)


def _print(rows: Sequence[tuple[str, Finding]], head: Mapping[str, Any], output: Output) -> bool:
    bad = sum(finding.state is State.BAD for _, finding in rows)
    if output is Output.JSON:
        found = [{"check": name, "state": f.state.value, "text": f.text, "repair": f.repair} for name, f in rows]
        print(document({**head, "bad": bad, "findings": found}))
        return bad > 0
    alike: dict[Finding, list[str]] = {}
    for name, finding in rows:
        alike.setdefault(finding, []).append(name)
    console = Console(highlight=False, soft_wrap=True)
    for finding, names in alike.items():
        state, who = f"[{COLOURS[finding.state]}]{finding.state:8}[/]", ", ".join(dict.fromkeys(names))
        console.print(f"{state} [bold]{who}[/bold]: {escape(finding.text)}")
        if finding.repair:
            console.print(f"         [dim]->[/dim] {escape(finding.repair)}")
    return bad > 0
