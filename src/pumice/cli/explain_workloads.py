"""Explains what makes pods (Jobs, Deployments and the like), and all pods that wait, to people and as JSON.

Queues and PodGroups explained to people, and as JSON.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of
from pumice.cli.output import document
from pumice.cli.tables import GAP, end_of, model_of, print_whole, wide_console
from pumice.model.errors import BadInput, nearest
from pumice.scheduler.explaining.queues import QueueView
from pumice.scheduler.explaining.workloads import GroupView, WaitingPods, WorkloadView, explain_workload, waiting_pods
from pumice.scheduler.state.resources import Vector, amount_text, render
from pumice.simulation.pictures import starts_page
from pumice.simulation.play import Simulation
from pumice.simulation.starts import RunTimes, starts
from pumice.wire.kubectl_columns import age
from pumice.wire.nvidia_vgpu import group_key
from pumice.wire.objects import Meta, Pod, Workload, convert
from pumice.wire.share_hours import parse_run
from pumice.wire.times import stamp
from pumice.wire.volcano import PodGroup

QUEUE_COLUMNS = ("RESOURCE", "GUARANTEE", "DESERVED", "CAPABILITY", "USED", "BORROWED", "WAITING")
JOBS_SHOWN = 20
HEAD = ("QUEUE", "STATE", "PODS")
SPARED = ("STATE", "GUARANTEE", "CAPABILITY", "BORROWED", "PODS", "WAITING", "DESERVED")
"""Columns that a narrow terminal goes without: those that are empty, then the first one first. A number is whole or not there."""
SHORT_NAME, SHORTEST_NAME = 12, 5
"""Characters of a name that are shown before a column is left out, and however narrow the terminal is."""


def show_queue(found: QueueView, output: str) -> None:
    """Print it. Raises BadInput for an output that we do not know."""
    if output == "json":
        print(document(as_json(found)))
        return
    console = _console(output)
    above = f" below {found.parent}" if found.parent else ""
    console.print(f"[bold]{escape(found.name)}[/bold]{escape(above)}: {found.state}, weight {found.weight},"
                  f" {found.running} pods have a place, {found.pending} wait")  # fmt: skip
    for remark in found.remarks:
        console.print(f"  {escape(remark)}")
    print_whole(console, queues_table([found], named=False))
    if found.held_up_by:
        console.print("It has less than it deserves; who borrows what it waits for:")
    for resource, other, amount in found.held_up_by:
        console.print(f"  {escape(other)}: {amount_text(resource, amount)} {escape(resource)}")
    shown = found.jobs if output == "wide" else found.jobs[:JOBS_SHOWN]
    if shown:
        console.print("Waiting, the first one first:")
    for key, pods, why in shown:
        console.print(f"  {escape(key)} ({pods} pod{'s' if pods != 1 else ''}): {escape(why)}")
    if len(shown) < len(found.jobs):
        console.print(f"  … and {len(found.jobs) - len(shown)} more (-o wide shows all)")


def show_group(found: GroupView, output: str) -> None:
    """Print it. Raises BadInput for an output that we do not know."""
    if output == "json":
        print(document(found))
        return
    console = _console(output)
    console.print(f"[bold]{escape(found.name)}[/bold] in queue {escape(found.queue)} ({found.phase}): {escape(found.summary)}")
    if found.queue_words not in found.summary:
        console.print(f"  kept back: {escape(found.queue_words)}")
    if found.held:
        console.print(f"  held for it, for {found.held_for:.0f} s still at most: {escape(', '.join(found.held))}")
    for node, count in found.nodes.items():
        console.print(f"  {count} on {escape(node)}")
    for why, names in found.waiting.items():
        shown = names if output == "wide" else names[:NAMES_SHOWN]
        more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
        console.print(f"  {escape(', '.join(shown))}{more}: {escape(why)}")




def queues_table(views: Iterable[QueueView], width: int = 0, *, named: bool = True) -> Table:
    """A line per queue and resource, and one per type of card; queues below others are indented. ``width``: of the terminal, to
    which names are cut with a mark, and columns are left out; 0 where nothing bounds the lines."""
    rows = [cells for view in views for cells in _lines(view)]
    everything = (*(HEAD if named else ()), *QUEUE_COLUMNS)
    empty = {title for title in SPARED if not any(cells[title] for cells in rows)}
    for spared, cut in (((), False), (empty, False), *(({*empty, *SPARED[:count]}, True) for count in range(len(SPARED) + 1))):
        titles = tuple(title for title in everything if title not in spared)
        needed = {title: max([len(title), *(cell_len(cells[title]) for cells in rows)]) for title in titles}
        over = sum(needed.values()) + GAP * (len(titles) - 1) - width if width else 0
        if over <= sum(max(0, needed[title] - SHORT_NAME) for title in ("RESOURCE", "QUEUE") if cut and title in titles):
            break
    for title, least in (("RESOURCE", SHORT_NAME), ("QUEUE", SHORT_NAME), ("QUEUE", SHORTEST_NAME), ("RESOURCE", SHORTEST_NAME)):
        spare = min(max(0, over), max(0, needed.get(title, 0) - least))
        if spare:
            needed[title], over = needed[title] - spare, over - spare
    table = Table(pad_edge=False, box=None, header_style="bold")
    for title in titles:
        justify: JustifyMethod = "left" if title in ("QUEUE", "STATE", "RESOURCE") else "right"
        table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis", width=needed[title])
    for cells in rows:
        short = cells | {"RESOURCE": end_of(cells["RESOURCE"], needed["RESOURCE"])}
        table.add_row(*(Text(short[title]) for title in titles))
    return table


def _lines(view: QueueView) -> Iterator[dict[str, str]]:
    """The cells of a queue by column; further lines do not name it again."""
    head = f"{'  ' * view.depth}{view.name}", view.state, f"{view.running}+{view.pending}"
    for number, cells in enumerate(list(_rows(view)) or [("nothing", *[""] * (len(QUEUE_COLUMNS) - 1))]):
        yield dict(zip((*HEAD, *QUEUE_COLUMNS), (*(head if number == 0 else ("", "", "")), *cells), strict=True))


def _rows(view: QueueView) -> Iterator[tuple[str, ...]]:
    parts = (view.guarantee, view.deserved, view.capability, view.used, view.borrowed, view.waiting)
    for name in view.resources():
        yield (name, *(_cell(part, name) for part in parts))
    for use in view.cards:
        used = f"{round(use.used, 2):g} of {use.total} cards" if use.shares else ""
        waiting = f"{use.waiting} pod{'s' if use.waiting != 1 else ''}" if use.waiting else ""
        yield (model_of(use.type), "", "", "", used, "", waiting)


def _cell(part: Vector, name: str) -> str:
    return amount_text(name, part[name]) if part.get(name) is not None else ""


def as_json(view: QueueView) -> dict[str, Any]:
    """With amounts as Kubernetes writes them."""
    found = {key: render(value) if isinstance(value, dict) else value for key, value in asdict(view).items()}
    found["held_up_by"] = [{"resource": resource, "queue": other, "amount": amount_text(resource, amount)}
                           for resource, other, amount in view.held_up_by]  # fmt: skip
    return found


OWNERS = {
    "job": "Job", "deployment": "Deployment", "statefulset": "StatefulSet", "replicaset": "ReplicaSet", "daemonset": "DaemonSet",
}  # fmt: skip
"""Words for objects that are explained by the pods that they have made, and their kinds."""
NAMES_SHOWN = 5
COLUMNS = ("QUEUE", "JOB", "PODS", "PRIORITY", "WAITS", "FOR", "WHY")


def workload_of(snapshot: ClusterSnapshot, kind: str, namespace: str, name: str) -> WorkloadView:
    """Raises BadInput where nothing in the snapshot belongs to such an object."""
    owner = OWNERS[kind]
    kept = [convert(Workload, item) for item in snapshot.objects.get("replicaSets", ())]
    sets = {s.metadata.name for s in kept if s.metadata.namespace == namespace and _owned(s.metadata, owner, name)}

    def belongs(meta: Meta) -> bool:
        by_set = owner == "Deployment" and any(_owned(meta, "ReplicaSet", each) for each in sets)
        return meta.namespace == namespace and (by_set or _owned(meta, owner, name))

    pods = [convert(Pod, item) for item in snapshot.objects.get("pods", ())]
    groups = [group.metadata for group in (convert(PodGroup, item) for item in snapshot.objects.get("podGroups", ()))]
    found, theirs = [pod for pod in pods if belongs(pod.metadata)], [f"{g.namespace}/{g.name}" for g in groups if belongs(g)]
    if not (found or theirs or sets):
        metas = [pod.metadata for pod in pods if pod.metadata.namespace == namespace] + [s.metadata for s in kept]
        beside = {each.name for meta in metas for each in meta.owner_references if each.kind == owner}
        raise BadInput(f"no {owner} {namespace}/{name} that has made a pod or a PodGroup{nearest(name, sorted(beside))}")
    return explain_workload(engine_of(snapshot), owner, f"{namespace}/{name}", found, theirs, snapshot.now)


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


def show_waiting(snapshot: ClusterSnapshot, namespace: str | None, output: str) -> None:
    """Print all that wait, of one namespace or of all. Raises BadInput for an output that we do not know."""
    found = [each for each in waiting_pods(engine_of(snapshot), snapshot.now) if namespace in (None, each.job.partition("/")[0])]
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode([asdict(each) for each in found]), indent=2).decode())
        return
    console = _console(output)
    if found:
        print_whole(console, waiting_table(found, snapshot.now, all_of_them=output == "wide"))
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


# -- ``pumice explain ... --start``: when pods that wait would start, for people and as JSON ------------------------


def show_starts(
    snapshot: ClusterSnapshot, kind: str, namespace: str | None, name: str, output: str, html: Path | None = None
) -> None:
    """Print when they would start, and draw it. Raises BadInput where nothing is there that this could be asked of."""
    if output not in ("text", "wide", "json"):
        raise BadInput(f"-o {output!r}: use text, wide or json")
    wanted = _wanted(snapshot, kind, namespace, name)
    empty = engine_of(replace(snapshot, objects={**snapshot.objects, "pods": [], "podGroups": []}))
    times = RunTimes.of(run for run in map(parse_run, snapshot.runs) if run is not None)
    found = starts(lambda: Simulation(engine_of(snapshot), snapshot.now, snapshot.objects), empty, times, wanted)
    if html is not None:
        html.write_text(starts_page(found, snapshot.now), "utf-8", "replace")
    if output == "json":
        print(document({"now": snapshot.now, "starts": [asdict(each) for each in found]}))
        return
    if not found:
        print("None of them waits." if kind != "waiting" else "Nobody waits.")
        return
    console, _ = wide_console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("POD", "EARLY (10 %)", "EVEN (50 %)", "LATE (90 %)", "WHY NOT"):
        table.add_column(title, no_wrap=True)
    for each in found:
        cells = ("", "", "") if each.why else tuple(_when(snapshot.now, at) for at in (each.p10, each.p50, each.p90))
        table.add_row(*map(Text, (each.pod, *cells, each.why)))
    print_whole(console, table)
    print("By recorded run times, as if nobody else came; UTC.")


def _wanted(snapshot: ClusterSnapshot, kind: str, namespace: str | None, name: str) -> set[str] | None:
    """The keys of the pods that are asked for; None: all."""
    pods = [convert(Pod, item) for item in snapshot.objects.get("pods", ())]
    if kind == "waiting":
        return None if namespace is None else {pod.key for pod in pods if pod.metadata.namespace == namespace}
    namespace = namespace or "default"
    if kind == "pod":
        return {snapshot.pod(namespace, name).key}
    if kind == "podgroup":
        metas = [group["metadata"] for group in snapshot.objects.get("podGroups", ())]
        if (namespace, name) not in {(meta.get("namespace", "default"), meta["name"]) for meta in metas}:
            raise BadInput(f"no PodGroup {namespace}/{name}")
        return {pod.key for pod in pods if group_key(pod.metadata.namespace, pod.metadata.annotations) == f"{namespace}/{name}"}
    if kind == "job":
        found = {pod.key for pod in pods if pod.metadata.namespace == namespace
                 and any(owner.kind == "Job" and owner.name == name for owner in pod.metadata.owner_references)}  # fmt: skip
        if not found:
            raise BadInput(f"no Job {namespace}/{name} that has made a pod")
        return found
    raise BadInput(f"--start: of pod, podgroup, job or waiting, not of a {kind}")


def _when(now: float, seconds: float | None) -> str:
    if seconds is None:
        return "later"
    return "now" if seconds < 1 else time.strftime("%m-%d %H:%M", time.gmtime(now + seconds))
