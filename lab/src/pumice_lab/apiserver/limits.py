"""LimitRanges of a namespace, applied to a new pod or claim: defaults where it leaves them out, then bounds and ratios.

Rules: Kubernetes "Limit Ranges" (plugin/pkg/admission/limitranger/admission.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.errors import forbidden
from pumice_lab.apiserver.strategies.resources import sum_of_pod

Json = dict[str, Any]
Amounts = dict[str, str]
_NOTE = "kubernetes.io/limit-ranger"


def limit(backend: Backend, plural: str, value: Json) -> None:
    """Raises Forbidden, or completes a pod."""
    ranges = backend.storage.objects("v1/limitranges", value["metadata"]["namespace"])
    rows = [row for stored in ranges for row in (stored.value().get("spec") or {}).get("limits") or []]
    if not rows:
        return
    if plural == "pods":
        _complete(value, [row for row in rows if row.get("type") == "Container"])
    problems = [problem for row in rows for problem in _problems(row, plural, value["spec"])]
    if problems:
        why = problems[0] if len(problems) == 1 else f"[{', '.join(dict.fromkeys(problems))}]"
        raise forbidden("", plural, value["metadata"].get("name", ""), why)


def _complete(pod: Json, rows: list[Json]) -> None:
    said: list[str] = []
    for field, kind in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(field) or ():
            resources = container.setdefault("resources", {})
            for target, source, word in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
                have = resources.get(target) or {}
                new = {name: amount for row in rows for name, amount in (row.get(source) or {}).items() if name not in have}
                if new:
                    resources[target] = have | new
                    said.append(f"{', '.join(sorted(new))} {word} for {kind} {container.get('name', '')}")
    if said:
        pod["metadata"].setdefault("annotations", {})[_NOTE] = "LimitRanger plugin set: " + "; ".join(said)


def _problems(row: Json, plural: str, spec: Json) -> Iterator[str]:
    kind = row.get("type")
    if kind == "PersistentVolumeClaim" and plural == "persistentvolumeclaims":
        # What a claim asks for is all that counts, so it stands for its limit too.
        requests = (spec.get("resources") or {}).get("requests") or {}
        yield from _beyond({**row, "maxLimitRequestRatio": None}, requests, requests)
    elif kind == "Container" and plural == "pods":
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.get("resources") or {}
            yield from _beyond(row, resources.get("requests") or {}, resources.get("limits") or {})
    elif kind == "Pod" and plural == "pods":
        yield from _beyond(row, sum_of_pod(spec, "requests"), sum_of_pod(spec, "limits"))


def _beyond(row: Json, requests: Amounts, limits: Amounts) -> Iterable[str]:
    kind = row["type"]
    for name, bound in (row.get("min") or {}).items():
        least = f"minimum {name} usage per {kind} is {bound}"
        if name not in requests:
            yield f"{least}.  No request is specified"
        elif parse_quantity(requests[name]) < parse_quantity(bound):
            yield f"{least}, but request is {requests[name]}"
        elif name in limits and parse_quantity(limits[name]) < parse_quantity(bound):
            yield f"{least}, but limit is {limits[name]}"
    for name, bound in (row.get("max") or {}).items():
        most = f"maximum {name} usage per {kind} is {bound}"
        if name not in limits:
            yield f"{most}.  No {'request' if kind == 'PersistentVolumeClaim' else 'limit'} is specified"
        elif parse_quantity(limits[name]) > parse_quantity(bound):
            yield f"{most}, but {'request' if kind == 'PersistentVolumeClaim' else 'limit'} is {limits[name]}"
        elif name in requests and parse_quantity(requests[name]) > parse_quantity(bound):
            yield f"{most}, but request is {requests[name]}"
    for name, bound in (row.get("maxLimitRequestRatio") or {}).items():
        most = f"{name} max limit to request ratio per {kind} is {bound}"
        asked, at_most = parse_quantity(requests.get(name, "0")), parse_quantity(limits.get(name, "0"))
        if not asked or not at_most:
            word = "limit" if asked else "request"
            yield f"{most}, but no {word} is specified or {word} is 0"
        elif at_most / asked > parse_quantity(bound):
            yield f"{most}, but provided ratio is {float(at_most / asked):f}"
