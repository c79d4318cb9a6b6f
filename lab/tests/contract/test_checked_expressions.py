"""Type checking of an expression when its policy is stored."""

from __future__ import annotations

from typing import Any

import pytest
from kit.control_plane import Api, Json

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def checked_policy(expression: str, **spec: Any) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing-at-all"]}
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "checked"}}
    return {**head, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}], **spec}}


WITH = {"variables": [{"name": "n", "expression": "1"}, {"name": "s", "expression": "object.metadata.name"}]}


@pytest.mark.parametrize(("expression", "spec", "said"), [
    ("variables.x == 1", {}, "undeclared reference to 'variables'"),
    ("params.x == 1", {}, "undeclared reference to 'params'"),
    ("request.nope == 1", {}, "undefined field 'nope'"),
    ("request.userInfo.nope == 'a'", {}, "undefined field 'nope'"),
    ("namespaceObject.metadata.nope == 1", {}, "undefined field 'nope'"),
    ("namespaceObject.nope == 1", {}, "undefined field 'nope'"),
    ("variables.x == 1", WITH, "undefined field 'x'"),
    ("variables.n == 'a'", WITH, "found no matching overload for '_==_' applied to '(int, string)'"),
    ("1", {}, "must evaluate to bool"),
    ("true ? 'a' : 'b'", {}, "must evaluate to bool"),
    ("[1].map(x, x + 1)", {}, "must evaluate to bool"),
    ("'a' > 1", {}, "found no matching overload for '_>_' applied to '(string, int)'"),
    ("1 + 'a' == 2", {}, "found no matching overload for '_+_' applied to '(int, string)'"),
    ("1 == 1.0", {}, "found no matching overload for '_==_' applied to '(int, double)'"),
    ("[1] == 1", {}, "found no matching overload for '_==_'"),
    ("5 % 2.0 == 1", {}, "found no matching overload for '_%_' applied to '(int, double)'"),
    ("!request.name", {}, "found no matching overload for '!_' applied to '(string)'"),
    ("'a' && true", {}, "expected type 'bool' but found 'string'"),
    ("true ? 1 == 1 : 'a'", {}, "found no matching overload for '_?_:_' applied to '(bool, bool, string)'"),
    ("size(1) == 1", {}, "found no matching overload for 'size' applied to '(int)'"),
    ("request.name.startsWith(1)", {}, "found no matching overload for 'startsWith' applied to 'string.(int)'"),
    ("'a' in 'abc'", {}, "found no matching overload for '@in' applied to '(string, string)'"),
    ("request.name.x == 'a'", {}, "does not support field selection"),
])  # fmt: skip
def test_a_mistake_that_no_value_could_mend_is_refused_with_its_policy(api: Api, expression: str, spec: Json, said: str) -> None:
    answer = api.call("POST", POLICIES, checked_policy(expression, **spec))
    assert answer.code == 422
    assert said in answer.json["message"]


@pytest.mark.parametrize(("expression", "spec"), [
    ("object.nope.at.all == 1 && object.metadata.name == 'a'", {}), ("oldObject == null || 1 < 2.5", {}),
    ("variables.n == 1 && variables.s.startsWith('a')", WITH),
    ("params.x == 1", {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}),
    ("object.?spec.?replicas.orValue(1) > 1", {}), ("has(object.spec) ? object.spec.x == 1 : true", {}),
    ("[1, 2].all(x, x > 0) && {'a': 1}.exists(k, k == 'a')", {}),
    ("object.spec.containers.map(c, c.image).exists(i, i.contains('x'))", {}), ("'a' in object.metadata.labels", {}),
    ("quantity('1').isLessThan(quantity('2')) && [1, 2].sum() + 1 == 4", {}), ("duration('1h') > duration('1m')", {}),
    ("timestamp('2026-01-01T00:00:00Z') - duration('1h') < timestamp('2026-01-01T00:00:00Z')", {}),
    ("request.userInfo.groups.exists(g, g == 'a') && request.userInfo.extra['a'][0] == 'b'", {}),
    ("authorizer.group('').resource('pods').check('get').allowed()", {}), ("namespaceObject.metadata.labels['a'] == 'b'", {}),
    ("object.metadata.name + 'a' == 'ba' && string(1) + 'a' == '1a'", {}), ("type(object) == map || type(1) == int", {}),
    ("[1] == [] || {} == {} || dyn(1) == 'a'", {}), ("request.kind.group == '' && request.dryRun != true", {}),
    ("object.spec.x in ['a', 'b'] && !(object.spec.y in {'a': 1})", {}), ("'a,b'.split(',').size() == 2", {}),
    ("isIP('1.2.3.4') && ip('1.2.3.4').family() == 4 && 'a'.matches('^a')", {}), ("b'a' == b'a' && 1u < 2u && -1 < 0", {}),
])  # fmt: skip
def test_what_may_turn_out_well_is_taken(api: Api, expression: str, spec: Json) -> None:
    answer = api.call("POST", POLICIES, checked_policy(expression, **spec), dryRun="All")
    assert answer.code == 201, answer.json["message"]


@pytest.mark.parametrize(("notes", "said"), [
    ([("k", "1")], "must evaluate to one of [string null_type]"),
    ([("k k", "'a'")], "spec.auditAnnotations[0].key: Invalid value"),
    ([("k", "'a'"), ("k", "'b'")], 'spec.auditAnnotations[1].key: Duplicate value: "k"'),
    ([("k", "objct.x")], "undeclared reference"),
])  # fmt: skip
def test_a_note_for_the_audit_log_is_a_text_under_a_key_of_its_own(api: Api, notes: list[tuple[str, str]], said: str) -> None:
    asked = [{"key": key, "valueExpression": text} for key, text in notes]
    answer = api.call("POST", POLICIES, checked_policy("true", auditAnnotations=asked))
    assert answer.code == 422
    assert said in answer.json["message"]
