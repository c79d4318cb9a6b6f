"""Variables of an admission expression for one write: its objects, who asks, its namespace, and what he may do besides.

Source: Kubernetes "Validating Admission Policy", section "Validation expression", and "Authorizer".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pumice.cel.evaluation import compiled
from pumice.cel.running import ALL_STEPS, STEPS, Budget
from pumice.cel.values import CelError, Host
from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.http_types import User
from pumice_lab.apiserver.match_rules import Write, namespace_of
from pumice_lab.apiserver.rights import Act, Rights
from pumice_lab.apiserver.strategies.expressions import CONDITION_NAMES, NAMES

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Authorizer(Host):
    rights: Rights
    user: User
    act: Act = field(default_factory=lambda: Act(""))

    def asked(self, method: str, *given: Any) -> Any:
        match method, *given:
            case "check", str(verb):
                return Decision(self.rights.allows(self.user, replace(self.act, verb=verb)))
            case "serviceAccount", namespace, name:
                groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
                return Authorizer(self.rights, User(f"system:serviceaccount:{namespace}:{name}", groups=groups))
            case "subresource", str(word):
                return replace(self, act=replace(self.act, resource=f"{self.act.resource}/{word}"))
            case ("path" | "group" | "resource" | "namespace" | "name"), str(word):
                return replace(self, act=replace(self.act, **{method: word}))
        raise TypeError


@dataclass(frozen=True, slots=True)
class Decision(Host):
    allowed: bool

    def asked(self, method: str, *given: Any) -> Any:
        match method:
            case "allowed":
                return self.allowed
            case "errored":
                return False
            case "reason":
                return ""
        raise TypeError


@dataclass(slots=True)
class Question:
    """One write, as expressions see it, and what has been worked out for it."""

    backend: Backend
    rights: Rights
    user: User
    write: Write
    params: Any = None
    budget: Budget = field(default_factory=lambda: Budget(ALL_STEPS))
    _review: Json | None = None

    def run(self, text: str, names: frozenset[str] = NAMES, variables: Mapping[str, Callable[[], Any]] | None = None) -> Any:
        """Raises CelError."""
        given = min(STEPS, self.budget.left)
        budget = Budget(given)
        try:
            return compiled(text, names)(self._variables(variables or {}), budget)
        finally:
            self.budget.left = max(0, self.budget.left - (given - max(0, budget.left)))

    def holds(self, conditions: Any) -> bool:
        """Return True if all ``matchConditions`` hold. Raises CelError where none says no and one cannot be told."""
        problem: CelError | None = None
        for each in conditions or ():
            try:
                if self.run(each["expression"], CONDITION_NAMES) is not True:
                    return False
            except CelError as found:
                problem = problem or CelError(f"expression '{each['expression']}' resulted in error: {found}")
        if problem is not None:
            raise problem
        return True

    def _variables(self, variables: Mapping[str, Callable[[], Any]]) -> Json:
        write = self.write
        value = None if write.operation == "DELETE" else write.shown or write.value
        return {
            "object": value, "oldObject": write.old, "params": self.params, "variables": _Lazy(variables),
            "namespaceObject": lambda: namespace_of(self.backend, write), "request": self._request,
            "authorizer": Authorizer(self.rights, self.user),
        }  # fmt: skip

    def _request(self) -> Json:
        if self._review is None:
            self._review = review_of(self.write, self.user)
        return self._review


class _Lazy(dict[str, Any]):
    """A policy's variables: each is worked out when it is first asked for."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if callable(value):
            value = self[name] = value()
        return value


def review_of(write: Write, user: User) -> Json:
    """Return the request as webhooks and expressions see it (AdmissionRequest without the objects)."""
    kind, metadata = write.kind, write.metadata
    shown = write.shown
    group, _, version = (shown or {}).get("apiVersion", kind.api_version).rpartition("/")
    type_ = {"group": group, "version": version, "kind": shown["kind"] if shown else kind.kind}
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    found: Json = {
        "kind": type_, "resource": resource, "requestKind": type_, "requestResource": resource,
        "name": metadata.get("name", ""), "operation": write.operation, "dryRun": write.dry_run, "options": None,
        "userInfo": {"username": user.name, "uid": user.uid, "groups": list(user.groups),
                     "extra": {key: list(values) for key, values in user.extra.items()}},
    }  # fmt: skip
    if kind.namespaced:
        found["namespace"] = metadata["namespace"]
    if write.subresource:
        found["subResource"] = found["requestSubResource"] = write.subresource
    return found
