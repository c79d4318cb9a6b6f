"""Kinds that hold admission expressions: what does not compile is not stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pumice.cel.checking import BOOL, DYN, INT, LIST, MAP, NULL, STRING, Type, checked, struct
from pumice.cel.evaluation import compiled
from pumice.cel.syntax import ALL_TOGETHER, parse
from pumice.cel.values import CelError
from pumice_lab.apiserver.errors import FieldProblem, duplicate, invalid_value, required, unsupported
from pumice_lab.apiserver.names import bad_qualified
from pumice_lab.apiserver.strategies.base import Strategy

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
        asked, defined = _expressions(spec), spec.get("variables") or ()
        texts = [each.get("expression", "") for each in defined] + [text for _, _, text in asked]
        if (problem := _too_long(texts, "spec")) is not None:
            return [*problems, problem]
        types, variables = {name: _TYPES.get(name, DYN) for name in NAMES - {"variables", "params"}}, dict[str, Type]()
        if spec.get("paramKind") is not None:
            types["params"] = DYN
        for place, each in enumerate(defined):
            found = _bad(each.get("expression", ""), f"spec.variables[{place}].expression", types)
            problems += found
            variables[each.get("name", "")] = DYN if found else checked(parse(each["expression"]), types)
            types = {**types, "variables": struct(**variables)}
        for path, key, text in asked:
            conditions = {name: _TYPES.get(name, DYN) for name in CONDITION_NAMES}
            problems += _bad(text, f"spec.{path}", conditions if path.startswith("matchConditions") else types, _WANTED.get(key))
        return problems


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
        asked = [
            (f"webhooks[{i}].matchConditions[{j}].expression", each.get("expression", ""))
            for i, hook in enumerate(value.get("webhooks") or ()) for j, each in enumerate(hook.get("matchConditions") or ())
        ]  # fmt: skip
        if (problem := _too_long([text for _, text in asked], "webhooks")) is not None:
            return [problem]
        types = {name: _TYPES.get(name, DYN) for name in CONDITION_NAMES}
        return [problem for path, text in asked for problem in _bad(text, path, types, (BOOL,))]


def _parts(spec: Json) -> list[FieldProblem]:
    """Validate what a policy must have besides its expressions."""
    problems = []
    if (about := spec.get("paramKind")) is not None:
        problems += [required(f"spec.paramKind.{key}") for key in ("apiVersion", "kind") if not about.get(key)]
    for place, each in enumerate(spec.get("validations") or ()):
        if each.get("reason", "Invalid") not in REASONS:
            problems.append(unsupported(f"spec.validations[{place}].reason", each["reason"], REASONS))
    seen: set[str] = set()
    for place, each in enumerate(spec.get("auditAnnotations") or ()):
        path, key = f"spec.auditAnnotations[{place}].key", each.get("key", "")
        if why := bad_qualified(key):
            problems.append(invalid_value(path, key, why) if key else required(path))
        elif key in seen:
            problems.append(duplicate(path, key))
        seen.add(key)
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
    "matchConditions": ("expression",), "validations": ("expression", "messageExpression"),
    "auditAnnotations": ("valueExpression",),
}  # fmt: skip
_WANTED: Final = {"expression": (BOOL,), "messageExpression": (STRING,), "valueExpression": (STRING, NULL)}
_KIND: Final = struct(group=STRING, version=STRING, kind=STRING)
_RESOURCE: Final = struct(group=STRING, version=STRING, resource=STRING)
_TYPES: Final = {
    "request": struct(
        kind=_KIND, resource=_RESOURCE, subResource=STRING, requestKind=_KIND, requestResource=_RESOURCE,
        requestSubResource=STRING, name=STRING, namespace=STRING, operation=STRING, dryRun=BOOL, options=DYN,
        userInfo=struct(username=STRING, uid=STRING, groups=LIST, extra=MAP)),
    "namespaceObject": struct(
        metadata=struct(name=STRING, generateName=STRING, namespace=STRING, labels=MAP, annotations=MAP, UID=STRING,
                        creationTimestamp=DYN, deletionGracePeriodSeconds=INT, deletionTimestamp=DYN, generation=INT,
                        resourceVersion=STRING, finalizers=LIST),
        spec=struct(finalizers=LIST), status=struct(phase=STRING)),
}  # fmt: skip
"""Of names that are always of one type (Kubernetes "Validating Admission Policy", and plugin/policy/validating of its source)."""


def _expressions(spec: Json) -> list[tuple[str, str, str]]:
    """(Path, whose expression it is, text), without those of variables."""
    found = []
    for name, keys in _LISTS.items():
        for place, each in enumerate(spec.get(name) or ()):
            found += [(f"{name}[{place}].{key}", key, each.get(key, "")) for key in keys if key == keys[0] or each.get(key)]
    for place, each in enumerate(spec.get("mutations") or ()):
        for way in ("applyConfiguration", "jsonPatch"):
            if each.get(way):
                found.append((f"mutations[{place}].{way}.expression", way, each[way].get("expression", "")))
    return found


def _too_long(expressions: Sequence[str], where: str) -> FieldProblem | None:
    """Of one object."""
    if (length := sum(map(len, expressions))) <= ALL_TOGETHER:
        return None
    why = f"the expressions have {length} characters together; at most {ALL_TOGETHER} are read"
    return FieldProblem("FieldValueForbidden", where, why)


def _bad(text: str, path: str, types: Mapping[str, Type], wanted: Sequence[Type] | None = None) -> list[FieldProblem]:
    """``types``: of the names that it may use; ``wanted``: of which it may be, where that is known."""
    if not text.strip():
        return [required(path)]
    try:
        compiled(text, frozenset(types))
        found = checked(parse(text), types)
    except CelError as problem:
        return [invalid_value(path, text, f"compilation failed: {problem}")]
    if wanted is None or found == DYN or found in wanted:
        return []
    names = [each.name for each in wanted]
    said = names[0] if len(names) == 1 else f"one of [{' '.join(names)}]"
    return [invalid_value(path, text, f"must evaluate to {said}")]


STRATEGIES: Final = {
    **{(GROUP, kind): PolicyStrategy() for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")},
    (GROUP, "ValidatingAdmissionPolicyBinding"): BindingStrategy(validates=True),
    (GROUP, "MutatingAdmissionPolicyBinding"): BindingStrategy(validates=False),
    **{(GROUP, kind): WebhookStrategy() for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")},
}
