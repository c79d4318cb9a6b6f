"""``pumice doctor``: what is wrong with a node, and how it is mended."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from pumice.adapters.kube import KubeClient
from pumice.apps.doctor.node import Places, look
from pumice.cli.daemon import Kubeconfig, find_access
from pumice.cli.output import Output
from pumice.local.plugin import KUBELET
from pumice.model.errors import PumiceError
from pumice.node.vgpu.doctor import Finding, NodeFacts, State, examine
from pumice.ports.clock import SystemClock
from pumice.wire import variables

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Say what is wrong, and how it is mended. Changes nothing.",
                  epilog="Example: pumice doctor node --node-name n1 --kubeconfig ~/.kube/config")  # fmt: skip

COLOURS = {State.OK: "green", State.WARNING: "yellow", State.BAD: "bold red", State.UNKNOWN: "dim"}


@app.callback()
def doctor() -> None:
    """A group of commands, of which there may be more."""


@app.command(epilog="Example: pumice doctor node --node-name n1 -o json")
def node(
    name: Annotated[str, typer.Option("--node-name", envvar="NODE_NAME", help="This node's name; default: the host's.")] = "",
    kubeconfig: Kubeconfig = None,
    hook_path: Annotated[Path, typer.Option(envvar="HOOK_PATH", help="The plugin's host folder.")] = Path("/usr/local/vgpu"),
    kubelet_dir: Annotated[Path, typer.Option(help="The kubelet's folder of device plugins.")] = KUBELET,
    node_config: Annotated[Path, typer.Option(help="config.json of the node ConfigMap.")] = Path("/config/config.json"),
    root: Annotated[Path, typer.Option(help="Where the host's files lie, for the runtimes' configurations.")] = Path("/"),
    metrics: Annotated[str, typer.Option(help="The monitor's page.")] = "http://127.0.0.1:9394/metrics",
    device_config_namespace: Annotated[
        str, typer.Option(envvar="DEVICE_CONFIG_NAMESPACE", help="Where to look first for the device ConfigMap.")
    ] = "",
    nvml: Annotated[str, typer.Option(envvar=variables.NVML, help="NVML library or its folder; empty: system's.")] = "",
    output: Annotated[Output, typer.Option("-o", "--output", help="json: for programs.")] = Output.TEXT,
) -> None:
    """Check everything that sharing this node's cards needs: prerequisites, and whether annotations, cards, the kubelet's record,
    regions and processes agree. To be run on the node, as root. Exit code 1 where something is bad."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    host = name or socket.gethostname()
    places = Places(host, hook_path, kubelet_dir, root, node_config, nvml, device_config_namespace, metrics)
    facts = asyncio.run(_look(places, kubeconfig))
    if report(facts, output):
        raise SystemExit(1)


async def _look(places: Places, kubeconfig: Path | None) -> NodeFacts:
    try:
        access = find_access(kubeconfig)
    except PumiceError as error:
        return await look(places, None, SystemClock(), f"no API server: {error}")
    async with KubeClient(access) as kube:
        return await look(places, kube, SystemClock())


def report(facts: NodeFacts, output: Output) -> bool:
    """Print what the checks found; whether something is bad."""
    rows = [(check.name, finding) for check, findings in examine(facts) for finding in findings]
    bad = sum(finding.state is State.BAD for _, finding in rows)
    if output is Output.JSON:
        found = [{"check": name, "state": f.state.value, "text": f.text, "repair": f.repair} for name, f in rows]
        print(json.dumps({"node": facts.name, "bad": bad, "findings": found}, indent=2))
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
