"""The observations of ``pumice doctor``, and the printing of its findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from pumice import __version__
from pumice.adapters.kube import KubeClient
from pumice.apps.doctor.cluster import checks
from pumice.apps.doctor.cluster.checks import versions_of
from pumice.apps.doctor.cluster.facts import ClusterFacts
from pumice.apps.doctor.cluster.look import look as look_at
from pumice.apps.doctor.node import Places, look
from pumice.cli.daemon import access_to_ask, find_access
from pumice.cli.output import Output, document
from pumice.devices.nvidia_vgpu.node.doctor_facts import NodeFacts
from pumice.devices.registry import node_checks
from pumice.model.errors import PumiceError
from pumice.node.findings import Check, Finding, State, examine
from pumice.ports.clock import SystemClock

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
    return _print(_rows(checks.CHECKS, facts), head, output)


def report(facts: NodeFacts, output: Output) -> bool:
    """Print what the checks found; whether something is bad."""
    return _print(_rows(node_checks(), facts), {"node": facts.name}, output)


def _rows(table: Sequence[Check], facts: object) -> list[tuple[str, Finding]]:
    return [(name, finding) for name, findings in examine(table, facts) for finding in findings]


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
