"""Rules of LimitRanges (pkg/apis/core/v1/defaults.go, ValidateLimitRange of pkg/apis/core/validation)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.errors import FieldProblem, duplicate, forbidden_value, invalid_value, required
from pumice_lab.apiserver.strategies.base import Strategy, at
from pumice_lab.apiserver.strategies.resources import may_overcommit

Json = dict[str, Any]
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
