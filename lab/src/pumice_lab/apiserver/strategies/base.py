"""The behaviour of a kind: defaults, what a create or update may set, what is valid, which fields can be selected on.

A strategy is pure: objects in, changes and problems out. Rules that look at other objects live in ``admission``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pumice_lab.apiserver.errors import FieldProblem, invalid_value, required
from pumice_lab.apiserver.names import bad_label_value, bad_qualified, bad_subdomain

Json = dict[str, Any]
Problems = list[FieldProblem]
ANNOTATIONS_LIMIT = 256 * 1024
_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")  # those without a domain


class Strategy:
    """The rules of most kinds; a kind with its own overrides what differs."""

    bad_name: Callable[[str], str] = staticmethod(bad_subdomain)
    counts_generation = False
    create_on_update = False
    unconditional_update = True
    returns_deleted = False
    selectable: frozenset[str] = frozenset(("metadata.name", "metadata.namespace"))
    orphans_by_default = False  # what it owns stays when it is deleted and nobody says what becomes of that
    any_finalizer = False  # also one without a domain that Kubernetes does not know

    def default(self, value: Json) -> None:
        """Fills in what the client left out."""

    def prepare_create(self, value: Json) -> None:
        """Drops or sets what a client may not choose."""

    def prepare_update(self, value: Json, old: Json) -> None:
        """Takes from ``old`` what this update may not change."""

    def prepare_status_update(self, value: Json, old: Json) -> None:
        """As above, for the status subresource; everything outside of status and metadata has been taken from ``old``."""

    def validate(self, value: Json) -> Problems:
        return []

    def validate_create(self, value: Json) -> Problems:
        """Of what only an update may bring."""
        return []

    def validate_update(self, value: Json, old: Json) -> Problems:
        return []

    def validate_guests(self, value: Json, old: Json) -> Problems:
        """Of the ephemeral containers that an update brings."""
        return []

    def validate_status(self, value: Json) -> Problems:
        """After a write that could touch only status and metadata."""
        return self.validate(value)

    def validate_again(self, value: Json, old: Json, *, narrow: bool) -> Problems:
        """Of what replaces ``old``; ``narrow``: by a write that could touch only status and metadata."""
        return self.validate_status(value) if narrow else self.validate(value)

    def fields(self, value: Json) -> Mapping[str, str]:
        """Selectable fields beyond name and namespace."""
        return {}

    def grace(self, value: Json, asked: int | None) -> int:
        """Seconds between the request to delete and the removal; 0 removes at once."""
        return 0


def validate_metadata(metadata: Json, namespaced: bool, strategy: Strategy) -> Problems:
    """Names, labels, annotations, finalizers and owners of any object."""
    problems: Problems = []
    name = metadata.get("name", "")
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    elif why := strategy.bad_name(name):
        problems.append(invalid_value("metadata.name", name, why))
    if not namespaced and metadata.get("namespace"):
        problems.append(FieldProblem("FieldValueForbidden", "metadata.namespace", "not allowed on this type"))
    problems += validate_labels(metadata.get("labels") or {}, "metadata.labels")
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        size += len(key) + len(value)
        if why := bad_qualified(key.lower()):
            problems.append(invalid_value("metadata.annotations", key, why))
    if size > ANNOTATIONS_LIMIT:
        detail = f"may not be more than {ANNOTATIONS_LIMIT} bytes"
        problems.append(FieldProblem("FieldValueTooLong", "metadata.annotations", detail, ""))
    for i, finalizer in enumerate(metadata.get("finalizers") or []):
        if why := bad_qualified(finalizer):
            problems.append(invalid_value("metadata.finalizers", finalizer, why))
        if "/" not in finalizer and finalizer not in _FINALIZERS and not strategy.any_finalizer:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            problems.append(invalid_value(f"metadata.finalizers[{i}]", finalizer, detail))
    problems += _owners(metadata.get("ownerReferences") or [])
    return problems


def validate_labels(labels: Mapping[str, str], path: str) -> Problems:
    problems: Problems = []
    for key, value in labels.items():
        if why := bad_qualified(key):
            problems.append(invalid_value(path, key, why))
        if why := bad_label_value(value):
            problems.append(invalid_value(path, value, why))
    return problems


def _owners(owners: list[Json]) -> Problems:
    problems: Problems = []
    for i, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{i}]"
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                problems.append(invalid_value(f"{path}.{key}", "", "must not be empty"))
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        detail = (
            f'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0].get('kind')}/{controllers[0].get('name')} and "
            f"{controllers[1].get('kind')}/{controllers[1].get('name')}"
        )
        problems.append(invalid_value("metadata.ownerReferences", "", detail))
    return problems


def validate_metadata_update(metadata: Json, old: Json) -> Problems:
    """Validate the fields that an update may never change."""
    problems = [
        invalid_value(f"metadata.{key}", metadata.get(key), "field is immutable")
        for key in ("name", "namespace", "uid", "creationTimestamp")
        if metadata.get(key) != old.get(key)
    ]
    if old.get("deletionTimestamp"):
        before = set(old.get("finalizers") or [])
        new = [f for f in metadata.get("finalizers") or [] if f not in before]
        if new:
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {new!r}"
            problems.append(FieldProblem("FieldValueForbidden", "metadata.finalizers", detail))
    return problems


def at(value: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path, or the default."""
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return default
        value = value[key]
    return value
