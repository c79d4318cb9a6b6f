"""Expressions in CEL that an API server evaluates: rules of definitions, admission policies, conditions of webhooks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kit.control_plane import Answer, Api

Json = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GROUP = "rules.example.com"
INTEGER: Json = {"type": "integer"}
STRING: Json = {"type": "string"}


def definition(plural: str, spec: Json) -> Json:
    kind = plural.capitalize()
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                 "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]},
    }  # fmt: skip


@contextmanager
def defined(api: Api, plural: str, spec: Json) -> Iterator[str]:
    """The kind's path in the API, while it is served."""
    api.create(DEFINITIONS, definition(plural, spec))
    path, deadline = f"/apis/{GROUP}/v1", time.monotonic() + 30
    try:
        while api.call("GET", f"{path}/{plural}").code != 200:
            assert time.monotonic() < deadline, "the kind is not served"
            time.sleep(0.1)
        yield path
    finally:
        api.call("DELETE", f"{DEFINITIONS}/{plural}.{GROUP}")


def custom(plural: str, title: str, **spec: Any) -> Json:
    return {"apiVersion": f"{GROUP}/v1", "kind": plural.capitalize(), "metadata": {"name": title}, "spec": spec}


def test_rules_of_a_definition_hold_for_new_objects_and_for_what_changes(api: Api, namespace: str) -> None:
    spec = {
        "properties": {"low": INTEGER, "high": INTEGER, "size": INTEGER, "name": STRING},
        "x-kubernetes-validations": [
            {"rule": "self.low <= self.high", "message": "low is above high"},
            {"rule": "!has(self.size) || !has(oldSelf.size) || self.size >= oldSelf.size",
             "messageExpression": "'it ' + 'shrank'"},
            {"rule": "!has(self.name) || self.name.matches('^[a-z]+$')", "fieldPath": ".name", "reason": "FieldValueForbidden",
             "message": "lower case alone"},
        ],
    }  # fmt: skip
    with defined(api, "ranges", spec) as path:
        place = f"{path}/namespaces/{namespace}/ranges"
        refused = api.call("POST", place, custom("ranges", "a", low=3, high=2))
        assert refused.code == 422
        assert refused.json["message"].endswith("is invalid: spec: Invalid value: low is above high")
        refused = api.call("POST", place, custom("ranges", "a", low=1, high=2, name="A"))
        assert "spec.name: Forbidden: lower case alone" in refused.json["message"]
        api.create(place, custom("ranges", "a", low=1, high=2, size=5))
        merge = "application/merge-patch+json"
        assert api.call("PATCH", f"{place}/a", {"spec": {"size": 6}}, media=merge).code == 200
        refused = api.call("PATCH", f"{place}/a", {"spec": {"size": 4}}, media=merge)
        assert (refused.code, "it shrank" in refused.json["message"]) == (422, True)


def test_what_an_update_leaves_as_it_was_is_not_held_against_it(api: Api, namespace: str) -> None:
    loose = {"properties": {"word": STRING, "other": STRING}}
    short = {"type": "string", "x-kubernetes-validations": [{"rule": "self.size() < 3", "message": "long"}]}
    strict = {"properties": {"word": short, "other": {"type": "string", "maxLength": 3}}}
    with defined(api, "words", loose) as path:
        place = f"{path}/namespaces/{namespace}/words"
        api.create(place, custom("words", "a", word="much too long", other="as well"))
        changed = definition("words", strict)
        api.call("PATCH", f"{DEFINITIONS}/words.{GROUP}", {"spec": changed["spec"]}, media="application/merge-patch+json")
        deadline = time.monotonic() + 30
        while api.call("POST", f"{place}?dryRun=All", custom("words", "probe", word="much too long")).code == 201:
            assert time.monotonic() < deadline, "the new schema does not come into force"
            time.sleep(0.2)
        merge = "application/merge-patch+json"
        assert api.call("PATCH", f"{place}/a", {"metadata": {"labels": {"a": "b"}}}, media=merge).code == 200
        assert api.call("PATCH", f"{place}/a", {"spec": {"other": "new"}}, media=merge).code == 200
        assert api.call("PATCH", f"{place}/a", {"spec": {"word": "longer still"}}, media=merge).code == 422


