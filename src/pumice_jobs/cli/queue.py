"""``pumice queue`` and ``vcctl queue``: Volcano's queues."""

from __future__ import annotations

from typing import Annotated

from pumice.cli import flags
from pumice.cli.completion import fixed, names_of
from pumice.cli.question import Kubeconfig, Master, ask
from pumice.model.errors import BadInput
from pumice.ports.cluster import Cluster, Json
from pumice.wire import volcano
from pumice_jobs.cli import volcano_tables as tables
from pumice_jobs.cli.volcano_api import Output, OutputOption, give_command, show
from pumice_jobs.controllers.queue import CLOSE_QUEUE, OPEN_QUEUE

app = flags.App(group=True, help="Create, list, open, close and delete queues.",
                  epilog="Example: pumice queue list")  # fmt: skip

Name = Annotated[str, flags.Option("-n", "--name", help="Name of the queue.", show_default=False), names_of(volcano.QUEUES)]


@app.command("create", epilog="Example: vcctl queue create -n team -w 4")
def create(
    name: Annotated[str, flags.Option("-n", "--name", help="Name of the queue.", show_default=False)] = "",
    weight: Annotated[int, flags.Option("-w", "--weight", help="Its share beside other queues.")] = 1,
    state: Annotated[
        str, flags.Option("-S", "--state", help="Open or Closed."), fixed(volcano.OPEN, volcano.CLOSED)
    ] = volcano.OPEN,
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """Create a queue."""
    _named(name)

    async def question(kube: Cluster) -> None:
        body = {"apiVersion": volcano.SCHEDULING_API, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": weight}}
        made = await kube.create(volcano.QUEUES, body)
        if state != volcano.OPEN:
            await kube.patch(volcano.QUEUES, made["metadata"]["name"], {"status": {"state": state}}, subresource="status")

    ask(kubeconfig, master, question)


@app.command("delete", epilog="Example: vcctl queue delete -n team")
def delete(name: Name = "", kubeconfig: Kubeconfig = None, master: Master = "") -> None:
    """Delete a queue."""
    _named(name)
    ask(kubeconfig, master, lambda kube: kube.delete(volcano.QUEUES, name))


@app.command("operate", epilog="Example: vcctl queue operate -n team -a close")
def operate(
    name: Name = "",
    weight: Annotated[int, flags.Option("-w", "--weight", help="The new weight, for update.", show_default=False)] = 0,
    action: Annotated[
        str, flags.Option("-a", "--action", help="open, close or update.", show_default=False), fixed("open", "close", "update")
    ] = "",
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """Open or close a queue, or change its weight."""
    _named(name)
    if not action:
        raise BadInput("action can not be null: write --action open, close or update")
    commands = {"open": OPEN_QUEUE, "close": CLOSE_QUEUE}
    if action not in (*commands, "update"):
        raise BadInput(f"action {action} invalid, valid actions are open, close and update")
    if action == "update" and weight <= 0:
        raise BadInput(f"when {action} queue {name}, weight must be specified, the value must be greater than 0")

    async def question(kube: Cluster) -> None:
        if action == "update":
            await kube.patch(volcano.QUEUES, name, {"spec": {"weight": weight}})
            return
        queue = await kube.get(volcano.QUEUES, name)
        await give_command(kube, queue, volcano.SCHEDULING_API, "Queue", commands[action], "default")

    ask(kubeconfig, master, question)


@app.command("get", epilog="Example: vcctl queue get -n team")
def get(name: Name = "", output: OutputOption = Output.TEXT, kubeconfig: Kubeconfig = None, master: Master = "") -> None:
    """Show one queue."""
    if not name:
        raise BadInput("name is mandatory to get the particular queue details: write --name NAME")

    async def question(kube: Cluster) -> tuple[Json, Json]:
        return await kube.get(volcano.QUEUES, name), await kube.list(volcano.POD_GROUPS)

    queue, groups = ask(kubeconfig, master, question)
    if not show(queue, output):
        print(tables.queues([queue], groups["items"]))


@app.command("list", epilog="Example: vcctl queue list")
def list_(output: OutputOption = Output.TEXT, kubeconfig: Kubeconfig = None, master: Master = "") -> None:
    """List queues, with their PodGroups by phase."""

    async def question(kube: Cluster) -> tuple[Json, Json]:
        return await kube.list(volcano.QUEUES), await kube.list(volcano.POD_GROUPS)

    found, groups = ask(kubeconfig, master, question)
    if not show(found, output):
        print(tables.queues(found["items"], groups["items"]) if found["items"] else tables.NOTHING)


def _named(name: str) -> None:
    if not name:
        raise BadInput("queue name must be specified: write --name NAME")


