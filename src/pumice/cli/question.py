"""One question to an API server, for commands that then end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

from pumice.cli import flags
from pumice.model.errors import BadInput
from pumice.ports.cluster import ApiError, Cluster

Kubeconfig = Annotated[Path | None, flags.Option("-k", "--kubeconfig", envvar="KUBECONFIG", help="Kubeconfig file.")]
Master = Annotated[str, flags.Option("-s", "--master", help="Address of the API server, instead of the kubeconfig's.")]

T = TypeVar("T")


def ask(kubeconfig: Path | None, master: str, question: Callable[[Cluster], Awaitable[T]]) -> T:
    """Put a question to the API server. Its refusal is one line."""
    # Only here: help and completion need no client.
    from pumice.adapters.kube import KubeClient
    from pumice.cli.daemon import access_to_ask

    access = access_to_ask(kubeconfig)
    if master:
        access = replace(access, server=master if "://" in master else f"https://{master}")

    async def run() -> T:
        async with KubeClient(access, user_agent="vcctl") as kube:
            try:
                return await question(kube)
            except ApiError as error:
                raise BadInput(error.message) from error

    return asyncio.run(run())