@pytest.mark.parametrize(("rule", "said"), [
    ("self.nothing == 1", "undefined field 'nothing'"),
    ("self.low =", "Syntax error"),
    ("nobody(self)", "undeclared reference to 'nobody'"),
    ("self.low", "cel expression must evaluate to a bool"),
    ("self.low == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
    ("self.low > 1 && self.name.startsWith(self.low)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
    ("self.grid == 1", "found no matching overload for '_==_'"),
    ("self.part == 1", "found no matching overload for '_==_' applied to '(double, int)'"),
    ("self.grid.all(a, self.grid.all(b, self.grid.all(c, a == b || b == c)))", "exceeds budget"),
])  # fmt: skip
def test_a_rule_that_means_nothing_or_would_not_end_is_refused_with_its_definition(api: Api, rule: str, said: str) -> None:
    grid = {"type": "array", "items": {"type": "string"}}
    more = {"name": {"type": "string", "maxLength": 9}, "part": {"type": "number"}}
    spec = {"properties": {"low": INTEGER, "grid": grid, **more}, "x-kubernetes-validations": [{"rule": rule}]}
    answer = api.call("POST", DEFINITIONS, definition("grids", spec))
    assert answer.code == 422, answer.body
    assert said in answer.json["message"]


@pytest.mark.parametrize("rule", [
    "self.low > 1.5 && self.part > 1", "self.when < timestamp('2030-01-01T00:00:00Z')", "self.for > duration('1h')",
    "self.either == 1 || self.either == 'a'", "self.low == oldSelf.low", "self.any.x == 1 || self.map.x == 'a'",
    "has(self.name) ? self.name.size() < 5 : true", "self.grid.all(g, g == 'a') && 'a' in self.grid", "self.raw == b'a'",
])  # fmt: skip
def test_a_rule_that_fits_its_schema_is_taken(api: Api, rule: str) -> None:
    text = {"type": "string", "maxLength": 9}
    spec = {"x-kubernetes-validations": [{"rule": rule.replace("self.for", "self.__for__")}], "properties": {
        "low": INTEGER, "part": {"type": "number"}, "name": text, "grid": {"type": "array", "maxItems": 3, "items": text},
        "when": {"type": "string", "format": "date-time"}, "for": {"type": "string", "format": "duration"},
        "raw": {"type": "string", "format": "byte", "maxLength": 9},
        "either": {"x-kubernetes-int-or-string": True}, "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True,
                                                                "properties": {"x": INTEGER}},
        "map": {"type": "object", "maxProperties": 3, "additionalProperties": text}}}  # fmt: skip
    answer = api.call("POST", DEFINITIONS, definition("fits", spec), dryRun="All")
    assert answer.code == 201, answer.json["message"]


@contextmanager
def in_force(api: Api, probe: Any, *objects: Json) -> Iterator[None]:
    """Policies, until ``probe`` shows that they are obeyed."""
    plural = {"Policy": "policies", "PolicyBinding": "policybindings"}
    places = []
    try:
        for obj in objects:
            kind = obj["kind"]
            way = kind.removesuffix("Binding").removesuffix("Policy").lower()
            places.append(f"{ADMISSION}/{way}{plural['PolicyBinding' if kind.endswith('Binding') else 'Policy']}")
            api.create(places[-1], {"apiVersion": "admissionregistration.k8s.io/v1", **obj})
        deadline = time.monotonic() + 60
        while not probe():
            assert time.monotonic() < deadline, "the policy does not come into force"
            time.sleep(0.2)
        yield
    finally:
        for place, obj in zip(places, objects, strict=False):
            api.call("DELETE", f"{place}/{obj['metadata']['name']}")


def about(resource: str, *operations: str) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": list(operations), "resources": [resource]}
    return {"resourceRules": [rule]}


def map_(name: str, **data: str) -> Json:
    return {"metadata": {"name": name}, "data": data}


def test_a_validating_policy_denies_by_its_binding_with_parameters_variables_and_its_own_words(api: Api, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps"
    api.create(place, map_("limits", most="3"))
    api.call("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"asked": namespace}}},
             media="application/merge-patch+json")  # fmt: skip
    policy = {
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": f"most-{namespace}"},
        "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": about("configmaps", "CREATE", "UPDATE"),
            "matchConditions": [{"name": "named", "expression": "object.metadata.name.startsWith('counted')"}],
            "variables": [{"name": "count", "expression": "has(object.data) ? object.data.size() : 0"}],
            "validations": [
                {"expression": "variables.count <= int(params.data.most)", "reason": "Forbidden",
                 "messageExpression": "'at most ' + params.data.most + ', not ' + string(variables.count)"},
                {"expression": "!has(object.data) || !('secret' in object.data)"},
            ],
        },
    }  # fmt: skip
    binding = {
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": f"most-{namespace}"},
        "spec": {"policyName": f"most-{namespace}", "validationActions": ["Deny"],
                 "paramRef": {"name": "limits", "namespace": namespace, "parameterNotFoundAction": "Deny"},
                 "matchResources": {"namespaceSelector": {"matchLabels": {"asked": namespace}}}},
    }  # fmt: skip
    many = map_("counted-many", a="", b="", c="", d="")

    def put(obj: Json) -> Answer:
        return api.call("POST", f"{place}?dryRun=All", obj)

    with in_force(api, lambda: put(many).code == 403, policy, binding):
        refused = put(many)
        named = f"ValidatingAdmissionPolicy 'most-{namespace}' with binding 'most-{namespace}'"
        assert refused.json["message"] == f'configmaps "counted-many" is forbidden: {named} denied request: at most 3, not 4'
        assert refused.json["reason"] == "Forbidden"
        refused = put(map_("counted-x", secret="x"))
        assert (refused.code, refused.json["reason"]) == (422, "Invalid")
        assert "failed expression: !has(object.data) || !('secret' in object.data)" in refused.json["message"]
        assert put(map_("counted-x", a="")).code == 201
        assert put(map_("another", secret="x")).code == 201


def test_a_policy_that_cannot_be_evaluated_refuses_unless_it_says_otherwise(api: Api, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
    for failure, code in (("Fail", 422), ("Ignore", 201)):
        name = f"cannot-{failure.lower()}-{namespace}"
        spec = {"failurePolicy": failure, "matchConstraints": about("configmaps", "CREATE"),
                "matchConditions": [{"name": "here", "expression": f"object.metadata.name == '{name}'"}],
                "validations": [{"expression": "object.data.missing == 'x'"},
                                {"expression": "object.data.bad != 'yes'"}]}  # fmt: skip
        policy = {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
        binding = {"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
                   "spec": {"policyName": name, "validationActions": ["Deny"]}}  # fmt: skip

        def refuses(name: str = name) -> bool:
            return api.call("POST", place, map_(name, bad="yes", missing="x")).code == 422

        with in_force(api, refuses, policy, binding):
            answer = api.call("POST", place, map_(name, bad="no"))
            assert answer.code == code, answer.body
            if code == 422:
                assert "resulted in error: no such key: missing" in answer.json["message"]


def test_a_mutating_policy_applies_and_patches(api: Api, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
    name = f"adds-{namespace}"
    applied = "Object{metadata: Object.metadata{labels: {'added': object.metadata.name}}}"
    steps = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c'), value: 'patched'}]"
    spec = {
        "failurePolicy": "Fail", "reinvocationPolicy": "Never", "matchConstraints": about("configmaps", "CREATE"),
        "matchConditions": [{"name": "here", "expression": f"request.namespace == '{namespace}'"}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": applied}},
                      {"patchType": "JSONPatch", "jsonPatch": {"expression": steps}}],
    }  # fmt: skip
    policy = {"kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    binding = {"kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {"policyName": name}}

    def added() -> bool:
        return "added" in api.call("POST", place, map_("a", x="y")).json["metadata"].get("labels", {})

    with in_force(api, added, policy, binding):
        made = api.call("POST", place, map_("a", x="y")).json
        assert made["metadata"]["labels"] == {"added": "a", "a.b/c": "patched"}
        assert made["data"] == {"x": "y"}


@pytest.mark.parametrize(("reinvocation", "seen"), [("IfNeeded", ["yes", "yes"]), ("Never", ["not-yet", "yes"])])
def test_a_mutating_policy_that_wants_to_sees_what_later_ones_made_of_it(api: Api, namespace: str, reinvocation: str,
                                                                         seen: list[str]) -> None:  # fmt: skip
    """Which of the two comes first, the real server leaves open."""
    place = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
    objects = []
    for name, other in (("first", "second"), ("second", "first")):
        value = f"has(object.data.{other}) ? 'yes' : 'not-yet'"
        steps = f"[JSONPatch{{op: 'add', path: '/data/{name}', value: {value}}}]"
        spec = {
            "failurePolicy": "Fail", "reinvocationPolicy": reinvocation, "matchConstraints": about("configmaps", "CREATE"),
            "matchConditions": [{"name": "here", "expression": f"request.namespace == '{namespace}'"}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": steps}}],
        }  # fmt: skip
        names = {"metadata": {"name": f"{name}-{namespace}"}}
        objects += [{"kind": "MutatingAdmissionPolicy", **names, "spec": spec},
                    {"kind": "MutatingAdmissionPolicyBinding", **names, "spec": {"policyName": f"{name}-{namespace}"}}]

    def both() -> bool:
        return {"first", "second"} <= api.call("POST", place, map_("a", x="y")).json["data"].keys()

    with in_force(api, both, *objects):
        data = api.call("POST", place, map_("a", x="y")).json["data"]
        assert sorted((data["first"], data["second"])) == seen


@pytest.mark.parametrize(("path", "value", "code"), [
    ("/metadata/uid", "'x'", 201), ("/metadata/namespace", "'kube-system'", 400),
    ("/data/x", "timestamp('2020-01-01T00:00:00Z')", 201),
])  # fmt: skip
def test_a_mutation_leaves_the_servers_fields_alone(api: Api, namespace: str, path: str, value: str, code: int) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
    name = f"own-{namespace}"
    steps = "object.metadata.name != 'meant' ? [JSONPatch{op: 'add', path: '/metadata/labels', value: {'in': 'force'}}] : "
    steps += f"[JSONPatch{{op: 'add', path: '{path}', value: {value}}}]"
    spec = {
        "failurePolicy": "Fail", "reinvocationPolicy": "Never", "matchConstraints": about("configmaps", "CREATE"),
        "matchConditions": [{"name": "here", "expression": f"request.namespace == '{namespace}'"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": steps}}],
    }  # fmt: skip
    policy = {"kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    binding = {"kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {"policyName": name}}

    def changed() -> bool:
        return "in" in api.call("POST", place, map_("a", x="y")).json["metadata"].get("labels", {})

    with in_force(api, changed, policy, binding):
        answer = api.call("POST", place, map_("meant", x="y"))
        assert answer.code == code, answer.body
        if code == 201:
            assert len(answer.json["metadata"]["uid"]) == 36
            assert answer.json["data"]["x"] in ("y", "2020-01-01T00:00:00Z")


@pytest.mark.parametrize("applied", [
    "Object{nonsense: 1}", "Object{data: Object.metadata{x: 'z'}}", "Object{metadata: Object.metadata{nonsense: 'x'}}",
])  # fmt: skip
def test_a_mutation_makes_only_what_the_kind_has(api: Api, namespace: str, applied: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
    name = f"nonsense-{namespace}"
    expression = f"object.metadata.name != 'meant' ? Object{{metadata: Object.metadata{{labels: {{'in': 'force'}}}}}} : {applied}"
    spec = {
        "failurePolicy": "Fail", "reinvocationPolicy": "Never", "matchConstraints": about("configmaps", "CREATE"),
        "matchConditions": [{"name": "here", "expression": f"request.namespace == '{namespace}'"}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }  # fmt: skip
    policy = {"kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    binding = {"kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {"policyName": name}}

    def in_use() -> bool:
        return "in" in api.call("POST", place, map_("a", x="y")).json["metadata"].get("labels", {})

    with in_force(api, in_use, policy, binding):
        answer = api.call("POST", place, map_("meant", x="y"))
        assert answer.code in (403, 422, 500), answer.body


def test_a_step_of_a_patch_has_four_fields(api: Api) -> None:
    spec = {
        "matchConstraints": about("pods", "CREATE"), "reinvocationPolicy": "Never", "failurePolicy": "Fail",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{nonsense: 'x'}]"}}],
    }  # fmt: skip
    policy = {"kind": "MutatingAdmissionPolicy", "metadata": {"name": "broken"}, "spec": spec}
    answer = api.call("POST", f"{ADMISSION}/mutatingadmissionpolicies", policy)
    assert (answer.code, "compilation failed" in answer.json["message"]) == (422, True)


def test_an_expression_that_does_not_compile_is_refused_with_its_place(api: Api) -> None:
    spec = {"matchConstraints": about("pods", "CREATE"), "validations": [{"expression": "object.spec == = 1"}]}
    policy = {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "broken"}, "spec": spec}
    answer = api.call("POST", f"{ADMISSION}/validatingadmissionpolicies", policy)
    assert answer.code == 422, answer.body
    assert "spec.validations[0].expression: Invalid value" in answer.json["message"]
    hook = {"name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [], "matchConditions": [{"name": "x", "expression": "nope"}]}  # fmt: skip
    configuration = {"metadata": {"name": "broken"}, "webhooks": [hook]}
    answer = api.call("POST", f"{ADMISSION}/validatingwebhookconfigurations", configuration)
    assert answer.code == 422, answer.body
    assert "undeclared reference to 'nope'" in answer.json["message"]


def test_a_webhook_is_asked_only_where_its_conditions_hold(api: Api, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
    name = f"asks-{namespace}"
    hook = {
        "name": "nobody.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 1,
        "rules": about("configmaps", "CREATE")["resourceRules"],
        "matchConditions": [{"name": "here", "expression": f"request.namespace == '{namespace}'"},
                            {"name": "asked", "expression": "object.metadata.name.startsWith('asked')"}],
    }  # fmt: skip
    api.create(f"{ADMISSION}/validatingwebhookconfigurations", {"metadata": {"name": name}, "webhooks": [hook]})
    try:
        deadline = time.monotonic() + 60
        while api.call("POST", place, map_("asked")).code != 500:
            assert time.monotonic() < deadline, "the webhook does not come into force"
            time.sleep(0.2)
        assert api.call("POST", place, map_("another")).code == 201
    finally:
        api.call("DELETE", f"{ADMISSION}/validatingwebhookconfigurations/{name}")
