"""Delete objects of any kind, or begin to: grace, finalizers, what becomes of dependents, what the client saw before."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from pumice_lab.apiserver import admission
from pumice_lab.apiserver.errors import conflict, forbidden
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.write_options import WriteOptions

if TYPE_CHECKING:
    from pumice_lab.apiserver.objects import Objects

Json = dict[str, Any]


def delete(objects: Objects, kind: Kind, namespace: str, name: str, asked: Json, options: WriteOptions) -> tuple[Json, bool]:
    """Deletes, or begins to. ``asked`` is a DeleteOptions object. Returns the object and whether it is gone."""
    backend, storage = objects.backend, objects.storage
    stored = objects.stored(kind, namespace, name)
    value = stored.value()
    strategy, metadata = backend.strategy(kind), value["metadata"]
    _check_preconditions(kind, name, metadata, asked.get("preconditions") or {})
    admission.on_delete(kind, name)
    objects.mutated("DELETE", kind, value, value, options)
    objects.judged("DELETE", kind, value, value, options)
    before = copy.deepcopy(metadata)
    _note_propagation(kind, metadata, asked, orphans=strategy.orphans_by_default)
    if kind.id == ("batch", "Job") and not asked.keys() & {"propagationPolicy", "orphanDependents"}:
        options.warn(_KEPT)
    grace = strategy.grace(value, asked.get("gracePeriodSeconds"))
    holds = bool(metadata.get("finalizers")) or kind.id == ("", "Namespace")
    if metadata.get("deletionTimestamp"):
        left = metadata.get("deletionGracePeriodSeconds") or 0
        if grace >= left and (grace or holds):
            if metadata != before and not options.dry_run:
                storage.put(stored.resource, namespace, name, value, expect=stored.revision)
            return value, False
    if not grace and not holds:
        if not options.dry_run:
            storage.remove(stored.resource, namespace, name, value, expect=stored.revision)
        return value, True
    metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"] = backend.now(grace), grace
    if strategy.counts_generation:
        metadata["generation"] = metadata.get("generation", 0) + 1
    if kind.id == ("", "Namespace"):
        metadata.pop("deletionGracePeriodSeconds")
        value.setdefault("status", {})["phase"] = "Terminating"
    if has_ended(value):  # a namespace whose finalizers had left before
        if not options.dry_run:
            storage.remove(stored.resource, namespace, name, value, expect=stored.revision)
        return value, True
    if not options.dry_run:
        storage.put(stored.resource, namespace, name, value, expect=stored.revision)
    return value, False


def _check_preconditions(kind: Kind, name: str, metadata: Json, wanted: Json) -> None:
    for key, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(key) and wanted[key] != metadata.get(key):
            raise conflict(kind.group, kind.plural, name, f"Precondition failed: {word} in precondition: {wanted[key]}, "
                           f"{word} in object meta: {metadata.get(key)}")  # fmt: skip


_KEPT = ("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
         "propagationPolicy=Orphan to suppress this warning")  # fmt: skip


def _note_propagation(kind: Kind, metadata: Json, asked: Json, *, orphans: bool) -> None:
    """Write the fate of dependents down as a finalizer; the garbage collector acts on it."""
    policy = asked.get("propagationPolicy")
    if policy is None and asked.get("orphanDependents") is not None:
        policy = "Orphan" if asked["orphanDependents"] else "Background"
    decided = {"orphan", "foregroundDeletion"} & set(metadata.get("finalizers") or ())
    if policy is None and orphans and not decided:
        policy = "Orphan"
    if policy is None:
        return
    if policy not in ("Orphan", "Foreground", "Background"):
        raise forbidden(kind.group, kind.plural, metadata["name"], f"invalid propagationPolicy {policy!r}")
    finalizers = [f for f in metadata.get("finalizers") or [] if f not in ("orphan", "foregroundDeletion")]
    if policy != "Background":
        finalizers.append("orphan" if policy == "Orphan" else "foregroundDeletion")
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def has_ended(value: Json) -> bool:
    """An object whose deletion only waited for finalizers that are now gone."""
    metadata = value["metadata"]
    waiting = metadata.get("finalizers") or (value.get("kind") == "Namespace" and value.get("spec", {}).get("finalizers"))
    return bool(metadata.get("deletionTimestamp")) and not waiting and not metadata.get("deletionGracePeriodSeconds")
