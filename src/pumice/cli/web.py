"""``pumice web``: a page of a cluster, or of one machine, for people."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.cli import flags
from pumice.cli.local_view import EMULATED
from pumice.model.errors import BadInput

if TYPE_CHECKING:
    from pumice.ports.cluster import Cluster
    from pumice.web.following import Configuration

app = flags.App()


@app.command(epilog="Examples: pumice web;  pumice web --kubeconfig ~/lab.config;  pumice web --machine")
def web(
    kubeconfig: Annotated[Path | None, flags.Option(envvar="KUBECONFIG", help="Kubeconfig file, whose rights count.")] = None,
    listen_address: Annotated[
        str, flags.Option(help="ADDRESS:PORT of this machine alone (with --in-cluster any); port 0 takes a free one.")
    ] = "127.0.0.1:0",
    scheduler_name: Annotated[
        list[str] | None, flags.Option(help="Pods with this schedulerName are ours; may be given again.")
    ] = None,
    machine: Annotated[
        bool, flags.Option("--machine", help="Of this machine's cards and programs; also where there is no cluster to ask.")
    ] = False,
    emulated: EMULATED = None,
    in_cluster: Annotated[
        bool, flags.Option("--in-cluster", help="For many: each brings a token of the cluster and sees what he may list.")
    ] = False,
) -> None:
    """Serve a page of the cluster until Ctrl-C and print its address, with the token that opens it: cards and who is on them,
    why pods wait, queues, jobs, what changed. It reads with the rights of the kubeconfig, needs no Prometheus and writes
    nothing. Without a cluster, or with --machine, it is this machine's cards and the programs of `pumice run`. Only this
    machine reaches it; from another one go through `ssh -L`. With --in-cluster it is what a Deployment runs: whoever looks brings
    a token of the cluster, by Authorization or typed once, and sees what he may list."""
    from pumice.apps.service.http import is_loopback
    from pumice.cli.daemon import access_to_ask, bind_address

    host, port = bind_address(listen_address, "--listen-address")
    if in_cluster and (machine or emulated is not None):
        raise BadInput("--in-cluster is about a cluster, --machine and --emulated about this machine: leave out either")
    if not is_loopback(host) and not in_cluster:
        raise BadInput(f"--listen-address {listen_address}: others could read the token on its way; listen on 127.0.0.1 and "
                       "go there by `ssh -L`")  # fmt: skip
    if machine or emulated is not None:
        if (kubeconfig is not None and "KUBECONFIG" not in os.environ) or scheduler_name:
            raise BadInput("--machine and --emulated are about this machine, --kubeconfig and --scheduler-name about a cluster: "
                           "leave out either")  # fmt: skip
        _of_this_machine(emulated, host, port)
        return
    if kubeconfig is None and not in_cluster and not _is_there_a_cluster():
        _of_this_machine(None, host, port)
        return
    access = access_to_ask(kubeconfig)
    names = frozenset(scheduler_name or ())
    # Only here: help and completion need neither an engine nor templates.
    import asyncio

    from pumice.web.running import serve_cluster, serve_viewers

    serve = serve_viewers if in_cluster else serve_cluster
    asyncio.run(serve(access, configured_by(names), host, port, lambda address: print(address, flush=True)))


def configured_by(names: frozenset[str]) -> Callable[[Cluster], Awaitable[Configuration]]:
    """Return what reads the configuration that the scheduler goes by; ``names`` are its schedulerNames, empty for those that it
    is told itself."""

    async def configured(kube: Cluster) -> Configuration:
        from pumice.cli.snapshot_source import Source, configuration
        from pumice.web.following import Configuration

        case = await configuration(kube, Source().configmap)
        return Configuration(case.scheduler_conf, case.device_config, names or frozenset(case.scheduler_names),
                             tuple(case.remarks))  # fmt: skip

    return configured


def _is_there_a_cluster() -> bool:
    """Return whether anything names one: a kubeconfig in its usual place, a pod's account, or a cluster of `pumice up` that
    runs."""
    from pumice.cli.daemon import default_data_dir, is_held

    named = os.environ.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" in os.environ
    return bool(named) or (Path.home() / ".kube" / "config").exists() or is_held(default_data_dir())


def _of_this_machine(emulated: str | None, host: str, port: int) -> None:
    """Serve the page of the cards and programs that `pumice top` and `pumice ps` show. Raises BadInput."""
    import asyncio

    from pumice.cli.local_view import places
    from pumice.cli.top_tabs import cards_here
    from pumice.local.shares import shares
    from pumice.web.machine_site import Looked
    from pumice.web.running import serve_machine

    where = places(emulated)
    opened = cards_here(where)
    place = opened[1] if opened is not None else where[0] if where else None
    remarks = [] if opened is not None else ["No NVIDIA driver answers here, so only booked cards are known."]
    if place is not None and place.machine is not None:
        remarks.append(f"The emulated machine {place.machine}.")
    if place is not None and place.note:
        remarks.append(f"{place.note[:1].upper()}{place.note[1:]}.")

    def look() -> Looked:
        cards = opened[0].readings() if opened is not None else ()
        found = shares([place]) if place is not None else []
        return Looked(time.time(), tuple(cards), tuple(found), tuple(remarks))

    try:
        asyncio.run(serve_machine(socket.gethostname(), look, host, port, lambda address: print(address, flush=True)))
    finally:
        if opened is not None:
            opened[0].close()

