"""``pumice web``: a page of a cluster for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.cli import flags
from pumice.model.errors import BadInput

if TYPE_CHECKING:
    from pumice.ports.cluster import Cluster
    from pumice.web.following import Configuration

app = flags.App()


@app.command(epilog="Examples: pumice web;  pumice web --kubeconfig ~/lab.config --listen-address 127.0.0.1:8090")
def web(
    kubeconfig: Annotated[Path | None, flags.Option(envvar="KUBECONFIG", help="Kubeconfig file, whose rights count.")] = None,
    listen_address: Annotated[
        str, flags.Option(help="ADDRESS:PORT of this machine alone; port 0 takes a free one.")
    ] = "127.0.0.1:0",
    scheduler_name: Annotated[
        list[str] | None, flags.Option(help="Pods with this schedulerName are ours; may be given again.")
    ] = None,
) -> None:
    """Serve a page of the cluster until Ctrl-C and print its address, with the token that opens it: cards and who is on them,
    why pods wait, queues, jobs, what changed. It reads with the rights of the kubeconfig, needs no Prometheus and writes
    nothing. Only this machine reaches it; from another one go through `ssh -L`."""
    from pumice.apps.service.http import is_loopback
    from pumice.cli.daemon import access_to_ask, bind_address

    host, port = bind_address(listen_address, "--listen-address")
    if not is_loopback(host):
        raise BadInput(f"--listen-address {listen_address}: others could read the token on its way; listen on 127.0.0.1 and "
                       "go there by `ssh -L`")  # fmt: skip
    access = access_to_ask(kubeconfig)
    names = frozenset(scheduler_name or ())
    # Only here: help and completion need neither an engine nor templates.
    import asyncio

    from pumice.web.running import serve_cluster

    async def configured(kube: Cluster) -> Configuration:
        from pumice.cli.picture import Source, configuration
        from pumice.web.following import Configuration

        case = await configuration(kube, Source().configmap)
        return Configuration(case.scheduler_conf, case.device_config, names or frozenset(case.scheduler_names),
                             tuple(case.remarks))  # fmt: skip

    asyncio.run(serve_cluster(access, configured, host, port, lambda address: print(address, flush=True)))
