"""``pumice pod`` and ``vcctl pod``: the pods of Jobs and queues."""

from __future__ import annotations

import time
from typing import Annotated

from pumice.cli import flags
from pumice.cli.completion import names_of
from pumice.cli.question import Kubeconfig, Master, ask
from pumice.model.errors import BadInput
from pumice.ports.cluster import Cluster, Json
from pumice.wire import kinds, volcano
from pumice.wire.names import JOB_NAME, JOB_QUEUE, QUEUE_NAME
from pumice_jobs.cli import volcano_tables as tables
from pumice_jobs.cli.volcano_api import AllNamespaces, Namespace, Output, OutputOption, show

app = flags.App(group=True, help="List the pods of Jobs and queues.",
                  epilog="Example: pumice pod list -j train")  # fmt: skip


@app.command("list", epilog="Example: vcctl pod list -j train")
def list_(
    namespace: Namespace = "default",
    queue: Annotated[
        str, flags.Option("-q", "--queue", help="Only those of this queue's Jobs.", show_default=False), names_of(volcano.QUEUES)
    ] = "",
    job: Annotated[
        str, flags.Option("-j", "--job", help="Only those of this Job.", show_default=False), names_of(volcano.JOBS)
    ] = "",
    all_namespaces: AllNamespaces = False,
    output: OutputOption = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """List pods."""
    chosen = f"{JOB_NAME}={job}" if job else "" if queue else JOB_NAME  # bare pods, too, stand in a queue

    async def question(kube: Cluster) -> Json:
        return await kube.list(kinds.PODS, "" if all_namespaces else namespace, label_selector=chosen)

    found = ask(kubeconfig, master, question)
    items = [pod for pod in found["items"] if queue in ("", *_queues(pod))]
    if job and found["items"] and not items:
        raise BadInput(f"the input vcjob {job} does not match the queue {queue}")
    if not show({**found, "items": items}, output):
        print(tables.pods(items, namespaces=all_namespaces or output is Output.WIDE, now=time.time()))


def _queues(pod: Json) -> tuple[str, ...]:
    """The queue that a pod of a Job says, and the one that a bare pod does."""
    meta = pod["metadata"]
    return (meta.get("labels") or {}).get(JOB_QUEUE, ""), (meta.get("annotations") or {}).get(QUEUE_NAME, "")
