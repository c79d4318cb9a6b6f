"""``pumice scheduler``: the scheduler daemon, with upstream's flags (Volcano cmd/scheduler/app/options)."""

from __future__ import annotations

import gc
import os
from pathlib import Path
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
    duration,
    run_daemon,
    scheduler_names,
    setup_logging,
)
from pumice.cli.upstream_flags import as_upstream_writes
from pumice.model.amount import mebibytes
from pumice.model.errors import BadInput
from pumice.wire.sharding import Mode, Source

app = flags.App()

LEAST_JOURNAL = 8
"""MiB below which a journal would be snapshots alone."""


@app.command(
    epilog="Example: pumice scheduler --kubeconfig ~/.kube/config --scheduler-conf my.conf",
    rewrite=as_upstream_writes,
)
def main(
    kubeconfig: Kubeconfig = None,
    scheduler_conf: Annotated[Path | None, flags.Option(help="Configuration file; without it, the ConfigMap.")] = None,
    scheduler_configmap: Annotated[
        str, flags.Option(help="namespace/name of the ConfigMap with the configuration.")
    ] = "volcano-system/volcano-scheduler-configmap",
    scheduler_name: SchedulerNames = None,
    default_queue: Annotated[str, flags.Option(help="Queue of PodGroups that name none.")] = "default",
    schedule_period: Annotated[str, flags.Option(help="Longest pause between two looks at waiting jobs.")] = "1s",
    port: Annotated[int | None, flags.Option(help="Port of /metrics, /healthz and /readyz.")] = None,
    listen_address: Listen = ":8080",
    healthz_address: Annotated[str, flags.Option(help="A second address for the same pages.")] = "",
    leader_elect: LeaderElect = False,
    leader_elect_resource_namespace: Annotated[str, flags.Option(help="Namespace of the Lease.")] = "volcano-system",
    leader_elect_resource_name: Annotated[str, flags.Option(help="Name of the Lease.")] = "",
    leader_elect_lease_duration: Annotated[str, flags.Option(help="How long the Lease holds without being renewed.")] = "15s",
    leader_elect_renew_deadline: Annotated[str, flags.Option(help="Stop after so long without renewing it.")] = "10s",
    leader_elect_retry_period: Annotated[str, flags.Option(help="Pause between two attempts.")] = "2s",
    scheduler_sharding_mode: Annotated[Mode, flags.Option(
        help="Share the nodes with other schedulers: own ones only, or first."
    )] = Mode.NONE,
    scheduler_sharding_name: Annotated[str, flags.Option(help="Its shard; by default the scheduler's name.")] = "",
    scheduler_sharding_peers: Annotated[
        str, flags.Option(help="Shards, with commas between, whose schedulers divide the jobs.")
    ] = "",
    scheduler_sharding_source: Annotated[
        Source, flags.Option(help="Where it is said which nodes a shard has.")
    ] = Source.AUTO,
    node_selector: Annotated[
        list[str] | None, flags.Option(help="key:value; only nodes with one of these labels take part.")
    ] = None,
    disable_default_scheduler_config: Annotated[
        bool, flags.Option(help="A broken configuration file at the start is an error; else it is waited out, unready.")
    ] = False,
    strict: Annotated[bool, flags.Option(help="Refuse a configuration that has warnings.")] = False,
    implicit_groups: Annotated[bool, flags.Option(help="Schedule bare pods at once as groups of one.")] = True,
    name_pod_groups: Annotated[
        bool, flags.Option(help="Name the PodGroup of a bare pod in its Binding; `pumice controller` makes it.")
    ] = False,
    evict_bare_pods: Annotated[
        bool, flags.Option(help="Of a gang that cannot be bound as a whole, also delete pods that no controller makes anew.")
    ] = False,
    events: Annotated[bool, flags.Option(help="Write events.")] = True,
    status_writes: Annotated[bool, flags.Option(help="Write pod conditions, PodGroup and queue status.")] = True,
    bind_concurrency: Annotated[int, flags.Option(min=1, help="Bindings in flight at once.")] = 32,
    journal_dir: Annotated[Path | None, flags.Option(help="Folder of a journal of inputs and decisions.")] = None,
    journal_size: Annotated[str, flags.Option(help="Bytes that the journal may take; the oldest go first.")] = "256MiB",
    log_format: LogAs = LogFormat.TEXT,
    log_level: LogLevel = "",
    verbosity: Verbosity = 3,
) -> None:
    """Place pods whose schedulerName is ours: gangs, queues, and shares of cards."""
    gc.disable()  # what is imported stays; the daemon's loop sees to garbage once it decides
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts one for each processor, and no matrix is multiplied here
    from pumice.apps.scheduler import daemon as scheduler

    setup_logging(log_format, log_level, verbosity)
    settings = scheduler.Settings(
        scheduler_names=scheduler_names(scheduler_name),
        conf=scheduler_conf,
        configmap=scheduler_configmap,
        strict=strict,
        unready_conf=not disable_default_scheduler_config,
        node_selector=tuple(label_pair(text) for text in node_selector or ()),
        period=duration("--schedule-period", schedule_period),
        default_queue=default_queue,
        listen=f":{port}" if port is not None else listen_address,
        healthz=healthz_address,
        leader_elect=leader_elect,
        lease_namespace=leader_elect_resource_namespace,
        lease_name=leader_elect_resource_name,
        lease_duration=duration("--leader-elect-lease-duration", leader_elect_lease_duration),
        renew_deadline=duration("--leader-elect-renew-deadline", leader_elect_renew_deadline),
        retry_period=duration("--leader-elect-retry-period", leader_elect_retry_period),
        bind_concurrency=bind_concurrency,
        implicit_groups=implicit_groups,
        names_groups=name_pod_groups,
        evict_bare_pods=evict_bare_pods,
        events=events,
        status_writes=status_writes,
        sharding=scheduler_sharding_mode,
        shard=scheduler_sharding_name,
        shard_peers=peers_of(scheduler_sharding_peers, scheduler_sharding_name),
        shard_source=scheduler_sharding_source,
        journal=journal_dir,
        journal_size=mebibytes("--journal-size", journal_size, least=LEAST_JOURNAL) << 20,
    )
    run_daemon(scheduler.run, settings, kubeconfig, "pumice-scheduler", connections=64)


def peers_of(text: str, mine: str) -> tuple[str, ...]:
    """Names of shards. Raises BadInput where the own one, which has to be named then, is none of them."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if found and mine not in found:
        raise BadInput(f"--scheduler-sharding-peers {text!r}: its own shard, --scheduler-sharding-name {mine!r}, is none of them")
    return found


def label_pair(text: str) -> tuple[str, str]:
    """Label and value of ``key:value``. Raises BadInput."""
    key, colon, value = text.partition(":")
    if not colon or not key:
        raise BadInput(f"--node-selector {text!r}: write key:value, for example zone:a")
    return key, value
