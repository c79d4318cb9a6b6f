"""Kinds that hold admission expressions: what does not compile is not stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pumice.cluster.apiserver.errors import FieldProblem, invalid_value, required, unsupported
from pumice.cluster.apiserver.strategies.base import Strategy
from pumice.cluster.cel.evaluation import compiled
from pumice.cluster.cel.syntax import ALL_TOGETHER
from pumice.cluster.cel.values import CelError

Json = dict[str, Any]
GROUP: Final = "admissionregistration.k8s.io"
NAMES: Final = frozenset(("object", "oldObject", "request", "params", "namespaceObject", "variables", "authorizer"))
CONDITION_NAMES: Final = NAMES - {"params", "variables"}

ACTIONS: Final = ("Audit", "Deny", "Warn")
ABSENT_ACTIONS: Final = ("Allow", "Deny")
REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
PATCHES: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


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
        problems += _parts(spec)
        return problems + _bad_expressions([
            (f"spec.{path}", text, CONDITION_NAMES if path.startswith("matchConditions") else NAMES)
            for path, text in _expressions(spec)
        ], "spec")  # fmt: skip


class BindingStrategy(Strategy):
    counts_generation = True

    def __init__(self, *, validates: bool) -> None:
        self._validates = validates

    def validate(self, value: Json) -> list[FieldProblem]:
        spec, problems = value.get("spec") or {}, list[FieldProblem]()
        if not spec.get("policyName"):
            problems.append(required("spec.policyName"))
        if self._validates:
            actions = spec.get("validationActions") or []
            problems += [] if actions else [required("spec.validationActions", "at least one validation action is required")]
            problems += [unsupported("spec.validationActions", action, ACTIONS) for action in actions if action not in ACTIONS]
        reference = spec.get("paramRef")
        if reference is None:
            return problems
        path = "spec.paramRef"
        if bool(reference.get("name")) == ("selector" in reference):
            problems.append(required(path, "one of name or selector must be specified, and only one"))
        action = reference.get("parameterNotFoundAction")
        if not action:
            problems.append(required(f"{path}.parameterNotFoundAction"))
        elif action not in ABSENT_ACTIONS:
            problems.append(unsupported(f"{path}.parameterNotFoundAction", action, ABSENT_ACTIONS))
        return problems


class WebhookStrategy(Strategy):
    counts_generation = True

    def validate(self, value: Json) -> list[FieldProblem]:
        return _bad_expressions([
            (f"webhooks[{i}].matchConditions[{j}].expression", each.get("expression", ""), CONDITION_NAMES)
            for i, hook in enumerate(value.get("webhooks") or ()) for j, each in enumerate(hook.get("matchConditions") or ())
        ], "webhooks")  # fmt: skip


def _parts(spec: Json) -> list[FieldProblem]:
    """What a policy has to have besides its expressions."""
    problems = []
    if (about := spec.get("paramKind")) is not None:
        problems += [required(f"spec.paramKind.{key}") for key in ("apiVersion", "kind") if not about.get(key)]
    for place, each in enumerate(spec.get("validations") or ()):
        if each.get("reason", "Invalid") not in REASONS:
            problems.append(unsupported(f"spec.validations[{place}].reason", each["reason"], REASONS))
    for place, each in enumerate(spec.get("mutations") or ()):
        path, way = f"spec.mutations[{place}]", each.get("patchType", "")
        if not way:
            problems.append(required(f"{path}.patchType"))
        elif way not in PATCHES:
            problems.append(unsupported(f"{path}.patchType", way, tuple(PATCHES)))
        elif not each.get(PATCHES[way]):
            problems.append(required(f"{path}.{PATCHES[way]}", f"must be specified when patchType is {way}"))
    return problems


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
    (GROUP, "ValidatingAdmissionPolicyBinding"): BindingStrategy(validates=True),
    (GROUP, "MutatingAdmissionPolicyBinding"): BindingStrategy(validates=False),
    **{(GROUP, kind): WebhookStrategy() for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")},
}
