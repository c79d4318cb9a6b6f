"""vsub, vjobs, vqueues, vcancel, vsuspend and vresume: vcctl's commands for people who type them all day.

As upstream's stand-alone programs have it (pkg/cli/vsub and its neighbours), here ``-n`` is the Job's name and ``-N`` the
namespace, the other way round than in vcctl.
"""

from __future__ import annotations

import shlex
from typing import Annotated

from pumice.cli import flags
from pumice.cli.completion import NAMESPACES, names_of
from pumice.cli.question import Kubeconfig, Master
from pumice.model.errors import BadInput
from pumice.wire import names
from pumice.wire.volcano import JOBS, QUEUES
from pumice_jobs.cli import job, queue
from pumice_jobs.cli.volcano_api import AllNamespaces, NameSelector, OnlyScheduler, Output, OutputOption

Name = Annotated[str, flags.Option("-n", "--name", help="Name of the Job.", show_default=False), names_of(JOBS)]
Namespace = Annotated[str, flags.Option("-N", "--namespace", help="Namespace."), NAMESPACES]


APPS = {name: flags.App() for name in ("vsub", "vjobs", "vqueues", "vcancel", "vsuspend", "vresume")}
vsub, vjobs, vqueues, vcancel, vsuspend, vresume = APPS.values()


@vsub.command(epilog="Example: vsub -n train -i pytorch -r 4 -m 4 -c 'python train.py'")
def submit(
    name: Name = "",
    namespace: Annotated[
        str, flags.Option("-N", "--namespace", envvar=names.VSUB_NAMESPACE, help="Namespace.")
    ] = "default",
    image: Annotated[
        str, flags.Option("-i", "--image", envvar=names.VSUB_IMAGE, help="Image of its container.")
    ] = "busybox",
    command: Annotated[str, flags.Option("-c", "--command", help="What the container runs.", show_default=False)] = "",
    minimum: Annotated[int, flags.Option("-m", "--min", help="Pods that start together or not at all.")] = 1,
    replicas: Annotated[int, flags.Option("-r", "--replicas", help="Pods.")] = 1,
    requests: Annotated[str, flags.Option("-R", "--requests", help="What each requests.")] = job.ASKED,
    limits: Annotated[str, flags.Option("-L", "--limits", help="What each may use.")] = job.ASKED,
    scheduler: Annotated[
        str, flags.Option("-S", "--scheduler", envvar=names.VSUB_SCHEDULER, help="Who schedules it.")
    ] = names.SCHEDULER_NAME,
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """Run a Job of equal pods."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"--command {command!r}: {str(error).lower()}") from error
    body = job.job_of(name, namespace, image, minimum, replicas, requests, limits, scheduler, words)
    job.submit(body, namespace, kubeconfig, master)


@vjobs.command(epilog="Examples: vjobs --all-namespaces;  vjobs -n train")
def jobs(
    name: Name = "",
    namespace: Namespace = "default",
    scheduler: OnlyScheduler = "",
    all_namespaces: AllNamespaces = False,
    selector: NameSelector = "",
    output: OutputOption = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """List Jobs, or describe one."""
    if name:
        job.view(name, namespace, output, kubeconfig, master)
    else:
        job.list_(namespace, "", scheduler, all_namespaces, selector, output, kubeconfig, master)


@vqueues.command(epilog="Examples: vqueues;  vqueues -n research -o json")
def queues(
    name: Annotated[str, flags.Option("-n", "--name", help="Name of the queue.", show_default=False), names_of(QUEUES)] = "",
    output: OutputOption = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """List queues, or show one."""
    if name:
        queue.get(name, output, kubeconfig, master)
    else:
        queue.list_(output, kubeconfig, master)


@vcancel.command(epilog="Example: vcancel -n train -N research")
def cancel(name: Name = "", namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "") -> None:
    """Delete a Job and its pods."""
    job.remove(name, namespace, kubeconfig, master, "cancel")


@vsuspend.command(epilog="Example: vsuspend -n train")
def suspend(name: Name = "", namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "") -> None:
    """Abort a Job; it can be resumed."""
    job.suspend(name, namespace, kubeconfig, master)


@vresume.command(epilog="Example: vresume -n train")
def resume(name: Name = "", namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "") -> None:
    """Start an aborted Job again."""
    job.resume(name, namespace, kubeconfig, master)
