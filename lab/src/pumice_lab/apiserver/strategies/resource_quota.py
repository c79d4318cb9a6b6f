"""Rules of ResourceQuotas (ValidateResourceQuota of pkg/apis/core/validation, and the names of pkg/apis/core/helper)."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.errors import FieldProblem, duplicate, forbidden_value, invalid_value, required
from pumice_lab.apiserver.names import bad_qualified
from pumice_lab.apiserver.strategies.base import Strategy, at
from pumice_lab.apiserver.strategies.resources import may_overcommit

Json = dict[str, Any]
Problems = list[FieldProblem]
_COMPUTE: Final = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))
_WHOLE: Final = frozenset(("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
                           "persistentvolumeclaims", "services.nodeports", "services.loadbalancers"))  # fmt: skip
_STANDARD: Final = _COMPUTE | _WHOLE | {"ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage",
                                        "requests.storage"}  # fmt: skip
_OF_SCOPE: Final = {
    **dict.fromkeys(("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"),
                    _COMPUTE | {"pods"}),
    "BestEffort": frozenset(("pods",)),
}  # fmt: skip
"""Resources that a scope can bound."""
_OPPOSITE: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))


class ResourceQuotaStrategy(Strategy):
    returns_deleted = True

    def default(self, value: Json) -> None:
        value.setdefault("spec", {})

    def validate(self, value: Json) -> Problems:
        spec, problems = value["spec"], Problems()
        hard = spec.get("hard") or {}
        for name, amount in hard.items():
            problems += _amount_problems(name, amount, f"spec.hard[{name}]")
        scopes = spec.get("scopes") or []
        problems += _scope_problems(scopes, hard, "spec.scopes", scopes)
        selected = at(spec, "scopeSelector.matchExpressions") or []
        for scope in selected:
            problems += _operator_problems(scope)
        names = [scope.get("scopeName", "") for scope in selected]
        return problems + _scope_problems(names, hard, "spec.scopeSelector.matchExpressions", spec.get("scopeSelector"))

    def validate_status(self, value: Json) -> Problems:
        status = value.get("status") or {}
        return [problem for part in ("hard", "used") for name, amount in (status.get(part) or {}).items()
                for problem in _amount_problems(name, amount, f"status.{part}[{name}]")]  # fmt: skip

    def validate_update(self, value: Json, old: Json) -> Problems:
        scopes = at(value, "spec.scopes") or []
        if set(scopes) == set(at(old, "spec.scopes") or []):
            return []
        return [invalid_value("spec.scopes", scopes, "field is immutable")]


def _amount_problems(name: str, amount: str, path: str) -> Problems:
    if why := bad_qualified(name):
        return [invalid_value(path, name, why)]
    if "/" not in name and name not in _STANDARD and not name.removeprefix("requests.").startswith("hugepages-"):
        return [invalid_value(path, name, "must be a standard resource for quota")]
    found = parse_quantity(amount)
    if found < 0:
        return [invalid_value(path, amount, "must be greater than or equal to 0")]
    if name in _WHOLE and found.denominator != 1:
        return [invalid_value(path, amount, "must be an integer")]
    return []


def _scope_problems(scopes: list[str], hard: Json, path: str, said: Any) -> Problems:
    problems: Problems = []
    for scope in scopes:
        if scope not in _OF_SCOPE:
            problems.append(invalid_value(path, said, "unsupported scope"))
            continue
        for name in sorted(hard):
            if name in _STANDARD and name not in _OF_SCOPE[scope]:
                problems.append(invalid_value(path, said, "unsupported scope applied to resource"))
    for pair in _OPPOSITE:
        if set(pair) <= set(scopes):
            problems.append(invalid_value(path, said, "conflicting scopes"))
    return problems


def _operator_problems(scope: Json) -> Problems:
    operator, path = scope.get("operator", ""), "spec.scopeSelector.matchExpressions"
    if operator in ("In", "NotIn"):
        if not scope.get("values"):
            why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            return [required(f"{path}.values", why)]
    elif operator not in ("Exists", "DoesNotExist"):
        return [invalid_value(f"{path}.operator", operator, "not a valid selector operator")]
    elif scope.get("values"):
        why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
        return [invalid_value(f"{path}.values", scope["values"], why)]
    if scope.get("scopeName") != "PriorityClass" and operator != "Exists":
        why = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, " \
              "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
        return [invalid_value(f"{path}.operator", operator, why)]
    return []


# -- Rules of LimitRanges (pkg/apis/core/v1/defaults.go, ValidateLimitRange of pkg/apis/core/validation) -------------

_ASCENDING = (("min", "min"), ("defaultRequest", "default request"), ("default", "default limit"), ("max", "max"))
"""Fields with their names in messages; none may be above one behind it."""


class LimitRangeStrategy(Strategy):
    def default(self, value: Json) -> None:
        """A bound that says no default is one."""
        for row in at(value, "spec.limits") or ():
            if row.get("type") == "Container":
                limits = (row.get("max") or {}) | (row.get("default") or {})
                requests = (row.get("min") or {}) | limits | (row.get("defaultRequest") or {})
                row |= {key: found for key, found in (("default", limits), ("defaultRequest", requests)) if found}

    def validate(self, value: Json) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        seen: set[str] = set()
        for i, row in enumerate(at(value, "spec.limits") or ()):
            path, kind = f"spec.limits[{i}]", row.get("type", "")
            if not kind:
                problems.append(required(f"{path}.type"))
            elif kind in seen:
                problems.append(duplicate(f"{path}.type", kind))
            seen.add(kind)
            problems += _row_problems(row, kind, path)
        return problems


def _row_problems(row: Json, kind: str, path: str) -> list[FieldProblem]:
    problems = [forbidden_value(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
                for field in ("default", "defaultRequest") if kind == "Pod" and row.get(field)]  # fmt: skip
    if kind == "PersistentVolumeClaim" and not any("storage" in (row.get(field) or {}) for field in ("min", "max")):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        problems.append(required(f"{path}.limits", detail))
    for (low, low_word), (high, high_word) in combinations(_ASCENDING, 2):
        above = row.get(high) or {}
        for name, amount in (row.get(low) or {}).items():
            if name in above and parse_quantity(amount) > parse_quantity(above[name]):
                detail = f"{low_word} value {amount} is greater than {high_word} value {above[name]}"
                problems.append(invalid_value(f"{path}.{low}[{name}]", amount, detail))
    for name, amount in (row.get("defaultRequest") or {}).items():
        other = (row.get("default") or {}).get(name, amount)
        if not may_overcommit(name) and parse_quantity(other) != parse_quantity(amount):
            detail = f"default value {other} must equal to defaultRequest value {amount} in {name}"
            problems.append(invalid_value(f"{path}.defaultRequest[{name}]", amount, detail))
    for name, ratio in (row.get("maxLimitRequestRatio") or {}).items():
        if parse_quantity(ratio) < 1:
            problems.append(invalid_value(f"{path}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1"))
    return problems
