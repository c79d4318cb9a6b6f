"""Rules in CEL of a definition's schema (``x-kubernetes-validations``), run over an object and what it replaces.

Source: Kubernetes, "Extend the Kubernetes API with CustomResourceDefinitions", section "Validation rules".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from pumice.cel.evaluation import Program, compiled
from pumice.cel.running import ALL_STEPS, LONGEST_MESSAGE, STEPS, Budget, OverBudget
from pumice.cel.times import duration, timestamp
from pumice.cel.values import NOTHING, CelError, Optional
from pumice_lab.apiserver.errors import UNSAID, FieldProblem

Json = dict[str, Any]
MISSING: Final[Any] = object()
"""The old value where there was nothing, or nothing that it can be told to be."""
RUN: Final = 10
"""Cost of a run of a rule, besides that of the values that it reads."""
NAMES: Final = frozenset({"self", "oldSelf"})
_MENTIONS_OLD: Final = re.compile(r"\boldSelf\b")
_WORDS: Final = frozenset((
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
    "package", "namespace", "return", "var", "void", "while",
))  # fmt: skip
_ESCAPES: Final = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_REASONS: Final = {"FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate", "FieldValueInvalid"}
_OVER: Final = "validation failed due to running out of cost budget, no further validation rules will be run"


def escaped(name: str) -> str:
    """A property's name as rules write it."""
    if name in _WORDS:
        return f"__{name}__"
    for sign, word in _ESCAPES:
        name = name.replace(sign, word)
    return name


def of_schema(schema: Json, value: Any) -> Any:
    """A value as rules see it: numbers, times and bytes by the schema's type, properties by their escaped names."""
    if isinstance(value, dict):
        properties, values = schema.get("properties") or {}, schema.get("additionalProperties")
        rest = values if isinstance(values, dict) else {}
        return {escaped(key) if key in properties else key: of_schema(properties.get(key, rest), inner)
                for key, inner in value.items()}  # fmt: skip
    if isinstance(value, list):
        items = schema.get("items")
        return [of_schema(items if isinstance(items, dict) else {}, inner) for inner in value]
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if schema.get("type") == "string" and isinstance(value, str):
        try:
            return _FORMATS.get(schema.get("format", ""), str)(value)
        except CelError:
            return value
    return value


_FORMATS: Final[dict[str, Callable[[str], Any]]] = {"date-time": timestamp, "duration": duration, "byte": str.encode}


@dataclass(frozen=True, slots=True)
class RuleProblem(FieldProblem):
    """A violation of a validation rule. ``lasts``: it holds also for what an update leaves as it was; the rule looks at what
    was before, or nothing more is looked at."""

    lasts: bool = False

    def below(self, path: str, key: str) -> RuleProblem:
        """As rules name it: ``map[key].field``, where schemas say ``map.key.field``."""
        return replace(self, field=f"{path}[{key}]{self.field.removeprefix(f'{path}.{key}')}")


@dataclass(slots=True)
class RuleRun:
    """The rules of one request. Once its budget is spent, nothing more is looked at."""

    budget: int = ALL_STEPS
    over: bool = False

    def check(self, schema: Json, value: Any, old: Any, path: str) -> list[RuleProblem]:
        """Return the problems that the rules of this schema find in the value that replaces ``old``, or MISSING."""
        rules = [rule for rule in schema.get("x-kubernetes-validations") or () if rule.get("rule")]
        if not rules or self.over or (value is None and schema.get("nullable")):
            return []
        variables = {"self": of_schema(schema, value)}
        before = NOTHING if old is MISSING else Optional(True, of_schema(schema, old))
        problems = []
        for rule in rules:
            asks_old = _MENTIONS_OLD.search(rule["rule"]) is not None
            if asks_old and not rule.get("optionalOldSelf") and not before.there:
                continue
            variables["oldSelf"] = before if rule.get("optionalOldSelf") else before.value
            shown = UNSAID if isinstance(value, dict | list) else value
            problem = self._rule(rule, variables, shown, schema.get("type", "object"), path)
            if problem is None:
                continue
            problems.append(RuleProblem(problem.type, problem.field, problem.detail, problem.value, asks_old or self.over))
            if self.over:
                break
        return problems

    def _rule(self, rule: Json, variables: Json, shown: Any, type_: str, path: str) -> FieldProblem | None:
        try:
            if self._run(compiled(rule["rule"], NAMES), variables) is True:
                return None
        except OverBudget as problem:
            detail = f"'{problem}': no further validation rules will be run due to call cost exceeds limit for rule: "
            reported = _OVER if str(problem) == _OVER else detail + _message(rule)
            return FieldProblem("FieldValueInvalid", path, reported, type_)
        except CelError as problem:
            return FieldProblem("FieldValueInvalid", path, f"{problem} evaluating rule: {_message(rule)}", shown)
        detail = _message(rule)
        if rule.get("messageExpression"):
            try:
                said = self._run(compiled(rule["messageExpression"], NAMES), variables)
                fits = isinstance(said, str) and said.strip() and len(said) <= LONGEST_MESSAGE and "\n" not in said
                detail = said if fits else detail
            except CelError:
                pass  # the rule's message serves instead
        reason = rule.get("reason", "FieldValueInvalid")
        known = reason if reason in _REASONS else "FieldValueInvalid"
        return FieldProblem(known, path + rule.get("fieldPath", ""), detail, UNSAID if rule.get("fieldPath") else shown)

    def _run(self, program: Program, variables: Json) -> Any:
        budget = Budget(min(STEPS, max(0, self.budget - RUN)))
        whole = budget.left
        try:
            found = program(variables, budget)
        finally:
            self.budget -= RUN + whole - budget.left
            self.over = self.budget < 0
        if self.over:
            raise OverBudget(_OVER)
        return found


def _message(rule: Json) -> str:
    return (rule.get("message") or "").strip() or f"failed rule: {rule['rule'].strip()}"
