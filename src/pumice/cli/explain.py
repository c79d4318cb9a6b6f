"""``pumice explain``: why a pod, a PodGroup, a queue, a workload or everybody waits, and what would let it in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.cli import flags
from pumice.cli.completion import NAMESPACES, Given, Offers, names
from pumice.cli.output import writable
from pumice.model.errors import BadInput

if TYPE_CHECKING:
    from pumice.cli.cluster_snapshot import ClusterSnapshot

KINDS = {
    "pod": ("pod", "pods", "po"),
    "podgroup": ("podgroup", "podgroups", "pg"),
    "queue": ("queue", "queues", "q"),
    "job": ("job", "jobs", "vcjob", "vj"),
    "deployment": ("deployment", "deployments", "deploy"),
    "statefulset": ("statefulset", "statefulsets", "sts"),
    "replicaset": ("replicaset", "replicasets", "rs"),
    "daemonset": ("daemonset", "daemonsets", "ds"),
    "waiting": ("waiting",),
}  # fmt: skip


def _explained(given: Given) -> list[str]:
    """For whoever completes: a kind, its name, or both as KIND/NAME."""
    from pumice.wire.kinds import DAEMON_SETS, DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS
    from pumice.wire.volcano import POD_GROUPS, QUEUES

    resources = {"pod": PODS, "podgroup": POD_GROUPS, "queue": QUEUES, "job": JOBS, "deployment": DEPLOYMENTS,
                 "statefulset": STATEFUL_SETS, "replicaset": REPLICA_SETS, "daemonset": DAEMON_SETS}  # fmt: skip
    kind, slash, _ = given.begun.partition("/")
    if not given.arguments and not slash:
        return list(KINDS)
    meant = given.arguments[0] if given.arguments else kind
    found = next((names(resources[each], given) for each in resources if meant in KINDS[each]), [])
    return found if given.arguments else [f"{kind}/{name}" for name in found]


EXPLAINED = Offers(_explained)
app = flags.App()


@app.command(epilog="Examples: pumice explain pod trainer-0 -n research;  pumice explain queue a;  pumice explain waiting")
def main(
    kind: Annotated[str, flags.Argument(
        metavar="pod|podgroup|queue|job|deployment|waiting", help="What to explain; pod/NAME is both. waiting: all who wait."
    ), EXPLAINED],
    name: Annotated[str, flags.Argument(help="Its name.", show_default=False), EXPLAINED] = "",
    namespace: Annotated[
        str | None, flags.Option("-n", "--namespace", help="Its namespace, default; of waiting: only this one."), NAMESPACES
    ] = None,
    file: Annotated[Path | None, flags.Option("--from", help="Answer from a file written by `pumice dump`.")] = None,
    kubeconfig: Annotated[Path | None, flags.Option(envvar="KUBECONFIG", help="Kubeconfig file.")] = None,
    scheduler_name: Annotated[
        list[str] | None, flags.Option(help="Pods with this schedulerName are ours; may be given again.")
    ] = None,
    preempt: Annotated[
        bool, flags.Option("--preempt", help="Say who would go for the pod, who stays and why; nothing is done.")
    ] = False,
    start: Annotated[
        bool, flags.Option("--start", help="Say when they would start, by recorded run times; of pod, podgroup, job and waiting.")
    ] = False,
    html: Annotated[
        Path | None, flags.Option(help="With --start: also write one page with a picture of it to this file.")
    ] = None,
    output: Annotated[str, flags.Option("-o", "--output", help="text, wide (every card) or json.")] = "text",
) -> None:
    """Say where a pod would go, or why no node takes it, card by card, and the smallest changes that would let it in.

    Of a PodGroup it says what is missing; of a queue, what it deserves, uses, borrows and waits for. Of a workload it says how
    its pods fare, and of `waiting` who waits for what.
    """
    # Only here: help and completion need no engine.
    from pumice.cli.page_link import print_page_link
    from pumice.cli.snapshot_source import Source, take_snapshot

    if not name:
        kind, _, name = kind.partition("/")
    meant = next((found for found, words in KINDS.items() if kind in words), None)
    if meant is None or not (name or meant == "waiting"):
        raise BadInput(f"cannot explain {kind!r}; write: pumice explain {meant or 'pod'} {name or 'NAME'}")
    if "/" in name:
        namespace, _, name = name.partition("/")
    if html is not None and not start:
        raise BadInput("--html goes with --start")
    writable(html)
    snapshot = take_snapshot(Source(file=file, kubeconfig=kubeconfig, scheduler_names=tuple(scheduler_name or ()), runs=start))
    _show(snapshot, meant, namespace, name, output, start=start, preempt=preempt, html=html)
    if file is None and output != "json":
        view, query = _view_of(meant, namespace or "default", name)
        print_page_link(kubeconfig, view, **query)


def _view_of(meant: str, namespace: str, name: str) -> tuple[str, dict[str, str]]:
    """Return the view of `pumice web` that shows it, and its query."""
    if meant == "waiting":
        return "waiting", {}
    if meant == "queue":
        return "queue", {"name": name}
    view = {"pod": "pod", "podgroup": "job"}.get(meant)
    return (view, {"namespace": namespace, "name": name}) if view else ("search", {"q": name})


def _show(snapshot: ClusterSnapshot, meant: str, namespace: str | None, name: str, output: str, *, start: bool, preempt: bool,
          html: Path | None) -> None:  # fmt: skip
    from pumice.cli.cluster_snapshot import engine_of
    from pumice.cli.explain_workloads import (
        OWNERS,
        show_group,
        show_queue,
        show_starts,
        show_waiting,
        show_workload,
        workload_of,
    )
    from pumice.cli.explanation import show, show_preemption, units_of
    from pumice.scheduler.explaining.explain import explain
    from pumice.scheduler.explaining.queues import queue_view
    from pumice.scheduler.explaining.what_if import explain_preemption
    from pumice.scheduler.explaining.workloads import explain_group

    if start:
        show_starts(snapshot, meant, namespace, name, output, html)
        return
    if meant == "waiting":
        show_waiting(snapshot, namespace, output)
        return
    namespace = namespace or "default"
    if meant in OWNERS:
        show_workload(workload_of(snapshot, meant, namespace, name), output)
        return
    if meant == "queue":
        show_queue(queue_view(engine_of(snapshot), name, snapshot.now), output)
        return
    if meant == "podgroup":
        show_group(explain_group(engine_of(snapshot), namespace, name, snapshot.now), output)
        return
    if preempt:
        show_preemption(explain_preemption(engine_of(snapshot), namespace, name, snapshot.now), output)
        return
    pod = snapshot.pod(namespace, name)
    engine = engine_of(snapshot)
    show(explain(engine, pod, now=snapshot.now, templates=snapshot.templates), output, units_of(engine.device_types))
