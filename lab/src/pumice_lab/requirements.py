"""LabelSelector and NodeSelectorRequirement objects against labels or fields (Kubernetes "Labels and Selectors")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def matches_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """matchLabels and matchExpressions together. None matches nothing, an empty selector everything."""
    if selector is None:
        return False
    pairs: Mapping[str, str] = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in pairs.items()):
        return False
    return all(matches_requirement(expression, labels) for expression in selector.get("matchExpressions") or ())


def matches_requirement(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One expression. Gt and Lt, which node affinity has, compare whole numbers; an unknown operator selects nothing."""
    key, operator = expression.get("key", ""), expression.get("operator")
    values: Sequence[str] = expression.get("values") or ()
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt":
            try:
                have, bound = int(labels[key]), int(values[0])
            except (KeyError, ValueError, IndexError):
                return False
            return have > bound if operator == "Gt" else have < bound
    return False
