"""``pumice controller``: the daemon that looks after Jobs, PodGroups of bare pods, and queues."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from pathlib import Path
from typing import Annotated

import typer

from pumice.adapters.kube import KubeClient
from pumice.apps.controller import daemon as controller
from pumice.cli.daemon import Kubeconfig, find_access
from pumice.cli.log_options import LogFormat, setup_logging
from pumice.cli.upstream_flags import UpstreamCommand
from pumice.ports.clock import SystemClock

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: pumice controller --kubeconfig ~/.kube/config", cls=UpstreamCommand)
def main(
    kubeconfig: Kubeconfig = None,
    scheduler_name: Annotated[list[str] | None, typer.Option(help="Pods with this schedulerName are ours.")] = None,
    listen_address: Annotated[str, typer.Option(help="Address of /metrics, /healthz and /readyz.")] = ":8081",
    worker_threads: Annotated[int, typer.Option(min=1, help="Objects reconciled at once.")] = 8,
    bare_pod_groups: Annotated[bool, typer.Option(help="Write a PodGroup for pods that name none.")] = True,
    inherit_owner_annotations: Annotated[bool, typer.Option(help="Copy volcano.sh/ annotations of owners.")] = True,
    leader_elect: Annotated[bool, typer.Option(help="Run only while holding the Lease.")] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How to log.")] = LogFormat.TEXT,
    verbosity: Annotated[int, typer.Option("-v", "--v", help="Log level; 4 and more is debug.")] = 3,
) -> None:
    """Look after Jobs, PodGroups of bare pods, and the parents and states of queues."""
    setup_logging(log_format, verbosity)
    settings = controller.Settings(
        scheduler_names=tuple(scheduler_name or ["volcano"]),
        listen=listen_address,
        workers=worker_threads,
        bare_pod_groups=bare_pod_groups,
        inherit_owner_annotations=inherit_owner_annotations,
        leader_elect=leader_elect,
    )
    asyncio.run(_serve(settings, kubeconfig))


async def _serve(settings: controller.Settings, kubeconfig: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with KubeClient(find_access(kubeconfig), user_agent="pumice-controller") as cluster:
        await controller.run(settings, cluster=cluster, clock=SystemClock(), dice=random.Random(), stop=stop)
    logging.getLogger("pumice.controller").info("stopped")
