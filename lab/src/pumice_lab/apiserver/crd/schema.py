"""Structural schemas of CRDs: pruning (as a Shape), defaults, validation.

Rules: Kubernetes "Extend the Kubernetes API with CustomResourceDefinitions"; those in CEL are run beside the others (``rules``).
What an update leaves as it was is not held against it ("Validation ratcheting"), unless a rule looks at what was before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from pumice.cel.strings import SEARCHES, pattern_of, search_cost
from pumice_lab.apiserver.bodies import NODES_LIMIT, encode, nodes_of
from pumice_lab.apiserver.crd.rules import MISSING, RuleProblem, RuleRun
from pumice_lab.apiserver.errors import FieldProblem, duplicate, invalid_value, required, too_large, unsupported
from pumice_lab.apiserver.resource_store import OBJECT_LIMIT
from pumice_lab.apiserver.schema.shape import ANY, Shape, Types

Json = dict[str, Any]
Problems = list[FieldProblem]

ENOUGH = 100
"""Problems after which the other elements of a list or map are not looked at: each is told with all words that would do."""
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def shape_of(raw: Json, types: Types) -> Shape:
    """Return the rules by which objects of this schema are pruned and merged. Types are left to the validation, which names
    each problem."""
    own = {
        "apiVersion": types.named("string"),
        "kind": types.named("string"),
        "metadata": types.named("meta.v1.ObjectMeta"),
    }
    properties = {key: _shape(value) for key, value in (raw.get("properties") or {}).items()}
    keeps = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
    return Shape("struct", fields=lambda: {**properties, **own}, open=keeps, lenient=True)


def _shape(raw: Json) -> Shape:
    if raw.get("x-kubernetes-int-or-string") or raw.get("type") not in ("object", "array"):
        return ANY
    if raw["type"] == "array":
        marks: tuple[str, ...] = (raw.get("x-kubernetes-list-type", "atomic"),)
        if marks == ("map",):
            marks = ("map=" + ",".join(raw.get("x-kubernetes-list-map-keys") or ()),)
        return Shape("list", items=_shape(raw.get("items") or {}), marks=marks, lenient=True)
    values = raw.get("additionalProperties")
    atomic = ("atomic",) if raw.get("x-kubernetes-map-type") == "atomic" else ()
    if isinstance(values, dict) and not raw.get("properties"):
        return Shape("map", items=_shape(values), marks=atomic, lenient=True)
    if values is True:
        return ANY
    properties = {key: _shape(value) for key, value in (raw.get("properties") or {}).items()}
    if raw.get("x-kubernetes-embedded-resource"):
        properties |= {key: properties.get(key, ANY) for key in ("apiVersion", "kind", "metadata")}
    keeps = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
    return Shape("struct", fields=lambda: properties, open=keeps, marks=atomic, lenient=True)


class Schema:
    """One version's schema."""

    def __init__(self, raw: Json) -> None:
        self.raw = raw

    def default(self, value: Json) -> None:
        """Raises RequestEntityTooLarge where defaults of many elements would make it larger than any object may be."""
        _Defaults().fill(self.raw, value)

    def validate(self, value: Json, old: Json | None = None) -> Problems:
        """Return the problems of an object that replaces ``old``, where it does."""
        check, problems = _Validation(), Problems()
        for key, schema in (self.raw.get("properties") or {}).items():
            if key not in ("apiVersion", "kind", "metadata") and key in value:
                problems += check.of(schema, value[key], MISSING if old is None else old.get(key, MISSING), key)
        problems += [required(key) for key in self.raw.get("required") or () if key not in value]
        return problems + check.rules.check(self.raw, value, MISSING if old is None else old, "")


