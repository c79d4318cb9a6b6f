"""Kinds that hold admission expressions: what does not compile is not stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pumice.cluster.apiserver.errors import FieldProblem, invalid_value, required
from pumice.cluster.apiserver.strategies.base import Strategy
from pumice.cluster.cel.evaluation import compiled
from pumice.cluster.cel.syntax import ALL_TOGETHER
from pumice.cluster.cel.values import CelError

Json = dict[str, Any]
GROUP: Final = "admissionregistration.k8s.io"
NAMES: Final = frozenset(("object", "oldObject", "request", "params", "namespaceObject", "variables", "authorizer"))
CONDITION_NAMES: Final = NAMES - {"params", "variables"}


class PolicyStrategy(Strategy):
    counts_generation = True

    def default(self, value: Json) -> None:
        spec = value.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        about = spec.setdefault("matchConstraints", {})
        about.setdefault("matchPolicy", "Equivalent")
        for key in ("namespaceSelector", "objectSelector"):
            about.setdefault(key, {})
        for rule in about.get("resourceRules") or ():
            rule.setdefault("scope", "*")

    def validate(self, value: Json) -> list[FieldProblem]:
        spec, problems = value["spec"], list[FieldProblem]()
        validates = "validations" in spec or "mutations" not in spec
        if validates and not spec.get("validations") and not spec.get("auditAnnotations"):
            problems.append(required("spec.validations", "validations or auditAnnotations must contain at least one item"))
        return problems + _bad_expressions([
            (f"spec.{path}", text, CONDITION_NAMES if path.startswith("matchConditions") else NAMES)
            for path, text in _expressions(spec)
        ], "spec")  # fmt: skip


class WebhookStrategy(Strategy):
    counts_generation = True

    def validate(self, value: Json) -> list[FieldProblem]:
        return _bad_expressions([
            (f"webhooks[{i}].matchConditions[{j}].expression", each.get("expression", ""), CONDITION_NAMES)
            for i, hook in enumerate(value.get("webhooks") or ()) for j, each in enumerate(hook.get("matchConditions") or ())
        ], "webhooks")  # fmt: skip


_LISTS: Final = {
    "matchConditions": ("expression",), "variables": ("expression",), "validations": ("expression", "messageExpression"),
    "auditAnnotations": ("valueExpression",),
}  # fmt: skip


def _expressions(spec: Json) -> list[tuple[str, str]]:
    """(Path, text)."""
    found = []
    for name, keys in _LISTS.items():
        for place, each in enumerate(spec.get(name) or ()):
            found += [(f"{name}[{place}].{key}", each.get(key, "")) for key in keys if key == keys[0] or each.get(key)]
    for place, each in enumerate(spec.get("mutations") or ()):
        for way in ("applyConfiguration", "jsonPatch"):
            if each.get(way):
                found.append((f"mutations[{place}].{way}.expression", each[way].get("expression", "")))
    return found


def _bad_expressions(expressions: Sequence[tuple[str, str, frozenset[str]]], where: str) -> list[FieldProblem]:
    """Of one object: (path, text, names that it may use)."""
    if (length := sum(len(text) for _, text, _ in expressions)) > ALL_TOGETHER:
        why = f"the expressions have {length} characters together; at most {ALL_TOGETHER} are read"
        return [FieldProblem("FieldValueForbidden", where, why)]
    return [problem for path, text, names in expressions for problem in _bad(text, path, names)]


def _bad(text: str, path: str, names: frozenset[str]) -> list[FieldProblem]:
    if not text.strip():
        return [required(path)]
    try:
        compiled(text, names)
    except CelError as problem:
        return [invalid_value(path, text, f"compilation failed: {problem}")]
    return []


STRATEGIES: Final = {
    **{(GROUP, kind): PolicyStrategy() for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")},
    **{(GROUP, kind): WebhookStrategy() for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")},
}
