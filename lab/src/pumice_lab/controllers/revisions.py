"""ControllerRevisions: the templates that a workload had, so that it can go back to one, and hold some pods on it.

Source: Kubernetes "Controller Revisions" and pkg/controller/history of its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pumice.effects.vocabulary import Create, Delete, Patch
from pumice.ports.cluster import Resource
from pumice_lab.controllers.actions import Action, Json, View
from pumice_lab.controllers.common import is_deleting, owner_reference, template_hash

HASH = "controller-revision-hash"
REVISIONS = Resource("apps", "v1", "controllerrevisions")
_KEPT = 10


@dataclass(frozen=True, slots=True)
class Revisions:
    """``current``, ``update``: the names of the template that pods had so far, and of the one that they are to have.
    ``made``: the latter has yet to be written, by ``actions``."""

    current: str
    update: str
    made: bool
    actions: tuple[Action, ...]
    _templates: dict[str, Json] = field(default_factory=dict)

    def template(self, name: str) -> tuple[Json, str]:
        """And the name under which it is found: the newest, where that one is lost."""
        found = name if name in self._templates else self.update
        return self._templates[found], found


def revisions_of(owner: View, known: Sequence[View], kind: str) -> Revisions:
    """``known``: those that it owns. That of its template is made, or becomes the newest again; the oldest go."""
    meta, template = owner["metadata"], owner["spec"]["template"]
    living = sorted((each for each in known if not is_deleting(each)), key=lambda each: int(each.get("revision") or 0))
    name, last = f"{meta['name']}-{template_hash(template)}", int(living[-1].get("revision") or 0) if living else 0
    same = next((each for each in living if each["metadata"]["name"] == name), None)
    actions: list[Action] = []
    if same is None:
        actions.append(Create(REVISIONS, {
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": last + 1,
            "data": {"spec": {"template": {**template, "$patch": "replace"}}},
            "metadata": {"name": name, "namespace": meta["namespace"], "labels": _labels(owner, name),
                         "ownerReferences": [owner_reference(owner, "apps/v1", kind)]}}))  # fmt: skip
    elif int(same.get("revision") or 0) < last:  # back to one from before
        actions.append(Patch(REVISIONS, meta["namespace"], name, {"revision": last + 1}, same["metadata"]["uid"]))
    templates = {each["metadata"]["name"]: _template(each) for each in living} | {name: dict(template)}
    current = (owner.get("status") or {}).get("currentRevision") or name
    limit = owner["spec"].get("revisionHistoryLimit")
    idle = [each for each in living if each["metadata"]["name"] not in (name, current)]
    surplus = idle[: max(0, len(idle) - int(_KEPT if limit is None else limit))]
    actions += [Delete(REVISIONS, meta["namespace"], each["metadata"]["name"], each["metadata"]["uid"]) for each in surplus]
    return Revisions(current, name, same is None, tuple(actions), templates)


def _labels(owner: View, name: str) -> Json:
    return {**((owner["spec"]["template"].get("metadata") or {}).get("labels") or {}), HASH: name}


def _template(revision: View) -> Json:
    found = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in found.items() if key != "$patch"}