class _Validation:
    """Of one object; ``old`` is what a value replaces, MISSING where that cannot be told."""

    def __init__(self, rules: RuleRun | None = None) -> None:
        self.rules, self.searches = rules or RuleRun(), SEARCHES

    def of(self, schema: Json, value: Any, old: Any, path: str) -> Problems:
        problems = self._check(schema, value, old, path)
        unchanged = bool(problems) and old is not MISSING and value == old
        return [p for p in problems if isinstance(p, RuleProblem) and p.lasts] if unchanged else problems

    def _check(self, schema: Json, value: Any, old: Any, path: str) -> Problems:
        if value is None and schema.get("nullable"):
            return []
        if problem := _wrong_type(schema, value, path):
            return [problem]
        problems = _scalar_problems(schema, value, path, self._fits)
        if isinstance(value, dict):
            problems += self._object(schema, value, old if isinstance(old, dict) else {}, path)
        elif isinstance(value, list):
            problems += self._array(schema, value, old, path)
        problems += self._combined(schema, value, old, path)
        return problems + self.rules.check(schema, value, old, path)

    def _fits(self, pattern: str, value: str) -> bool:
        """Raises ApiFailure where the patterns of a request would cost too much."""
        try:
            found = pattern_of(pattern)
        except ValueError:
            return True  # stored when such a pattern still passed: what it means is not known
        self.searches -= search_cost(found, value)
        if self.searches < 0:
            raise too_large(f"to try the pattern '{pattern[:100]}' and others on so long texts takes too long")
        return bool(found.search(value))

    def _object(self, schema: Json, value: Json, old: Json, path: str) -> Problems:
        problems: Problems = []
        properties = schema.get("properties") or {}
        values = schema.get("additionalProperties")
        for key, inner in value.items():
            child = properties.get(key, values if isinstance(values, dict) else None)
            if child is not None:
                found = self.of(child, inner, old.get(key, MISSING), f"{path}.{key}")
                problems += found if key in properties else [
                    p.below(path, key) if isinstance(p, RuleProblem) else p for p in found]  # fmt: skip
                if len(problems) > ENOUGH:
                    return problems
        problems += [required(f"{path}.{key}") for key in schema.get("required") or () if key not in value]
        low, high = schema.get("minProperties"), schema.get("maxProperties")
        if low is not None and len(value) < low:
            problems.append(invalid_value(path, len(value), f"{path} in body should have at least {low} properties"))
        if high is not None and len(value) > high:
            detail = f"must have at most {high} items"
            problems.append(FieldProblem("FieldValueTooMany", path, detail, len(value)))
        return problems

    def _array(self, schema: Json, value: list[Any], old: Any, path: str) -> Problems:
        problems: Problems = []
        items = schema.get("items")
        if isinstance(items, dict):
            before = _by_keys(schema, old)
            for i, inner in enumerate(value):
                problems += self.of(items, inner, before.get(_keys(schema, inner), MISSING), f"{path}[{i}]")
                if len(problems) > ENOUGH:
                    return problems
        low, high = schema.get("minItems"), schema.get("maxItems")
        if low is not None and len(value) < low:
            problems.append(invalid_value(path, len(value), f"{path} in body should have at least {low} items"))
        if high is not None and len(value) > high:
            problems.append(FieldProblem("FieldValueTooMany", path, f"must have at most {high} items", len(value)))
        match schema.get("x-kubernetes-list-type"):
            case "set":
                keys = [repr(inner) for inner in value]
            case "map":
                keys = [_keys(schema, inner) for inner in value]
            case _:
                return problems
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        problems += [duplicate(f"{path}[{i}]", value[i]) for i, key in enumerate(keys) if first[key] != i]
        return problems

    def _combined(self, schema: Json, value: Any, old: Any, path: str) -> Problems:
        problems: Problems = []
        for part in schema.get("allOf") or ():
            problems += self._check(part, value, old, path)
        if schema.get("x-kubernetes-int-or-string"):
            return problems  # its anyOf only repeats that
        if schema.get("anyOf") and all(self._check(part, value, old, path) for part in schema["anyOf"]):
            problems.append(invalid_value(path, value, f"{path} in body must validate at least one schema (anyOf)"))
        if schema.get("oneOf"):
            fitting = sum(not self._check(part, value, old, path) for part in schema["oneOf"])
            if fitting != 1:
                detail = (
                    f"{path} in body must validate one and only one schema (oneOf). Found {fitting or 'none'} valid"
                )
                problems.append(invalid_value(path, value, detail))
        if schema.get("not") and not self._check(schema["not"], value, old, path):
            problems.append(invalid_value(path, value, f"{path} in body must not validate the schema (not)"))
        return problems


def _keys(schema: Json, value: Any) -> str:
    """Return the key of an element of a list of type map; empty where there is no such thing."""
    names = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(value, dict):
        return ""
    return repr([value.get(name) for name in names])


