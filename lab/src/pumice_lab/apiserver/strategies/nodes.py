"""Rules of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.errors import FieldProblem, forbidden_value, invalid_value, unsupported
from pumice_lab.apiserver.strategies.base import Strategy
from pumice_lab.apiserver.strategies.podspec import EFFECTS

Json = dict[str, Any]


class NodeStrategy(Strategy):
    selectable = frozenset(("metadata.name", "spec.unschedulable"))

    def default(self, value: Json) -> None:
        value.setdefault("spec", {})
        status = value.get("status")
        if status is not None and status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def validate(self, value: Json) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        seen: set[tuple[str, str]] = set()
        for i, taint in enumerate(value["spec"].get("taints") or []):
            path = f"spec.taints[{i}]"
            if taint.get("effect") not in EFFECTS:
                problems.append(unsupported(f"{path}.effect", taint.get("effect", ""), EFFECTS))
            key = (taint.get("key", ""), taint.get("effect", ""))
            if key in seen:
                problems.append(
                    FieldProblem("FieldValueDuplicate", path, "taints must be unique by key and effect pair", taint)
                )
            seen.add(key)
        for field in ("capacity", "allocatable"):
            for name, text in ((value.get("status") or {}).get(field) or {}).items():
                if parse_quantity(text) < 0:
                    detail = "must be greater than or equal to 0"
                    problems.append(invalid_value(f"status.{field}[{name}]", str(text), detail))
        return problems

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        before = old["spec"].get("podCIDR")
        if before and value["spec"].get("podCIDR") != before:
            return [forbidden_value("spec.podCIDR", 'node updates may not change podCIDR except from "" to valid')]
        provider = old["spec"].get("providerID")
        if provider and value["spec"].get("providerID") != provider:
            return [
                forbidden_value("spec.providerID", 'node updates may not change providerID except from "" to valid')
            ]
        return []

    def fields(self, value: Json) -> Mapping[str, str]:
        return {"spec.unschedulable": "true" if value.get("spec", {}).get("unschedulable") else "false"}
