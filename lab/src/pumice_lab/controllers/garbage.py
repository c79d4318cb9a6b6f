"""Owner garbage collection: background, foreground, orphan (Kubernetes: "Garbage Collection"). Pure, over a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from pumice.effects.vocabulary import Delete, Patch
from pumice.ports.cluster import Resource
from pumice_lab.controllers.actions import Action

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
    resource: Resource
    meta: Meta

    @property
    def deleting(self) -> bool:
        return self.meta.deletion_timestamp is not None


@dataclass(slots=True)
class Graph:
    """Every object of the watched kinds, by uid, and who depends on whom."""

    vertices: dict[str, Vertex] = field(default_factory=dict)
    dependents: dict[str, set[str]] = field(default_factory=dict)

    def put(self, resource: Resource, meta: Meta) -> None:
        before = self.vertices.get(meta.uid)
        if before is not None and before.meta.owner_references != meta.owner_references:
            self._unlink(before)
        self.vertices[meta.uid] = Vertex(resource, meta)
        for owner in meta.owner_references:
            self.dependents.setdefault(owner.uid, set()).add(meta.uid)

    def drop(self, uid: str) -> None:
        before = self.vertices.pop(uid, None)
        if before is not None:
            self._unlink(before)

    def _unlink(self, vertex: Vertex) -> None:
        for owner in vertex.meta.owner_references:
            there = self.dependents.get(owner.uid)
            if there is not None:
                there.discard(vertex.meta.uid)
                if not there:
                    del self.dependents[owner.uid]

    def of(self, uid: str) -> list[Vertex]:
        return [self.vertices[d] for d in sorted(self.dependents.get(uid, ())) if d in self.vertices]

    def affected_by(self, meta: Meta) -> Iterable[str]:
        """Return the objects to look at when one changed or vanished: itself, its dependents, its owners."""
        return {meta.uid, *self.dependents.get(meta.uid, ()), *(o.uid for o in meta.owner_references)}


def collect(vertex: Vertex, graph: Graph, absent: Mapping[str, bool]) -> list[Action]:
    """Return the actions due for one object. ``absent``: owner uid -> known for sure not to exist any more."""
    actions = _as_owner(vertex, graph) if vertex.deleting else []
    return actions or _as_dependent(vertex, graph, absent)


def _as_owner(vertex: Vertex, graph: Graph) -> list[Action]:
    finalizers = vertex.meta.finalizers
    dependents = graph.of(vertex.meta.uid)
    if ORPHAN in finalizers:
        if dependents:
            return [_without_owners(d, {vertex.meta.uid}) for d in dependents]
        return [_without_finalizer(vertex, ORPHAN)]
    if FOREGROUND in finalizers:
        blocking = [d for d in dependents if any(o.uid == vertex.meta.uid and o.block_owner_deletion
                                                 for o in d.meta.owner_references)
                    and not (d.deleting and _leads_to(d, vertex.meta.uid, graph))]
        if not blocking:
            return [_without_finalizer(vertex, FOREGROUND)]
        return [_delete(d, "Foreground") for d in dependents if not d.deleting]
    return []


def _leads_to(vertex: Vertex, uid: str, graph: Graph) -> bool:
    """Return True if ``uid`` is among the dependents of its own dependent: then each waits for the other, and nobody has to."""
    seen, left = {vertex.meta.uid}, [vertex.meta.uid]
    while left:
        below = graph.dependents.get(left.pop(), set())
        if uid in below:
            return True
        left.extend(below - seen)
        seen |= below
    return False


def _as_dependent(vertex: Vertex, graph: Graph, absent: Mapping[str, bool]) -> list[Action]:
    owners = vertex.meta.owner_references
    if not owners or vertex.deleting:
        return []
    gone = {o.uid for o in owners if o.uid not in graph.vertices and absent.get(o.uid, False)}
    if not gone:
        return []
    if len(gone) < len(owners):
        waiting = {o.uid for o in owners if (there := graph.vertices.get(o.uid)) and there.deleting
                   and FOREGROUND in there.meta.finalizers}
        if len(gone) + len(waiting) < len(owners):
            return [_without_owners(vertex, gone)]
        return [_delete(vertex, "Foreground")]
    return [_delete(vertex, "Orphan" if ORPHAN in vertex.meta.finalizers else "Background")]


def _delete(vertex: Vertex, propagation: str) -> Delete:
    meta = vertex.meta
    return Delete(vertex.resource, meta.namespace, meta.name, meta.uid, propagation)


def _without_owners(vertex: Vertex, uids: set[str]) -> Patch:
    left = [{"apiVersion": o.api_version, "kind": o.kind, "name": o.name, "uid": o.uid, "controller": o.controller,
             "blockOwnerDeletion": o.block_owner_deletion} for o in vertex.meta.owner_references if o.uid not in uids]
    return Patch(vertex.resource, vertex.meta.namespace, vertex.meta.name, {"metadata": {"ownerReferences": left or None}},
                 vertex.meta.uid)


def _without_finalizer(vertex: Vertex, name: str) -> Patch:
    left = [f for f in vertex.meta.finalizers if f != name]
    body = {"metadata": {"finalizers": left or None, "resourceVersion": vertex.meta.resource_version}}
    return Patch(vertex.resource, vertex.meta.namespace, vertex.meta.name, body, vertex.meta.uid)
