"""``pumice job`` and ``vcctl job``: Jobs of Volcano."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.completion import names_of
from pumice.cli.question import Kubeconfig, Master, ask
from pumice.model.errors import BadInput
from pumice.ports.cluster import Cluster, Json
from pumice.wire import kinds, volcano
from pumice.wire.batch import JOB_API, JOB_KIND
from pumice.wire.names import SCHEDULER_NAME
from pumice_jobs.cli import volcano_tables as tables
from pumice_jobs.cli.volcano_api import (
    AllNamespaces,
    NameSelector,
    Namespace,
    OnlyScheduler,
    Output,
    OutputOption,
    give_command,
    quantities,
    show,
    written_objects,
)
from pumice_jobs.controllers.job.phases import ABORT, RESUME

app = flags.App(group=True, help="Run, list, view, suspend, resume and delete Jobs.",
                  epilog="Example: pumice job list --all-namespaces")  # fmt: skip

Name = Annotated[str, flags.Option("-N", "--name", help="Name of the Job.", show_default=False), names_of(volcano.JOBS)]
ASKED = "cpu=1000m,memory=100Mi"


@app.command("run", epilog="Example: vcctl job run -N train -r 4 -m 4 -i pytorch")
def run(
    name: Name = "",
    namespace: Namespace = "default",
    image: Annotated[str, flags.Option("-i", "--image", help="Image of its container.")] = "busybox",
    minimum: Annotated[int, flags.Option("-m", "--min", help="Pods that start together or not at all.")] = 1,
    replicas: Annotated[int, flags.Option("-r", "--replicas", help="Pods.")] = 1,
    requests: Annotated[str, flags.Option("-R", "--requests", help="What each requests.")] = ASKED,
    limits: Annotated[str, flags.Option("-L", "--limits", help="What each may use.")] = ASKED,
    scheduler: Annotated[str, flags.Option("-S", "--scheduler", help="Who schedules it.")] = SCHEDULER_NAME,
    filename: Annotated[Path | None, flags.Option("-f", "--filename", help="A Job's YAML instead.")] = None,
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """Run a Job of equal pods, or one from a file."""
    if filename is not None:
        body, *others = written_objects(filename, JOB_KIND)
        if others:
            raise BadInput(f"{filename}: it holds {len(others) + 1} Jobs, and one is run at a time")
        namespace = body["metadata"].get("namespace") or namespace
    else:
        body = job_of(name, namespace, image, minimum, replicas, requests, limits, scheduler)
    submit(body, namespace, kubeconfig, master)


def job_of(name: str, namespace: str, image: str, minimum: int, replicas: int, requests: str, limits: str, scheduler: str,
           command: Sequence[str] = ()) -> Json:
    """A Job of equal pods. Raises BadInput."""
    if not name:
        raise BadInput("job name cannot be left blank: write --name NAME")
    container = {"name": name, "image": image, "imagePullPolicy": "IfNotPresent",
                 "resources": {"requests": quantities(requests), "limits": quantities(limits)},
                 **({"command": list(command)} if command else {})}  # fmt: skip
    template = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"schedulerName": scheduler, "minAvailable": minimum, "tasks": [{"replicas": replicas, "template": template}]}
    return {"apiVersion": JOB_API, "kind": JOB_KIND, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def submit(body: Json, namespace: str, kubeconfig: Path | None, master: str) -> None:
    made = ask(kubeconfig, master, lambda kube: kube.create(volcano.JOBS, body, namespace))
    print(f"run job {made['metadata']['name']} successfully")


@app.command("list", epilog="Example: vcctl job list --all-namespaces")
def list_(
    namespace: Namespace = "default",
    queue: Annotated[
        str, flags.Option("-q", "--queue", help="Only those of this queue.", show_default=False), names_of(volcano.QUEUES)
    ] = "",
    scheduler: OnlyScheduler = "",
    all_namespaces: AllNamespaces = False,
    selector: NameSelector = "",
    output: OutputOption = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """List Jobs."""
    found = ask(kubeconfig, master, lambda kube: kube.list(volcano.JOBS, "" if all_namespaces else namespace))
    items = [job for job in found["items"] if _is_meant(job, queue, scheduler, selector)]
    if not show({**found, "items": items}, output):
        print(tables.jobs(items, namespaces=all_namespaces or output is Output.WIDE))


@app.command("view", epilog="Example: vcctl job view -N train")
def view(
    name: Name = "", namespace: Namespace = "default", output: OutputOption = Output.TEXT, kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:  # fmt: skip
    """Describe a Job and what happened to it."""
    if not name:
        raise BadInput("job name (specified by --name or -N) is mandatory to view a particular job")

    async def question(kube: Cluster) -> tuple[Json, list[Json]]:
        job = await kube.get(volcano.JOBS, name, namespace)
        uid = job["metadata"]["uid"]
        chosen = (f"involvedObject.uid={uid}", f"involvedObject.name={name}-{uid}")  # its PodGroup's say why it waits
        found = [await kube.list(kinds.EVENTS, namespace, field_selector=each) for each in chosen]
        return job, [event for events in found for event in events["items"]]

    job, events = ask(kubeconfig, master, question)
    if not show(job, output):
        print(tables.description(job, events, time.time()))


@app.command("suspend", epilog="Example: vcctl job suspend -N train")
def suspend(name: Name = "", namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "") -> None:
    """Abort a Job; it can be resumed."""
    _command(name, namespace, kubeconfig, master, "suspend", ABORT)


@app.command("resume", epilog="Example: vcctl job resume -N train")
def resume(name: Name = "", namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "") -> None:
    """Start an aborted Job again."""
    _command(name, namespace, kubeconfig, master, "resume", RESUME)


@app.command("delete", epilog="Example: vcctl job delete -N train")
def delete(name: Name = "", namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "") -> None:
    """Delete a Job and its pods."""
    remove(name, namespace, kubeconfig, master, "delete")


def remove(name: str, namespace: str, kubeconfig: Path | None, master: str, verb: str) -> None:
    """``verb``: what it is called."""
    _named(name, verb)
    ask(kubeconfig, master, lambda kube: kube.delete(volcano.JOBS, name, namespace))
    print(f"{verb} job {name} successfully")


def _command(name: str, namespace: str, kubeconfig: Path | None, master: str, verb: str, action: str) -> None:
    _named(name, verb)

    async def question(kube: Cluster) -> None:
        job = await kube.get(volcano.JOBS, name, namespace)
        await give_command(kube, job, JOB_API, JOB_KIND, action, namespace)

    ask(kubeconfig, master, question)


def _named(name: str, verb: str) -> None:
    if not name:
        raise BadInput(f"job name is mandatory to {verb} a particular job: write --name NAME")


def _is_meant(job: Json, queue: str, scheduler: str, part: str) -> bool:
    spec = job.get("spec") or {}
    return (queue in ("", spec.get("queue")) and scheduler in ("", spec.get("schedulerName"))
            and part in job["metadata"]["name"])  # fmt: skip
