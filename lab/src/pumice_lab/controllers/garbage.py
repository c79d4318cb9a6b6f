"""Owner garbage collection: background, foreground, orphan (Kubernetes: "Garbage Collection"). Pure, over a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pumice.effects.object_cache import ObjectCache
from pumice.effects.vocabulary import Delete, Patch
from pumice.ports.cluster import Resource
from pumice_lab.controllers.common import Action

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


class Owner(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """An owner reference, as far as collection cares."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    block_owner_deletion: bool = False
    controller: bool = False


class Meta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] = []
    owner_references: list[Owner] = []


class Bare(msgspec.Struct, gc=False):
    """Any object, metadata only."""

    metadata: Meta = msgspec.field(default_factory=Meta)


@dataclass(slots=True)
class Vertex:
    """An object of a watched kind; ``whole`` where its kind is held in full."""

    resource: Resource
    metadata: Meta
    whole: dict[str, Any] | None = None

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


Graph = ObjectCache[Vertex]
"""Every object of the watched kinds, and who depends on whom."""


def affected_by(graph: Graph, meta: Meta) -> Iterable[str]:
    """Return the objects to look at when one changed or vanished: itself, its dependents, its owners."""
    return {meta.uid, *graph.owned(meta.uid), *(o.uid for o in meta.owner_references)}


def dependents(graph: Graph, uid: str) -> list[Vertex]:
    return [vertex for _, vertex in sorted(graph.owned(uid).items())]


def collect(vertex: Vertex, graph: Graph, absent: Mapping[str, bool]) -> list[Action]:
    """Return the actions due for one object. ``absent``: owner uid -> known for sure not to exist any more."""
    actions = _as_owner(vertex, graph) if vertex.deleting else []
    return actions or _as_dependent(vertex, graph, absent)


def _as_owner(vertex: Vertex, graph: Graph) -> list[Action]:
    finalizers = vertex.metadata.finalizers
    below = dependents(graph, vertex.metadata.uid)
    if ORPHAN in finalizers:
        if below:
            return [_without_owners(d, {vertex.metadata.uid}) for d in below]
        return [_without_finalizer(vertex, ORPHAN)]
    if FOREGROUND in finalizers:
        blocking = [d for d in below if any(o.uid == vertex.metadata.uid and o.block_owner_deletion
                                                 for o in d.metadata.owner_references)
                    and not (d.deleting and _leads_to(d, vertex.metadata.uid, graph))]
        if not blocking:
            return [_without_finalizer(vertex, FOREGROUND)]
        return [_delete(d, "Foreground") for d in below if not d.deleting]
    return []


def _leads_to(vertex: Vertex, uid: str, graph: Graph) -> bool:
    """Return True if ``uid`` is among the dependents of its own dependent: then each waits for the other, and nobody has to."""
    seen, left = {vertex.metadata.uid}, [vertex.metadata.uid]
    while left:
        below = graph.owned(left.pop()).keys()
        if uid in below:
            return True
        left.extend(below - seen)
        seen |= below
    return False


def _as_dependent(vertex: Vertex, graph: Graph, absent: Mapping[str, bool]) -> list[Action]:
    owners = vertex.metadata.owner_references
    if not owners or vertex.deleting:
        return []
    gone = {o.uid for o in owners if o.uid not in graph.objects and absent.get(o.uid, False)}
    if not gone:
        return []
    if len(gone) < len(owners):
        waiting = {o.uid for o in owners if (there := graph.objects.get(o.uid)) and there.deleting
                   and FOREGROUND in there.metadata.finalizers}
        if len(gone) + len(waiting) < len(owners):
            return [_without_owners(vertex, gone)]
        return [_delete(vertex, "Foreground")]
    return [_delete(vertex, "Orphan" if ORPHAN in vertex.metadata.finalizers else "Background")]


def _delete(vertex: Vertex, propagation: str) -> Delete:
    meta = vertex.metadata
    return Delete(vertex.resource, meta.namespace, meta.name, meta.uid, propagation)


def _without_owners(vertex: Vertex, uids: set[str]) -> Patch:
    left = [{"apiVersion": o.api_version, "kind": o.kind, "name": o.name, "uid": o.uid, "controller": o.controller,
             "blockOwnerDeletion": o.block_owner_deletion} for o in vertex.metadata.owner_references if o.uid not in uids]
    meta = vertex.metadata
    return Patch(vertex.resource, meta.namespace, meta.name, {"metadata": {"ownerReferences": left or None}}, meta.uid)


def _without_finalizer(vertex: Vertex, name: str) -> Patch:
    left = [f for f in vertex.metadata.finalizers if f != name]
    body = {"metadata": {"finalizers": left or None, "resourceVersion": vertex.metadata.resource_version}}
    return Patch(vertex.resource, vertex.metadata.namespace, vertex.metadata.name, body, vertex.metadata.uid)
