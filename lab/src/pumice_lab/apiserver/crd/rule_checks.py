"""Validation of a definition's rules: they compile, name fields that the schema has, and end in time.

The cost of a rule is estimated as Kubernetes does: every loop as long as the schema or the size of a request lets it be
(what a step costs: cel-go, checker/cost.go). What strings cost by their length is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lark import Tree

from pumice.cel.checking import BOOL, DOUBLE, DYN, INT, LIST, STRING, Type, checked
from pumice.cel.evaluation import compiled
from pumice.cel.syntax import ALL_TOGETHER, parse
from pumice.cel.values import CelError
from pumice_lab.apiserver.crd.rules import NAMES, escaped
from pumice_lab.apiserver.errors import FieldProblem, invalid_value, required

Json = dict[str, Any]
REQUEST: Final = 3 << 20
"""Bytes of a request."""
RULE_COST: Final = 10_000_000
_ROOT: Final[Json] = {
    "apiVersion": {"type": "string"}, "kind": {"type": "string"},
    "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}},
}  # fmt: skip
_LEAST: Final = {"string": 2, "object": 2, "array": 2, "integer": 1, "number": 1, "boolean": 4}
"""Bytes of the smallest value, by type."""
_LITERALS: Final = frozenset(("uint", "float", "int", "bytes_", "string", "true", "false", "null"))
_ANY: Final[Json] = {}
_TYPES: Final = {"string": STRING, "integer": INT, "number": DOUBLE, "boolean": BOOL, "array": LIST}
_OTHERWISE_READ: Final = ("byte", "date", "date-time", "duration")
"""Formats of strings that rules see as something else."""


def bad_rules(raw: Any, path: str) -> list[FieldProblem]:
    """Of a whole schema."""
    if not isinstance(raw, dict):
        return []
    if (length := _length(raw)) > ALL_TOGETHER:
        why = f"the rules have {length} characters together; at most {ALL_TOGETHER} are read"
        return [FieldProblem("FieldValueForbidden", path, why)]
    return _bad_rules(raw, path, 1, root=True)


def _length(raw: Any) -> int:
    if isinstance(raw, list):
        return sum(map(_length, raw))
    if not isinstance(raw, dict):
        return 0
    own = sum(len(str(rule)) for rule in raw.get("x-kubernetes-validations") or ())
    return own + sum(_length(value) for key, value in raw.items() if key not in ("default", "enum", "example"))


def _bad_rules(schema: Json, path: str, times: int, *, root: bool = False) -> list[FieldProblem]:
    """``times``: how often the value may occur in a request."""
    problems = []
    for place, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        problems += _bad_rule(schema, rule, f"{path}.x-kubernetes-validations[{place}]", times, root=root)
    for key, inner in (schema.get("properties") or {}).items():
        problems += _bad_rules(inner, f"{path}.properties[{key}]", times)
    parts = [(f"{path}.{key}[{i}]", part) for key in ("allOf", "anyOf", "oneOf") for i, part in enumerate(schema.get(key) or ())]
    parts += [(f"{path}.not", schema["not"])] if schema.get("not") else []
    problems += [FieldProblem("FieldValueForbidden", f"{at}.x-kubernetes-validations", "must be empty to be structural")
                 for at, part in parts if _length(part)]  # fmt: skip
    for key in ("items", "additionalProperties"):
        inner = schema.get(key)
        if isinstance(inner, dict):
            problems += _bad_rules(inner, f"{path}.{key}", times * _longest(schema))
    return problems


def _bad_rule(schema: Json, rule: Json, path: str, times: int, *, root: bool) -> list[FieldProblem]:
    text = rule.get("rule") or ""
    if not text.strip():
        return [required(f"{path}.rule", "rule is not specified")]
    try:
        compiled(text, NAMES)
        itself = {**schema, "properties": {**(schema.get("properties") or {}), **_ROOT}} if root else schema
        cost = _Walk({"self": itself, "oldSelf": _ANY if rule.get("optionalOldSelf") else itself}).of(parse(text)).cost * times
        types = {"self": _type(itself), "oldSelf": DYN if rule.get("optionalOldSelf") else _type(itself)}
        found = checked(parse(text), types)
    except CelError as problem:
        return [invalid_value(f"{path}.rule", text, f"compilation failed: {problem}")]
    problems = []
    if found not in (BOOL, DYN):
        problems.append(invalid_value(f"{path}.rule", text, "cel expression must evaluate to a bool"))
    if cost > RULE_COST:
        more = "more than 100x" if cost > 100 * RULE_COST else f"{cost / RULE_COST:.1f}x"
        detail = (f"estimated rule cost exceeds budget by factor of {more} (try simplifying the rule, or adding maxItems, "
                  "maxProperties, and maxLength where arrays, maps, and strings are declared)")  # fmt: skip
        problems.append(FieldProblem("FieldValueForbidden", f"{path}.rule", detail))
    if rule.get("messageExpression"):
        try:
            compiled(rule["messageExpression"], NAMES)
        except CelError as problem:
            detail = f"messageExpression compilation failed: {problem}"
            problems.append(invalid_value(f"{path}.messageExpression", rule["messageExpression"], detail))
    return problems


def _type(schema: Json) -> Type:
    """As far as the schema leaves no choice."""
    properties = schema.get("properties")
    if schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields"):
        return DYN
    if properties and schema.get("type") == "object":
        return Type("object", {escaped(name): _type(inner) for name, inner in properties.items() if isinstance(inner, dict)})
    return DYN if schema.get("format") in _OTHERWISE_READ else _TYPES.get(schema.get("type", ""), DYN)


def _longest(schema: Json) -> int:
    """Elements of a list or map of this schema at most."""
    bound = schema.get("maxItems", schema.get("maxProperties"))
    inner = schema.get("items") if isinstance(schema.get("items"), dict) else schema.get("additionalProperties")
    least = _LEAST.get(inner.get("type", ""), 1) if isinstance(inner, dict) else 1
    most = REQUEST // (least + 1)
    return most if bound is None else max(0, min(bound, most))  # a negative bound is Kubernetes' to take, and makes nothing cheap


@dataclass(frozen=True, slots=True)
class _Seen:
    """The known facts of a value: its schema, where there is one, and what it costs to get it."""

    schema: Json
    cost: int


@dataclass(frozen=True, slots=True)
class _Walk:
    names: Json

    def of(self, node: Any) -> _Seen:
        if not isinstance(node, Tree):
            return _Seen(_ANY, 0)
        match node.data:
            case "name":
                return _Seen(self.names.get(str(node.children[0]), _ANY), 1)
            case "select" | "select_optional":
                inner = self.of(node.children[0])
                return _Seen(_property(inner.schema, str(node.children[1])), inner.cost + 1)
            case "index" | "index_optional":
                inner, key = self.of(node.children[0]), self.of(node.children[1])
                return _Seen(_element(inner.schema), inner.cost + key.cost + 1)
            case "method":
                return self._method(*node.children)
            case "conditional":
                condition, *branches = (self.of(child).cost for child in node.children)
                return _Seen(_ANY, condition + max(branches))
            case "or_" | "and_":
                return _Seen(_ANY, sum(self.of(child).cost for child in node.children))
            case "call" if str(node.children[0]) == "has":  # neither the call nor its selection costs anything
                return _Seen(_ANY, self.of(node.children[1].children[0]).cost - 1)
            case literal if literal in _LITERALS:
                return _Seen(_ANY, 0)
        return _Seen(_ANY, 1 + sum(self.of(child).cost for child in node.children))

    def _method(self, inner: Any, name: Any, arguments: Tree[Any]) -> _Seen:
        of, given = self.of(inner), arguments.children
        first = given[0] if given else None
        if len(given) < 2 or not isinstance(first, Tree) or first.data != "name":
            return _Seen(_ANY, of.cost + 1 + sum(self.of(part).cost for part in given))
        if name == "bind":
            value = self.of(given[1])
            body = _Walk({**self.names, str(first.children[0]): value.schema}).of(given[-1])
            return _Seen(body.schema, value.cost + body.cost)
        is_map = not isinstance(of.schema.get("items"), dict)
        variable = {"type": "string"} if is_map and of.schema.get("additionalProperties") else _element(of.schema)
        inside = _Walk({**self.names, str(first.children[0]): variable})
        cost = sum(inside.of(part).cost + 1 for part in given[1:])
        known = of.schema.get("items") or of.schema.get("additionalProperties")
        return _Seen(of.schema if name == "filter" else _ANY, of.cost + cost * (_longest(of.schema) if known else 1))


def _property(schema: Json, name: str) -> Json:
    """Raises CelError for a field that an object of this schema cannot have."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        values = schema.get("additionalProperties")
        return values if isinstance(values, dict) else _ANY
    for key, inner in properties.items():
        if escaped(key) == name:
            return inner if isinstance(inner, dict) else _ANY
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties") \
            or schema.get("x-kubernetes-embedded-resource"):
        return _ANY
    raise CelError(f"ERROR: <input>: undefined field '{name}'")


def _element(schema: Json) -> Json:
    items, values = schema.get("items"), schema.get("additionalProperties")
    return items if isinstance(items, dict) else values if isinstance(values, dict) else _ANY
