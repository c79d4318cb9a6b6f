"""``pumice pod`` and ``vcctl pod``: the pods of Jobs and queues (spec volcano-core 21)."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from pumice.cli import volcano_tables as tables
from pumice.cli.volcano_api import AllNamespaces, Kubeconfig, Master, Namespace, Output, OutputOption, ask, show
from pumice.ports.cluster import Cluster, Json
from pumice.wire import volcano
from pumice.wire.names import JOB_NAME, JOB_QUEUE

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List the pods of Jobs and queues.",
                  epilog="Example: pumice pod list -j train")  # fmt: skip


@app.callback(epilog="Example: pumice pod list -j train")
def main() -> None:
    """List the pods of Jobs and queues."""


@app.command("list", epilog="Example: vcctl pod list -j train")
def list_(
    namespace: Namespace = "default",
    queue: Annotated[str, typer.Option("-q", "--queue", help="Only those of this queue's Jobs.", show_default=False)] = "",
    job: Annotated[str, typer.Option("-j", "--job", help="Only those of this Job.", show_default=False)] = "",
    all_namespaces: AllNamespaces = False,
    output: OutputOption = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """List pods."""
    chosen = ",".join(f"{label}={value}" for label, value in ((JOB_NAME, job), (JOB_QUEUE, queue)) if value)

    async def question(kube: Cluster) -> Json:
        return await kube.list(volcano.PODS, "" if all_namespaces else namespace, label_selector=chosen)

    found = ask(kubeconfig, master, question)
    if not show(found, output):
        print(tables.pods(found["items"], namespaces=all_namespaces or output is Output.WIDE, now=time.time()))
