"""What every daemon's command has in common: credentials, signals, logging, one line for an error."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from pumice.adapters.kube import Access, KubeClient, in_cluster, load_kubeconfig
from pumice.apps.service.http import any_address
from pumice.model.errors import BadInput
from pumice.ports.clock import SystemClock
from pumice.wire import variables

Kubeconfig = Annotated[
    Path | None,
    typer.Option(envvar="KUBECONFIG", help="Kubeconfig file; without one the pod's service account is used."),
]
Verbosity = Annotated[str, typer.Option("--log-level", envvar=variables.LOG, help="debug, info, warning or error.")]


def run_daemon(run: Any, settings: Any, kubeconfig: Path | None, log_level: str = "info") -> None:
    """Run one daemon until SIGINT, SIGTERM or SIGQUIT. Raises PumiceError on what a person has to mend."""
    level = getattr(logging, log_level.upper(), None)
    if not isinstance(level, int):
        raise BadInput(f"--log-level {log_level!r}: use debug, info, warning or error")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    access = find_access(kubeconfig)

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with KubeClient(access) as kube:
            await run(settings, cluster=kube, clock=SystemClock(), dice=random.Random(), stop=stop)

    asyncio.run(serve())


def find_access(kubeconfig: Path | None) -> Access:
    """A kubeconfig when one is given or in its usual place, else the service account of the pod we run in."""
    if kubeconfig is not None or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return load_kubeconfig(kubeconfig or "")
    return in_cluster()


def node_name(given: str) -> str:
    """The node's name. Raises BadInput when nobody said it."""
    if not given:
        raise BadInput("no --node-name and no NODE_NAME in the environment (the manifests take it from the downward API)")
    return given


def bind_address(text: str, flag: str) -> tuple[str, int]:
    """Address and port of ``ADDRESS:PORT``. Raises BadInput that names the flag."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"{flag} {text!r}: write ADDRESS:PORT, for example 0.0.0.0:9394 or :9394")
    return host.strip("[]") or any_address(), int(port)
