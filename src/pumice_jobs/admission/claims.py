"""Shares that pods ask by resource, written as claims before the pod is stored (``wire.share_claims``).

Nothing is written beside the answer, so that a dry run answers as the write would. The pod names templates, and says in an
annotation what each asks; the controller makes them (``controllers.share_claims``), owned by the pod's workload. The name of a
template follows from the workload, the container and what is asked: what is applied again is changed in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from pumice.wire import hami_names, names
from pumice.wire.names import SHARE_CLAIMS
from pumice.wire.programs import HAMI_SCHEDULER
from pumice.wire.share_claims import ALL_CORES, PERHAPS_NVIDIAS, RESOURCES, Share, amounts, render, share_of, unwritable
from pumice_jobs.admission.review import UPDATE, Answer, Json, Patch, Request, Settings, View, put

PARTS: Final = ("initContainers", "containers")
"""Containers whose claims a pod has from its beginning."""


def mutate(request: Request, view: View, settings: Settings) -> Answer:
    """Of a pod. One that was stored as it is stays so."""
    pod = request.object
    if request.operation == UPDATE and not _is_written(request.old):
        return Answer()
    written, warnings = _written(pod, _scope(pod, request.uid), settings)
    patch: Patch = []
    for section in ("metadata", "spec"):
        for key, value in (written.get(section) or {}).items():
            if (pod.get(section) or {}).get(key) != value:
                put(patch, f"/{section}/{key}", value)
    return Answer(patch=patch, warnings=warnings)


def mutate_job(request: Request, view: View, settings: Settings) -> Answer:
    """Of the tasks of a Job of Volcano's, whose queue is asked for what its templates say."""
    tasks = _list(_map(request.object.get("spec")).get("tasks"))
    before = _list(_map(request.old.get("spec")).get("tasks"))
    changed, warnings = list[Any](), list[str]()
    for number, task in enumerate(tasks):
        pod = _map(_map(task).get("template"))
        stored = before[number] if number < len(before) else {}
        if request.operation == UPDATE and not _is_written(_map(_map(stored).get("template"))):
            changed.append(task)
            continue
        scope = f"job {request.object.get('metadata', {}).get('name') or request.uid} {number}"
        written, said = _written(pod, scope, settings)
        changed.append({**task, "template": written} if written is not pod else task)
        warnings += [f"task {_map(task).get('name') or number}: {text}" for text in said]
    patch: Patch = []
    if changed != tasks:
        put(patch, "/spec/tasks", changed)
    return Answer(patch=patch, warnings=tuple(warnings))


def _is_written(pod: Json) -> bool:
    return SHARE_CLAIMS in _map(_map(pod.get("metadata")).get("annotations"))


def _scope(pod: Json, ask: str) -> str:
    """Return the owner that a template's name is hashed with: the pod's workload by its UID, else the pod by its name."""
    meta = _map(pod.get("metadata"))
    owner = next((one for one in _list(meta.get("ownerReferences")) if _map(one).get("controller")), None)
    return f"owner {owner.get('uid')}" if owner else f"pod {meta.get('name') or ask}"


def _written(pod: Json, scope: str, settings: Settings) -> tuple[Json, tuple[str, ...]]:
    """The pod or template with its shares as claims, or itself as it was, and warnings. It is written as a whole or not at all:
    a node gives its cards in one way."""
    spec, notes = _map(pod.get("spec")), _map(_map(pod.get("metadata")).get("annotations"))
    of_hamis_scheduler = spec.get("schedulerName") == HAMI_SCHEDULER
    sure = of_hamis_scheduler or _says_hamis_words(spec, notes)
    shares: dict[str, Share] = {}
    warnings: list[str] = []
    changed: Json = {}
    for part in PARTS:
        changed[part] = []
        for container in _list(spec.get(part)):
            resources = _map(_map(container).get("resources"))
            limits, requests = _map(resources.get("limits")), _map(resources.get("requests"))
            asked = amounts(limits, sure=sure)
            if not asked:
                if names.WHOLE_GPU in limits:
                    warnings.append(f"container {container.get('name')}: {names.WHOLE_GPU} is left as it is: {PERHAPS_NVIDIAS}")
                changed[part].append(container)
                continue
            if why := unwritable({**requests, **limits}, notes):
                return pod, (f"container {container.get('name')}: {', '.join(asked)} is not written as a claim, nor is any share "
                             f"of this pod: {why}",)  # fmt: skip
            share = share_of(asked, notes)
            if not share.cores:
                warnings.append(f"container {container.get('name')}: {ALL_CORES}")
            name = _name(scope, str(container.get("name") or ""), share)
            shares[name] = share
            changed[part].append({**container, "resources": _by_claim(resources, name)})
    if not shares:
        return pod, tuple(warnings)
    claims = [one for one in _list(spec.get("resourceClaims")) if _map(one).get("name") not in shares]
    claims += [{"name": name, "resourceClaimTemplateName": name} for name in shares]
    scheduler = {"schedulerName": settings.scheduler_name} if of_hamis_scheduler else {}
    meta = _map(pod.get("metadata"))
    meta = {**meta, "labels": {**_map(meta.get("labels")), SHARE_CLAIMS: "true"},
            "annotations": {**notes, SHARE_CLAIMS: render(shares)}}  # fmt: skip
    parts = {part: containers for part, containers in changed.items() if containers}
    return {**pod, "metadata": meta, "spec": {**spec, **parts, "resourceClaims": claims, **scheduler}}, tuple(warnings)


def _says_hamis_words(spec: Json, notes: Json) -> bool:
    """Return whether a pod has a word that is HAMi's alone, and with it ``nvidia.com/gpu``."""
    limits = [_map(_map(_map(one).get("resources")).get("limits")) for part in PARTS for one in _list(spec.get(part))]
    words = [*notes, *(name for one in limits for name in one if name != names.WHOLE_GPU)]
    return any(word in hami_names.ANNOTATIONS or word in hami_names.RESOURCES for word in words)


def _by_claim(resources: Json, name: str) -> Json:
    """A container's resources with a claim in place of its share."""
    claims = [one for one in _list(resources.get("claims")) if _map(one).get("name") != name]
    return {**dict(_without_shares(resources)), "claims": [*claims, {"name": name}]}


def _without_shares(resources: Json) -> Iterator[tuple[str, Any]]:
    for key, value in resources.items():
        if key not in ("limits", "requests"):
            yield key, value
        elif rest := {name: amount for name, amount in _map(value).items() if name not in RESOURCES}:
            yield key, rest


def _name(scope: str, container: str, share: Share) -> str:
    """A name for a claim in the pod and for its template, at most 63 characters."""
    said = hashlib.sha256(f"{scope}\n{container}\n{render({'': share})}".encode()).hexdigest()[:16]
    return f"{container[:46].rstrip('-') or 'share'}-{said}"


def _map(value: Any) -> Json:
    """Return the mapping, or an empty one for null and other types: API validation, which comes later, refuses those."""
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
