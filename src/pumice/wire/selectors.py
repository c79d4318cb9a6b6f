"""Label selectors of Kubernetes: of pods (matchLabels, matchExpressions) and of nodes (nodeSelector, node affinity).

Parsed once into requirements, matched one set of labels at a time. Rules: kubernetes.io docs "Labels and Selectors" and
"Assigning Pods to Nodes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAME_FIELD = "metadata.name"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression; ``field`` tells a matchFields entry from a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    field: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.accepts(labels.get(self.key))

    def accepts(self, value: str | None) -> bool:
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False  # an unknown operator selects nothing

    def _compares(self, value: str | None) -> bool:
        try:
            left, right = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return left > right if self.operator == "Gt" else left < right


Requirements = tuple[Requirement, ...]


def parse_label_selector(selector: Any) -> Requirements | None:
    """A LabelSelector of pods. None matches nothing (the selector is absent), an empty one matches everything."""
    if not isinstance(selector, Mapping):
        return None
    found = [Requirement(str(k), "In", (str(v),)) for k, v in sorted((selector.get("matchLabels") or {}).items())]
    found += [_requirement(e) for e in selector.get("matchExpressions") or () if isinstance(e, Mapping)]
    return tuple(found)


def parse_node_term(term: Any) -> Requirements | None:
    """One NodeSelectorTerm; an empty or absent term matches no node."""
    if not isinstance(term, Mapping):
        return None
    found = [_requirement(e) for e in term.get("matchExpressions") or () if isinstance(e, Mapping)]
    found += [_requirement(e, field=True) for e in term.get("matchFields") or () if isinstance(e, Mapping)]
    return tuple(found) or None


def match_all(requirements: Requirements | None, labels: Mapping[str, str]) -> bool:
    return requirements is not None and all(r.matches(labels) for r in requirements)


def _requirement(expression: Mapping[str, Any], *, field: bool = False) -> Requirement:
    values = expression.get("values") or ()
    return Requirement(str(expression.get("key", "")), str(expression.get("operator", "")),
                       tuple(str(v) for v in values), field)  # fmt: skip
