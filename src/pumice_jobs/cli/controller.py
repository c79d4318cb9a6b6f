"""``pumice controller``: the daemon that looks after Jobs, PodGroups of bare pods, and queues."""

from __future__ import annotations

from typing import Annotated

from pumice.cli import flags
from pumice.cli.daemon import (
    Kubeconfig,
    LeaderElect,
    Listen,
    LogAs,
    LogFormat,
    LogLevel,
    SchedulerNames,
    Verbosity,
    run_daemon,
    scheduler_names,
    setup_logging,
)
from pumice.cli.upstream_flags import as_upstream_writes

app = flags.App()


@app.command(epilog="Example: pumice controller --kubeconfig ~/.kube/config", rewrite=as_upstream_writes)
def main(
    kubeconfig: Kubeconfig = None,
    scheduler_name: SchedulerNames = None,
    listen_address: Listen = ":8081",
    worker_threads: Annotated[int, flags.Option(min=1, help="Objects reconciled at once.")] = 32,
    bare_pod_groups: Annotated[bool, flags.Option(help="Write a PodGroup for pods that name none.")] = True,
    inherit_owner_annotations: Annotated[bool, flags.Option(help="Copy volcano.sh/ annotations of owners.")] = True,
    share_claims: Annotated[bool, flags.Option(help="Make the templates of claims that pumice webhook --share-claims writes.")] =
        False,
    leader_elect: LeaderElect = False,
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
    verbosity: Verbosity = 3,
) -> None:
    """Look after Jobs, CronJobs and JobFlows, PodGroups of bare pods, queues, and HyperNodes that labels make."""
    from pumice_jobs.apps.controller import daemon as controller

    setup_logging(log_format, log_level, verbosity)
    settings = controller.Settings(
        scheduler_names=scheduler_names(scheduler_name),
        listen=listen_address,
        workers=worker_threads,
        bare_pod_groups=bare_pod_groups,
        inherit_owner_annotations=inherit_owner_annotations,
        leader_elect=leader_elect,
        share_claims=share_claims,
    )
    run_daemon(controller.run, settings, kubeconfig, "pumice-controller", connections=64)
