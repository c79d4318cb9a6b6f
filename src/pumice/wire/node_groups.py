"""Which groups of nodes a queue may and would rather use: ``spec.affinity`` and an annotation of a Queue. A node's group is its
label (docs/reference/topology.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pumice.wire.quantity import parse_quantity
from pumice.wire.volcano import Queue

NODE_GROUP: Final = "volcano.sh/nodegroup-name"
LIMITS: Final = "volcano.sh/nodegroup-resource-limits"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class NodeGroups:
    """``limits``: per group and resource how much the queue may hold there, as it is written."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    anti_required: tuple[str, ...] = ()
    anti_preferred: tuple[str, ...] = ()
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: str = ""
    """Why the annotation cannot be read."""

    @property
    def chosen(self) -> bool:
        """True if it says anything of groups."""
        return bool(self.required or self.preferred or self.anti_required or self.anti_preferred)


NO_GROUPS: Final = NodeGroups()


def node_groups_of(queue: Queue) -> NodeGroups:
    affinity, text = queue.spec.affinity, queue.metadata.annotations.get(LIMITS, "")
    if not affinity and not text:
        return NO_GROUPS
    with_, without = affinity.get("nodeGroupAffinity"), affinity.get("nodeGroupAntiAffinity")
    limits, problem = _limits(text)
    return NodeGroups(
        _names(with_, REQUIRED), _names(with_, PREFERRED), _names(without, REQUIRED), _names(without, PREFERRED), limits, problem
    )


def _limits(text: str) -> tuple[Mapping[str, Mapping[str, Any]], str]:
    try:
        found = json.loads(text) if text else {}
    except ValueError as error:
        return {}, f"annotation {LIMITS} is no JSON: {error}"
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.values()):
        return {}, f"annotation {LIMITS} does not name a resource list for each group"
    amounts = [amount for part in found.values() for amount in part.values()]
    wrong = next((amount for amount in amounts if not _is_quantity(amount)), None)
    return ({}, f"annotation {LIMITS}: {wrong!r} is no quantity") if wrong is not None else (found, "")


def _is_quantity(value: Any) -> bool:
    try:
        return isinstance(value, str | int | float) and parse_quantity(value) >= 0
    except ValueError:
        return False


def _names(rules: Any, key: str) -> tuple[str, ...]:
    named = rules.get(key) if isinstance(rules, dict) else None
    return tuple(dict.fromkeys(str(name) for name in named)) if isinstance(named, list) else ()
