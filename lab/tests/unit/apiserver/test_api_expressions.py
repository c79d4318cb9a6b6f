"""Definitions and policies that mean harm: what they make of an object, and what they cost the server."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

Json = dict[str, Any]
Work = Callable[[Any], Coroutine[Any, Any, None]]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MAPS, PODS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
THINGS = "/apis/x.io/v1/namespaces/default/things"


def definition(spec: Json) -> Json:
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    return {
        "metadata": {"name": "things.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                 "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]},
    }  # fmt: skip


def thing(**spec: Any) -> Json:
    return {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}


def about(*resources: str) -> Json:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": list(resources)}
    return {"matchConstraints": {"resourceRules": [rule]}}


def patch(expression: str) -> Json:
    return {"reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}


async def mutating(api: Any, expression: str, *resources: str) -> None:
    await api.create(f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "m"}, "spec": {
        **about(*resources), **patch(expression)}})  # fmt: skip
    await api.create(f"{ADMISSION}/mutatingadmissionpolicybindings", {"metadata": {"name": "m"}, "spec": {"policyName": "m"}})


async def validating(api: Any, spec: Json, *resources: str, **bound: Any) -> None:
    policy = {"metadata": {"name": "v"}, "spec": {**about(*resources), **spec}}
    await api.create(f"{ADMISSION}/validatingadmissionpolicies", policy)
    binding = {"policyName": "v", "validationActions": ["Deny"], **bound}
    await api.create(f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": "v"}, "spec": binding})


def test_rules_beyond_the_budget_of_a_request_refuse_it_even_where_each_that_ran_held(with_api: Callable[[Work], None]) -> None:
    async def work(api: Any) -> None:
        items = {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0"}] * 4}
        await api.create(DEFINITIONS, definition({"properties": {"list": {"type": "array", "items": items}}}))
        refused = await api.call("POST", THINGS, thing(list=[1] * 45_000 + [-1]))
        assert (refused.code, "running out of cost budget" in refused.json()["message"]) == (422, True)

    with_api(work)


@pytest.mark.parametrize("part", [
    {"allOf": [{"x-kubernetes-validations": [{"message": "m"}]}]},
    {"anyOf": [{"properties": {"a": {"x-kubernetes-validations": [{"rule": "nonsense("}]}}}]},
    {"not": {"x-kubernetes-validations": [{"rule": "true"}]}},
])  # fmt: skip
def test_a_rule_in_a_part_of_a_schema_that_only_tells_values_apart_is_refused(
    part: Json, with_api: Callable[[Work], None]
) -> None:
    async def work(api: Any) -> None:
        refused = await api.call("POST", DEFINITIONS, definition({"properties": {"a": {"type": "integer"}}, **part}))
        assert (refused.code, "must be empty to be structural" in refused.json()["message"]) == (422, True)

    with_api(work)


def test_a_duration_beyond_all_time_is_a_text_for_rules(with_api: Callable[[Work], None]) -> None:
    async def work(api: Any) -> None:
        wait = {"type": "string", "format": "duration"}
        rule = {"rule": "self.wait == self.wait"}
        await api.create(DEFINITIONS, definition({"properties": {"wait": wait}, "x-kubernetes-validations": [rule]}))
        await api.create(THINGS, thing(wait="99999999999999999999h"))

    with_api(work)


@pytest.mark.parametrize(("expression", "code"), [
    ("[JSONPatch{op: 'remove', path: '/metadata/uid'}]", 201),
    ("[JSONPatch{op: 'replace', path: '/metadata/uid', value: 'x'}]", 201),
    ("[JSONPatch{op: 'remove', path: '/metadata/creationTimestamp'}]", 201),
    ("[JSONPatch{op: 'add', path: '/metadata/deletionTimestamp', value: '2020-01-01T00:00:00Z'}]", 201),
    ("[JSONPatch{op: 'replace', path: '/metadata/namespace', value: 'kube-system'}]", 400),
    ("[JSONPatch{op: 'add', path: '/data/x', value: timestamp('2020-01-01T00:00:00Z')}]", 201),
    ("[JSONPatch{op: 'add', path: '/data/x', value: authorizer}]", 422),
    ("[JSONPatch{op: 'add', path: '/data/x', value: 1.0 / 0.0}]", 422),
    ("[JSONPatch{op: 'add', path: '/data/x', value: optional.of('x')}]", 422),
    ("{'a': 1}", 422), ("[1]", 422), ("null", 422),
])  # fmt: skip
def test_a_mutation_leaves_the_servers_fields_alone_and_makes_nothing_but_json(
    expression: str, code: int, with_api: Callable[[Work], None]
) -> None:
    async def work(api: Any) -> None:
        await mutating(api, expression, "configmaps")
        answer = await api.call("POST", MAPS, {"metadata": {"name": "a"}, "data": {"a": "b"}})
        assert answer.code == code, answer.body
        if code == 201:
            metadata = answer.json()["metadata"]
            assert len(metadata["uid"]) == 36
            assert metadata["creationTimestamp"]
            assert "deletionTimestamp" not in metadata

    with_api(work)


def test_a_mutation_of_a_status_reaches_no_further_than_the_status(with_api: Callable[[Work], None]) -> None:
    async def work(api: Any) -> None:
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "good"}]}}
        await api.create(PODS, pod)
        await mutating(api, "[JSONPatch{op: 'replace', path: '/spec/containers/0/image', value: 'evil'}]", "pods/status")
        answer = await api.call("PUT", f"{PODS}/p/status", {**pod, "status": {"phase": "Running"}})
        assert (answer.code, answer.json()["spec"]["containers"][0]["image"]) == (200, "good")

    with_api(work)


def test_a_mutation_of_a_new_pod_does_not_make_its_status(with_api: Callable[[Work], None]) -> None:
    async def work(api: Any) -> None:
        await mutating(api, "[JSONPatch{op: 'add', path: '/status', value: {'phase': 'Succeeded'}}]", "pods")
        pod = await api.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
        assert pod["status"]["phase"] == "Pending"

    with_api(work)


def test_policies_of_a_request_cost_no_more_together_than_one_expression_may(with_api: Callable[[Work], None]) -> None:
    async def work(api: Any) -> None:
        loop = "lists.range(200).all(i, lists.range(200).all(j, i + j >= {}))"
        some = [{"expression": loop.format(-number)} for number in range(6)]
        await validating(api, {"validations": some}, "configmaps")
        refused = await api.call("POST", MAPS, {"metadata": {"name": "a"}})
        assert (refused.code, "cost limit" in refused.json()["message"]) == (422, True)

    with_api(work)


def test_an_object_without_a_namespace_is_not_judged_by_parameters_of_all_namespaces(with_api: Callable[[Work], None]) -> None:
    async def work(api: Any) -> None:
        await api.create(MAPS, {"metadata": {"name": "secretive"}})
        reference = {"selector": {}, "parameterNotFoundAction": "Allow"}
        spec = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "validations": [{"expression": "false", "messageExpression": "params.metadata.name"}]}  # fmt: skip
        await validating(api, spec, "namespaces", paramRef=reference)
        refused = await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "new"}})
        assert (refused.code, "cannot use namespaced paramRef" in refused.json()["message"]) == (422, True)

    with_api(work)


@pytest.mark.parametrize(("resource", "spec", "said"), [
    ("mutatingadmissionpolicies", {"mutations": [{"patchType": "JSONPatch"}]}, "spec.mutations[0].jsonPatch"),
    ("mutatingadmissionpolicies", {"mutations": [{}]}, "spec.mutations[0].patchType"),
    ("validatingadmissionpolicies", {"validations": [{"expression": "true"}], "paramKind": {"kind": "No"}}, "apiVersion"),
    ("validatingadmissionpolicies", {"validations": [{"expression": "true", "reason": "Nope"}]}, "spec.validations[0].reason"),
    ("validatingadmissionpolicybindings", {"policyName": "v"}, "spec.validationActions"),
    ("validatingadmissionpolicybindings", {"policyName": "v", "validationActions": ["Nope"]}, "spec.validationActions"),
    ("mutatingadmissionpolicybindings", {"policyName": "v", "paramRef": {}}, "spec.paramRef"),
    ("mutatingadmissionpolicybindings", {}, "spec.policyName"),
])  # fmt: skip
def test_a_policy_and_a_binding_that_lack_a_part_are_refused(
    resource: str, spec: Json, said: str, with_api: Callable[[Work], None]
) -> None:
    async def work(api: Any) -> None:
        refused = await api.call("POST", f"{ADMISSION}/{resource}", {"metadata": {"name": "x"}, "spec": spec})
        assert (refused.code, said in refused.json()["message"]) == (422, True)

    with_api(work)
