"""Rules of custom objects, and of CustomResourceDefinition itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pumice.cel.strings import pattern_of
from pumice_lab.apiserver.crd.rule_checks import bad_rules
from pumice_lab.apiserver.crd.rules import RuleRun
from pumice_lab.apiserver.crd.schema import Schema, bad_value
from pumice_lab.apiserver.errors import FieldProblem, forbidden_value, invalid_value, required, unsupported
from pumice_lab.apiserver.names import bad_1035_label, bad_subdomain
from pumice_lab.apiserver.strategies.base import Strategy, at
from pumice_lab.apiserver.tables.render import find_first

Json = dict[str, Any]


class CustomStrategy(Strategy):
    counts_generation = True
    unconditional_update = False
    any_finalizer = True

    def __init__(self, schema: Schema, has_status: bool, paths: tuple[str, ...]) -> None:
        self.schema, self.has_status, self._paths = schema, has_status, paths

    def default(self, value: Json) -> None:
        self.schema.default(value)

    def prepare_create(self, value: Json) -> None:
        """Kubernetes fills in again whenever it reads, and so what a new object's status was cleared of."""
        self.schema.default(value)

    def validate(self, value: Json) -> list[FieldProblem]:
        return self.schema.validate(value)

    def validate_again(self, value: Json, old: Json, *, narrow: bool) -> list[FieldProblem]:
        return self.schema.validate(value, old)

    def fields(self, value: Json) -> Mapping[str, str]:
        found = {path: find_first(value, path) for path in self._paths}
        return {
            path: "" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for path, v in found.items()
        }


class DefinitionStrategy(Strategy):
    """CustomResourceDefinition: served at once, so its conditions are true from the start."""

    counts_generation = True

    def default(self, value: Json) -> None:
        spec = value.setdefault("spec", {})
        names = spec.setdefault("names", {})
        kind = names.get("kind", "")
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, value: Json) -> None:
        when = value["metadata"]["creationTimestamp"]
        value["status"] = {
            "acceptedNames": value["spec"]["names"],
            "storedVersions": [v.get("name", "") for v in value["spec"].get("versions") or [] if v.get("storage")],
            "conditions": [
                _condition("NamesAccepted", when, "NoConflicts", "no conflicts found"),
                _condition("Established", when, "InitialNamesAccepted", "the initial names have been accepted"),
            ],
        }

    def prepare_update(self, value: Json, old: Json) -> None:
        status = value.get("status")
        if status is None:
            return
        status["acceptedNames"] = at(value, "spec.names")
        stored = [v.get("name", "") for v in at(value, "spec.versions") or [] if v.get("storage")]
        status["storedVersions"] = [
            *status.get("storedVersions", []),
            *(v for v in stored if v not in status.get("storedVersions", [])),
        ]

    def validate(self, value: Json) -> list[FieldProblem]:
        spec, name = value["spec"], value["metadata"].get("name", "")
        names, problems = spec["names"], []
        for key in ("kind", "plural"):
            if not names.get(key):
                problems.append(required(f"spec.names.{key}"))
        if not spec.get("group"):
            problems.append(required("spec.group"))
        elif why := bad_subdomain(spec["group"]):
            problems.append(invalid_value("spec.group", spec["group"], why))
        if names.get("plural") and (why := bad_1035_label(names["plural"])):
            problems.append(invalid_value("spec.names.plural", names["plural"], why))
        wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
        if name != wanted:
            problems.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
        if spec.get("scope") not in ("Namespaced", "Cluster"):
            problems.append(unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced")))
        return problems + _converter_problems(spec["conversion"]) + _versions(spec.get("versions") or [])

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        return [
            invalid_value(f"spec.{field}", at(value, f"spec.{field}"), "field is immutable")
            for field in ("group", "scope", "names.plural", "names.kind")
            if at(value, f"spec.{field}") != at(old, f"spec.{field}")
        ]


def _converter_problems(conversion: Json) -> list[FieldProblem]:
    strategy, webhook, path = conversion.get("strategy"), conversion.get("webhook"), "spec.conversion.webhook"
    if strategy not in ("None", "Webhook"):
        return [unsupported("spec.conversion.strategy", strategy or "", ("None", "Webhook"))]
    if strategy == "None":
        why = "should not be set when strategy is not set to Webhook"
        return [forbidden_value(path, why)] if webhook is not None else []
    client, versions = (webhook or {}).get("clientConfig") or {}, (webhook or {}).get("conversionReviewVersions") or []
    if not webhook:
        return [required(path, "required when strategy is set to Webhook")]
    problems: list[FieldProblem] = []
    if bool(client.get("url")) == bool(client.get("service")):
        problems.append(required(f"{path}.clientConfig", "exactly one of url or service is required"))
    if not versions:
        problems.append(required(f"{path}.conversionReviewVersions"))
    elif "v1" not in versions:
        why = "must include at least one of v1"
        problems.append(invalid_value(f"{path}.conversionReviewVersions", versions, why))
    return problems


def _condition(name: str, when: str, reason: str, message: str) -> Json:
    return {"type": name, "status": "True", "lastTransitionTime": when, "reason": reason, "message": message}


def _versions(versions: list[Json]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if sum(bool(v.get("storage")) for v in versions) != 1:
        problems.append(
            invalid_value("spec.versions", versions and "…", "must have exactly one version marked as storage version")
        )
    for i, version in enumerate(versions):
        path = f"spec.versions[{i}].schema.openAPIV3Schema"
        schema = at(version, "schema.openAPIV3Schema")
        if schema is None:
            problems.append(required(path, "schemas are required"))
        problems += bad_structure(schema, path) + bad_rules(schema, path)
    return problems


# -- Validation of a definition's schema, as Kubernetes serves it ----------------------------------------------------

# Structural, of words that it knows, with patterns that are some.
# Source: Kubernetes "Extend the Kubernetes API with CustomResourceDefinitions", section "Specifying a structural
# schema".

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
