"""Explains what makes pods (Jobs, Deployments and the like), and all pods that wait, to people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pumice.cli.casefile import Case, engine_of
from pumice.cli.tables import print_whole
from pumice.model.errors import BadInput, nearest
from pumice.scheduler.explaining.workloads import WaitingPods, WorkloadView, explain_workload, waiting_pods
from pumice.wire.kubectl_columns import age
from pumice.wire.objects import Meta, Pod, Workload, convert
from pumice.wire.volcano import PodGroup, stamp

OWNERS = {
    "job": "Job", "deployment": "Deployment", "statefulset": "StatefulSet", "replicaset": "ReplicaSet", "daemonset": "DaemonSet",
}  # fmt: skip
"""Words for objects that are explained by the pods that they have made, and their kinds."""
NAMES_SHOWN = 5
COLUMNS = ("QUEUE", "JOB", "PODS", "PRIORITY", "WAITS", "FOR", "WHY")


def workload_of(case: Case, kind: str, namespace: str, name: str) -> WorkloadView:
    """Raises BadInput where nothing in the picture belongs to such an object."""
    owner = OWNERS[kind]
    kept = [convert(Workload, item) for item in case.objects.get("replicaSets", ())]
    sets = {s.metadata.name for s in kept if s.metadata.namespace == namespace and _owned(s.metadata, owner, name)}

    def belongs(meta: Meta) -> bool:
        by_set = owner == "Deployment" and any(_owned(meta, "ReplicaSet", each) for each in sets)
        return meta.namespace == namespace and (by_set or _owned(meta, owner, name))

    pods = [convert(Pod, item) for item in case.objects.get("pods", ())]
    groups = [group.metadata for group in (convert(PodGroup, item) for item in case.objects.get("podGroups", ()))]
    found, theirs = [pod for pod in pods if belongs(pod.metadata)], [f"{g.namespace}/{g.name}" for g in groups if belongs(g)]
    if not (found or theirs or sets):
        metas = [pod.metadata for pod in pods if pod.metadata.namespace == namespace] + [s.metadata for s in kept]
        beside = {each.name for meta in metas for each in meta.owner_references if each.kind == owner}
        raise BadInput(f"no {owner} {namespace}/{name} that has made a pod or a PodGroup{nearest(name, sorted(beside))}")
    return explain_workload(engine_of(case), owner, f"{namespace}/{name}", found, theirs, case.now)


def _owned(meta: Meta, kind: str, name: str) -> bool:
    return any(owner.controller and owner.kind == kind and owner.name == name for owner in meta.owner_references)


def show_workload(found: WorkloadView, output: str) -> None:
    """Print it. Raises BadInput for an output that we do not know."""
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(asdict(found)), indent=2).decode())
        return
    console = _console(output)
    console.print(f"{found.kind} [bold]{escape(found.name)}[/bold]: {escape(found.summary)}")
    for group in found.groups:
        console.print(f"  PodGroup {escape(group.name)} in queue {escape(group.queue)} ({group.phase}): {escape(group.summary)}")
    for node, count in found.nodes.items():
        console.print(f"  {count} on {escape(node)}")
    for why, names in found.waiting.items():
        console.print(f"  {escape(_named(names, all_of_them=output == 'wide'))}: {escape(why)}")
    if found.waiting:
        first = next(iter(found.waiting.values()))[0]
        namespace = found.name.partition("/")[0]
        console.print(f"What would let one of them in: pumice explain pod {escape(first)} -n {escape(namespace)}")


def show_waiting(case: Case, namespace: str | None, output: str) -> None:
    """Print all that wait, of one namespace or of all. Raises BadInput for an output that we do not know."""
    found = [each for each in waiting_pods(engine_of(case), case.now) if namespace in (None, each.job.partition("/")[0])]
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode([asdict(each) for each in found]), indent=2).decode())
        return
    console = _console(output)
    if found:
        print_whole(console, waiting_table(found, case.now, all_of_them=output == "wide"))
    else:
        console.print("Nobody waits.")


def waiting_table(found: Iterable[WaitingPods], now: float, *, all_of_them: bool = False) -> Table:
    """A line for the pods of one job that wait for one reason, in the order in which they are tried."""
    table = Table(pad_edge=False, box=None, header_style="bold")
    for title in COLUMNS:
        table.add_column(title, no_wrap=True)
    for each in found:
        pods = _named(each.pods, all_of_them=True) if all_of_them else str(len(each.pods))
        waits = age({"creationTimestamp": stamp(each.since)}, now)
        cells = (each.queue, each.job, pods, str(each.priority), waits, each.cause.value, each.why)
        table.add_row(*map(Text, cells))
    return table


def _named(names: tuple[str, ...], *, all_of_them: bool) -> str:
    shown = names if all_of_them else names[:NAMES_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return f"{', '.join(shown)}{more}"


def _console(output: str) -> Console:
    if output not in ("text", "wide"):
        raise BadInput(f"-o {output!r}: use text, wide or json")
    return Console(highlight=False, soft_wrap=True)
