"""Validation of a definition's schema, as Kubernetes serves it: structural, of words that it knows, with patterns that are some.

Source: Kubernetes "Extend the Kubernetes API with CustomResourceDefinitions", section "Specifying a structural schema".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pumice.cel.patterns import pattern_of
from pumice_lab.apiserver.crd.rules import RuleRun
from pumice_lab.apiserver.crd.schema import bad_value
from pumice_lab.apiserver.errors import FieldProblem, forbidden_value, invalid_value, required, unsupported

Json = dict[str, Any]
Problems = list[FieldProblem]
_UNSUPPORTED: Final = ("$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties")
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_PLACES: Final = {"items": "array items", "properties": "object fields", "additionalProperties": "object fields"}


def bad_structure(schema: Any, path: str) -> Problems:
    """Of a whole schema; each problem where it is."""
    if not isinstance(schema, dict):
        return []
    if schema.get("type") != "object":
        root = [invalid_value(f"{path}.type", schema.get("type", ""), "must be object at the root")]
    else:
        root = [forbidden_value(f"{path}.nullable", "nullable cannot be true at the root")] if schema.get("nullable") else []
    return root + _of(schema, path, "", RuleRun())


def _of(schema: Json, path: str, place: str, rules: RuleRun) -> Problems:
    """``place``: the word below which the schema stands, of those that say what a value is; empty for other schemas."""
    problems = [forbidden_value(f"{path}.{word}", f"{word} is not supported") for word in _UNSUPPORTED if schema.get(word)]
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        problems.append(forbidden_value(f"{path}.uniqueItems", why))
    if schema.get("properties") and schema.get("additionalProperties") is not None:
        why = "additionalProperties and properties are mutual exclusive"
        problems.append(forbidden_value(f"{path}.additionalProperties", why))
    if isinstance(schema.get("items"), list):
        problems.append(forbidden_value(f"{path}.items", "items must be a schema object and not an array"))
    if schema.get("type") == "array" and not schema.get("items"):
        problems.append(required(f"{path}.items", "must be specified"))
    if schema.get("type", "object") not in _TYPES:
        problems.append(unsupported(f"{path}.type", schema["type"], _TYPES))
    elif "default" in schema and not problems:
        problems += [replace(found, field=f"{path}.default") for found in bad_value(schema, schema["default"], rules)]
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        why = "must not be empty if x-kubernetes-list-type is map"
        problems.append(required(f"{path}.x-kubernetes-list-map-keys", why))
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if place and not schema.get("type") and not free:
        problems.append(required(f"{path}.type", f"must not be empty for specified {place}"))
    if isinstance(text := schema.get("pattern"), str):
        try:
            pattern_of(text)
        except ValueError as why_not:
            problems.append(invalid_value(f"{path}.pattern", text, f"must be a valid regular expression, but isn't: {why_not}"))
    for word, inner in schema.items():
        if word == "properties" and isinstance(inner, dict):
            for key, part in inner.items():
                if isinstance(part, dict):
                    problems += _of(part, f"{path}.properties[{key}]", _PLACES[word], rules)
        elif word in _PLACES and isinstance(inner, dict):
            problems += _of(inner, f"{path}.{word}", _PLACES[word], rules)
        elif word == "not" and isinstance(inner, dict):
            problems += _of(inner, f"{path}.not", "", rules)
        elif word in ("allOf", "anyOf", "oneOf") and isinstance(inner, list):
            for i, part in enumerate(inner):
                problems += _of(part, f"{path}.{word}[{i}]", "", rules) if isinstance(part, dict) else []
    return problems
