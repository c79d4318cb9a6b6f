"""``pumice explain ... --start``: when pods that wait would start, for people and as JSON."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of
from pumice.cli.output import document
from pumice.cli.tables import print_whole, wide_console
from pumice.model.errors import BadInput
from pumice.simulation.pictures import starts_page
from pumice.simulation.play import Simulation
from pumice.simulation.starts import RunTimes, starts
from pumice.wire.nvidia_vgpu import group_key
from pumice.wire.objects import Pod, convert
from pumice.wire.share_hours import parse_run


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
