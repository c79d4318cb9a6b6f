"""``pumice status``: what runs, and who is on which card."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Annotated, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from pumice.cli import flags
from pumice.cli.daemon import DATA_DIR, default_data_dir
from pumice.cli.output import Output, document
from pumice.cli.page_link import address_with_token
from pumice.cli.tables import cards_table, wide_console
from pumice.cli.top_tabs import claims_in
from pumice.devices.registry import all_card_rows
from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import NODES, PODS
from pumice.wire.objects import Node, Pod, convert
from pumice_lab.datadir import DataDir, scheduler_problem

app = flags.App()


@app.command(epilog="Example: pumice status -o json")
def status(
    data_dir: DATA_DIR = None,
    output: Annotated[Output, flags.Option("-o", "--output", help="json: for programs.")] = Output.TEXT,
) -> None:
    """Say whether the cluster of a data dir runs, where its parts listen, and who is on which card."""
    tell(DataDir((data_dir or default_data_dir()).expanduser().absolute()), output)


Look = Callable[[DataDir, float], Coroutine[Any, Any, tuple[list[Json], ...]]]


async def look(data: DataDir, patience: float) -> tuple[list[Json], ...]:
    """Return nodes and pods of a cluster that runs, ResourceSlices and ResourceClaims. Raises ApiError, OSError, or TimeoutError
    after ``patience`` seconds."""
    from pumice.adapters.kube import KubeClient

    async with asyncio.timeout(patience), KubeClient.from_kubeconfig(data.kubeconfig) as kube:
        nodes = await kube.list(NODES)
        pods = await kube.list(PODS)
        return nodes["items"], pods["items"], *await claims_in(kube)


def tell(data: DataDir, output: Output, *, look: Look = look, patience: float = 5.0) -> None:
    """Print it. Raises SystemExit where no cluster runs or answers."""
    if not data.running():
        reported = f"no cluster runs in {data.root}; start one: pumice up"
        print(document({"running": False}, 0) if output is Output.JSON else reported)
        raise SystemExit(1)
    facts = data.facts() or {}
    if "pid" not in facts:
        reported = f"a cluster is starting in {data.root}"
        print(document({"running": True, "ready": False}, 0) if output is Output.JSON else reported)
        raise SystemExit(1)
    try:
        nodes, pods, slices, claims = asyncio.run(look(data, patience))
    except (ApiError, OSError, TimeoutError) as error:
        why = str(error) or f"nothing came within {patience:.0f} s"
        reported = f"the cluster (pid {facts['pid']}) runs, but its API server does not answer: {why}"
        print(document({"running": True, **facts, "error": why}, 0) if output is Output.JSON else reported)
        raise SystemExit(1) from error
    from pumice.devices.claimed_rows import with_claims

    known = [convert(Pod, pod) for pod in pods]
    rows = with_claims(all_card_rows([convert(Node, node) for node in nodes], known), slices, claims)
    problem = scheduler_problem(facts, patience)
    if problem:
        facts["scheduler_problem"] = problem
    if output is Output.JSON:
        there = [_pod_row(pod) for pod in known]
        cards = [asdict(row) for row in rows]
        print(document({"running": True, **facts, "nodes": len(nodes), "cards": cards, "pods": there}))
        return
    console, width = wide_console()
    console.print(f"[bold]Cluster[/bold]: {facts['summary']}")
    console.print(_parts(facts, data))
    console.print(cards_table(rows, width))


def _pod_row(pod: Pod) -> dict[str, str | None]:
    return {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "node": pod.spec.node_name or None,
            "phase": pod.status.phase}  # fmt: skip


def _parts(facts: dict[str, Any], data: DataDir) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("Part")
    table.add_column("Where")
    table.add_row("process", f"pid {facts['pid']}")
    table.add_row("API server", str(facts["server"]))
    if "pod_network" in facts:
        table.add_row("network", escape(str(facts["pod_network"])))
    if "scheduler" in facts:
        table.add_row("scheduler", f"http://{facts['scheduler']}/metrics")
    if "web" in facts:
        table.add_row("page in the browser", address_with_token(data.root, str(facts["web"])))
    if "scheduler_problem" in facts:
        table.add_row("", f"[red]{escape(facts['scheduler_problem'])}[/red]")
    for name, address in dict(facts.get("monitors") or {}).items():
        table.add_row(f"monitor of {name}", f"http://{address}/metrics")
    return table
