"""Adoption and release: what a controller selects and nobody owns becomes its own, what it no longer selects is let go.

Source: Kubernetes, pkg/controller/controller_ref_manager.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pumice.effects.vocabulary import Patch
from pumice.ports.cluster import Resource
from pumice_lab.controllers.actions import Action, Json, View
from pumice_lab.controllers.common import controller_of, is_deleting, owned_by
from pumice_lab.requirements import matches_selector


def claimed(owner: View, reference: Json, selector: Json, resource: Resource, objects: Iterable[View],
            living: Callable[[View], bool] = lambda obj: not is_deleting(obj)) -> tuple[list[Action], list[View]]:  # fmt: skip
    """Return what is to be written, and those that are its own. Only what is ``living`` is adopted or let go."""
    actions: list[Action] = []
    own: list[View] = []
    uid = owner["metadata"]["uid"]
    for obj in objects:
        matches = matches_selector(selector, obj["metadata"].get("labels") or {})
        if owned_by(obj, uid) and (matches or not living(obj)):
            own.append(obj)
        elif owned_by(obj, uid):
            actions.append(_owned(resource, obj, [o for o in obj["metadata"]["ownerReferences"] if o["uid"] != uid]))
        elif matches and controller_of(obj) is None and living(obj) and not is_deleting(owner):
            actions.append(_owned(resource, obj, [*(obj["metadata"].get("ownerReferences") or ()), reference]))
            own.append(obj)
    return actions, own


def _owned(resource: Resource, obj: View, owners: list[Json]) -> Patch:
    meta = obj["metadata"]
    return Patch(resource, meta["namespace"], meta["name"], {"metadata": {"ownerReferences": owners or None}}, meta["uid"])