def _by_keys(schema: Json, old: Any) -> dict[str, Any]:
    found = {_keys(schema, value): value for value in old} if isinstance(old, list) else {}
    found.pop("", None)
    return found


class _Defaults:
    """Fills in what one object leaves out, as long as it may grow."""

    def __init__(self) -> None:
        self.nodes, self.bytes = NODES_LIMIT, OBJECT_LIMIT

    def fill(self, schema: Json, value: Any) -> None:
        if isinstance(value, dict):
            properties = schema.get("properties") or {}
            for key, child in properties.items():
                if "default" in child and (key not in value or (value[key] is None and not child.get("nullable"))):
                    value[key] = self._copy(child["default"])
                if key in value:
                    self.fill(child, value[key])
            values = schema.get("additionalProperties")
            if isinstance(values, dict):
                for key, inner in value.items():
                    if key not in properties:
                        self.fill(values, inner)
        elif isinstance(value, list) and isinstance(schema.get("items"), dict):
            for inner in value:
                self.fill(schema["items"], inner)

    def _copy(self, default: Any) -> Any:
        self.nodes -= nodes_of(default)
        self.bytes -= len(encode(default))
        if min(self.nodes, self.bytes) < 0:
            raise too_large("the defaults of its schema, filled in for every element, make the object larger than any may be")
        return copy.deepcopy(default)


def bad_value(schema: Json, value: Any, rules: RuleRun) -> Problems:
    """Return the problems of a value that a schema gives as its own default. ``rules``: the run of all defaults together."""
    value = copy.deepcopy(value)
    _Defaults().fill(schema, value)
    return _Validation(rules).of(schema, value, MISSING, "")


def has_default(raw: Any) -> bool:
    """Return True if a schema gives a default anywhere."""
    if isinstance(raw, list):
        return any(map(has_default, raw))
    return isinstance(raw, dict) and ("default" in raw or any(has_default(part) for part in raw.values()))


def _wrong_type(schema: Json, value: Any, path: str) -> FieldProblem | None:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return None
        wanted = "integer,string"
    else:
        wanted = schema.get("type", "")
        allowed = _TYPES.get(wanted)
        fits = allowed is None or (isinstance(value, allowed) and (wanted == "boolean" or not isinstance(value, bool)))
        if fits or (wanted == "integer" and isinstance(value, float) and value.is_integer()):
            return None
    got = {dict: "object", list: "array", str: "string", int: "integer", float: "number", bool: "boolean"}.get(
        type(value), "null"
    )
    return FieldProblem("FieldValueTypeInvalid", path, f'{path} in body must be of type {wanted}: "{got}"', got)


def _scalar_problems(schema: Json, value: Any, path: str, fits: Callable[[str, str], bool]) -> Problems:
    problems: Problems = []
    if schema.get("enum") is not None and value not in schema["enum"]:
        problems.append(unsupported(path, value, [str(word) for word in schema["enum"]]))
    if isinstance(value, str):
        low, high, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
        if low is not None and len(value) < low:
            problems.append(invalid_value(path, value, f"{path} in body should be at least {low} chars long"))
        if high is not None and len(value) > high:
            problems.append(FieldProblem("FieldValueTooLong", path, f"may not be more than {high} bytes", value))
        if pattern and not fits(pattern, value):
            problems.append(invalid_value(path, value, f"{path} in body should match '{pattern}'"))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        problems += _range(schema, value, path)
    return problems


def _range(schema: Json, value: float, path: str) -> Problems:
    problems: Problems = []
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if low is not None:
        strict = bool(schema.get("exclusiveMinimum"))
        if value < low or (strict and value == low):
            word = "greater than" if strict else "greater than or equal to"
            problems.append(invalid_value(path, value, f"{path} in body should be {word} {low}"))
    if high is not None:
        strict = bool(schema.get("exclusiveMaximum"))
        if value > high or (strict and value == high):
            word = "less than" if strict else "less than or equal to"
            problems.append(invalid_value(path, value, f"{path} in body should be {word} {high}"))
    if step and value % step:
        problems.append(invalid_value(path, value, f"{path} in body should be a multiple of {step}"))
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        problems.append(invalid_value(path, value, f"{path} in body must be of type int32"))
    return problems
