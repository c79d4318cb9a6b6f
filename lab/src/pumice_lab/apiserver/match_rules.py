"""The scope of a webhook or a policy: rules by operation and resource, selectors of objects and namespaces.

Source: Kubernetes "Dynamic Admission Control", section "Matching requests"; policies say the same in ``matchConstraints``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pumice.wire.objects import selects
from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.rights import has
from pumice_lab.apiserver.strategies.expressions import GROUP

Json = dict[str, Any]


@dataclass(slots=True)
class Write:
    """One object's part of a request."""

    operation: str
    kind: Kind
    value: Json
    old: Json | None
    subresource: str
    dry_run: bool
    shown: Json | None = None
    """The object that is sent instead, where a subresource takes another kind (a Binding)."""

    @property
    def metadata(self) -> Json:
        found: Json = self.value["metadata"]
        return found

    @property
    def about(self) -> tuple[str, str, str]:
        """Return the key of an attempt, the same from one try to the next; a name that is made up does not."""
        metadata = self.metadata
        name = "" if self.operation == "CREATE" and metadata.get("generateName") else metadata.get("name", "")
        return self.operation, metadata.get("namespace", ""), name

    @property
    def replaced(self) -> str:
        return str((self.old or {}).get("metadata", {}).get("resourceVersion", ""))


def concerns(backend: Backend, asked: Json, rules: Iterable[Json], write: Write) -> bool:
    """``asked`` has the selectors: a webhook, or the ``matchConstraints`` of a policy. Nobody is asked about who is asked."""
    if write.kind.group == GROUP or not any(_covers(rule, write) for rule in rules):
        return False
    if any(_covers(rule, write) for rule in asked.get("excludeResourceRules") or ()):
        return False
    labels = [(value["metadata"].get("labels") or {}) for value in (write.value, write.old) if value is not None]
    selector = asked.get("objectSelector")
    if selector and not any(selects(selector, found) for found in labels):
        return False
    selector = asked.get("namespaceSelector")
    return not selector or _in_namespace(backend, selector, write)


def namespace_of(backend: Backend, write: Write) -> Json | None:
    if write.kind.id == ("", "Namespace"):
        return write.value
    return backend.read("v1/namespaces", "", write.metadata.get("namespace", "")) if write.kind.namespaced else None


def _in_namespace(backend: Backend, selector: Json, write: Write) -> bool:
    if write.kind.id != ("", "Namespace") and not write.kind.namespaced:
        return True
    found = namespace_of(backend, write)
    return found is not None and selects(selector, found["metadata"].get("labels") or {})


def _covers(rule: Json, write: Write) -> bool:
    kind = write.kind
    resource = f"{kind.plural}/{write.subresource}" if write.subresource else kind.plural
    resources = rule.get("resources") or ()
    named = resource in resources or "*/*" in resources or (not write.subresource and "*" in resources)
    named = named or (bool(write.subresource) and (f"*/{write.subresource}" in resources or f"{kind.plural}/*" in resources))
    scope, names = rule.get("scope", "*"), rule.get("resourceNames")
    return (
        named and has(rule, "operations", write.operation) and has(rule, "apiGroups", kind.group)
        and has(rule, "apiVersions", kind.version) and (scope == "*" or (scope == "Namespaced") == kind.namespaced)
        and (not names or write.metadata.get("name") in names)
    )  # fmt: skip
