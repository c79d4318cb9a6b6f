"""Tables and descriptions of Jobs, queues and pods, as vcctl prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pumice.ports.cluster import Json
from pumice.wire.kubectl_columns import age, pod_cells
from pumice.wire.names import DEFAULT_QUEUE, JOB_TYPE

NOTHING = "No resources found"
MARGIN = 3

JOB_COLUMNS = ("Creation", "Phase", "JobType", "Replicas", "Min", "Pending", "Running", "Succeeded", "Failed", "Unknown",
               "RetryCount")  # fmt: skip
JOB_WIDTHS = (15, 12, 12, 12, 6, 10, 10, 12, 10, 12, 10)
QUEUE_COLUMNS = ("Weight", "State", "Parent", "Inqueue", "Pending", "Running", "Unknown", "Completed")
QUEUE_NAME, QUEUE_CELL = 25, 8
FLOW_COLUMNS, TEMPLATE_COLUMNS, FLOW_GAP = ("Name", "Namespace", "Phase", "Age"), ("Name", "Namespace"), 4
POD_COLUMNS, POD_GAP, POD_TITLE_GAP = ("Name", "Ready", "Status", "Restart", "Age"), 8, 2


def jobs(found: Sequence[Json], *, namespaces: bool) -> str:
    rows = [(job["metadata"], _job_cells(job)) for job in found]
    return _table(rows, JOB_COLUMNS, JOB_WIDTHS, namespaces=namespaces)


def pods(found: Sequence[Json], *, namespaces: bool, now: float) -> str:
    rows = [[*([meta.get("namespace", "")] if namespaces else []), *map(str, pod_cells(pod, now)[:4]), age(meta, now)]
            for pod in found for meta in [pod["metadata"]]]  # fmt: skip
    return _fitted((*(["Namespace"] if namespaces else []), *POD_COLUMNS), rows, POD_GAP, POD_TITLE_GAP)


def flows(found: Sequence[Json], now: float, *, phased: bool) -> str:
    """JobFlows; and JobTemplates, which have no phase."""
    rows = []
    for obj in found:
        meta, state = obj["metadata"], (obj.get("status") or {}).get("state") or {}
        row = [meta["name"], meta.get("namespace", ""), str(state.get("phase") or ""), age(meta, now)]
        rows.append(row if phased else row[:2])
    return _fitted(FLOW_COLUMNS if phased else TEMPLATE_COLUMNS, rows, FLOW_GAP, FLOW_GAP)


def _fitted(titles: Sequence[str], rows: Sequence[Sequence[str]], gap: int, title_gap: int) -> str:
    """Each column as wide as its widest cell and a gap."""
    if not rows:
        return NOTHING
    widths = [max(len(title) + title_gap, *(len(row[at]) + gap for row in rows)) for at, title in enumerate(titles)]
    return "\n".join("".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in (titles, *rows))


def queues(found: Iterable[Json], groups: Iterable[Json]) -> str:
    """With the PodGroups of each by phase."""
    counts = Counter((str((each.get("spec") or {}).get("queue") or DEFAULT_QUEUE), str((each.get("status") or {}).get("phase")))
                     for each in groups)  # fmt: skip
    lines = [_padded(("Name", *QUEUE_COLUMNS))]
    for queue in found:
        name, spec, status = queue["metadata"]["name"], queue.get("spec") or {}, queue.get("status") or {}
        lines.append(_padded((name, spec.get("weight", 1), status.get("state", ""), spec.get("parent", ""),
                              *(counts[name, phase] for phase in QUEUE_COLUMNS[3:]))))  # fmt: skip
    return "\n".join(lines)


def _padded(row: Sequence[object]) -> str:
    return f"{row[0]!s:<{QUEUE_NAME}}" + "".join(f"{cell!s:<{QUEUE_CELL}}" for cell in row[1:])


def _job_cells(job: Json) -> list[str]:
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    replicas = sum(int(task.get("replicas") or 0) for task in spec.get("tasks") or ())
    counts = (status.get(phase, 0) for phase in ("pending", "running", "succeeded", "failed", "unknown", "retryCount"))
    return [
        str(meta.get("creationTimestamp", ""))[:10], str((status.get("state") or {}).get("phase", "")),
        (meta.get("labels") or {}).get(JOB_TYPE, "Batch"), str(replicas),
        str(status.get("minAvailable", spec.get("minAvailable", 0))), *map(str, counts),
    ]  # fmt: skip


def _table(rows: Sequence[tuple[Json, Sequence[str]]], columns: Sequence[str], widths: Sequence[int], *,
           namespaces: bool) -> str:  # fmt: skip
    """Name, and the namespace before it where that is asked for, as wide as the longest; the rest as wide as said."""
    if not rows:
        return NOTHING
    leading = [("Namespace", "namespace")] * namespaces + [("Name", "name")]
    lengths = [max(len(title), *(len(str(meta.get(key, ""))) for meta, _ in rows)) + MARGIN for title, key in leading]
    lines = []
    for first, cells_ in [([title for title, _ in leading], columns)] + [([str(m.get(key, "")) for _, key in leading], c)
                                                                        for m, c in rows]:  # fmt: skip
        lines.append("".join(f"{text:<{length}}" for text, length in zip(first, lengths, strict=True))
                     + "".join(f"{cell:<{width}}" for cell, width in zip(cells_, widths, strict=True)))  # fmt: skip
    return "\n".join(lines)


# -- descriptions -----------------------------------------------------------------------------------------------------

SHOWN_ABOVE = ("name", "namespace", "labels", "annotations", "managedFields")


def description(obj: Json, events: Sequence[Json], now: float) -> str:
    """An object for people, top to bottom, with its events."""
    meta = obj["metadata"]
    plain = {key: value for key, value in meta.items() if key not in SHOWN_ABOVE}
    lines = [
        f"Name:       \t{meta['name']}", f"Namespace:  \t{meta.get('namespace', '')}",
        f"Labels:     \t{_pairs(meta.get('labels'))}", f"Annotations:\t{_pairs(meta.get('annotations'))}",
        f"API Version:\t{obj.get('apiVersion', '')}", f"Kind:       \t{obj.get('kind', '')}",
        "Metadata:", *_tree(plain, 1), "Spec:", *_tree(obj.get("spec") or {}, 1), "Status:", *_tree(obj.get("status") or {}, 1),
    ]  # fmt: skip
    if not events:
        return "\n".join([*lines, "Events:     \t<none>"])
    lines += ["Events:", f"  {'Type':<10}{'Reason':<20}{'Age':<8}Message"]
    for event in events:
        since = age({"creationTimestamp": event.get("lastTimestamp") or event["metadata"].get("creationTimestamp")}, now)
        lines.append(f"  {event.get('type', ''):<10}{event.get('reason', ''):<20}{since:<8}{event.get('message', '')}")
    return "\n".join(lines)


def _pairs(texts: Mapping[str, str] | None) -> str:
    return "\n            \t".join(f"{key}={value}" for key, value in (texts or {}).items()) or "<none>"


def _tree(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for key, found in value.items():
        title = _title(key)
        if isinstance(found, Mapping):
            yield f"{pad}{title}:"
            yield from _tree(found, depth + 1)
        elif isinstance(found, list) and any(isinstance(each, Mapping) for each in found):
            yield f"{pad}{title}:"
            for each in found:
                yield from _tree(each, depth + 1) if isinstance(each, Mapping) else [f"{pad}  {each}"]
        elif isinstance(found, list):
            yield f"{pad}{title}:"
            yield from (f"{pad}  {each}" for each in found)
        else:
            yield f"{pad}{title}:\t{found}"


def _title(key: str) -> str:
    """``minAvailable`` as ``Min Available``; names of people's own stay as they are."""
    if not key.isalnum() or not key[:1].islower():
        return key
    return "".join(f" {letter}" if letter.isupper() else letter for letter in key[0].upper() + key[1:]).lstrip()
