"""Objects of a CustomResourceDefinition: later defaults, finalizers, paths of rules, the published schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kit.control_plane import Api, Json, until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/things"
Define = Callable[..., None]


def definition(schema: Json, **version: Json) -> Json:
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}]
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": versions}
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


def thing(**fields: object) -> Json:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, **fields}


@pytest.fixture
def define(api: Api) -> Iterator[Define]:
    def made(schema: Json, **version: Json) -> None:
        api.create(CRDS, definition(schema, **version))
        api.until_served(THINGS)

    yield made
    api.delete(f"{CRDS}/things.example.com")
    until(lambda: api.call("GET", f"{CRDS}/things.example.com").code == 404)


def test_a_default_that_came_later_is_shown_of_older_objects(api: Api, define: Define) -> None:
    define({"type": "object", "properties": {"a": {"type": "string"}}})
    api.create(THINGS, thing())
    patch = [{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/a/default", "value": "A"}]
    changed = api.call("PATCH", f"{CRDS}/things.example.com", patch, media="application/json-patch+json")
    assert changed.code == 200
    until(lambda: api.get(f"{THINGS}/t").get("a") == "A")
    assert [item["a"] for item in api.get(THINGS)["items"]] == ["A"]
    api.delete(f"{THINGS}/t")


def test_a_finalizer_of_a_custom_object_needs_no_domain(api: Api, define: Define) -> None:
    define({"type": "object"})
    made = api.create(THINGS, {**thing(), "metadata": {"name": "t", "finalizers": ["mine"]}})
    assert made["metadata"]["finalizers"] == ["mine"]
    api.merge(f"{THINGS}/t", {"metadata": {"finalizers": None}})


def test_a_rule_names_a_key_of_a_map_in_brackets_and_a_schema_behind_a_dot(api: Api, define: Define) -> None:
    field = {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == 'foo'"}]}
    values = {"type": "object", "properties": {"field": field, "word": {"type": "string", "enum": ["foo"]}}}
    define(
        {
            "type": "object",
            "properties": {"map": {"type": "object", "maxProperties": 3, "additionalProperties": values}},
        }
    )
    ruled = api.call("POST", THINGS, thing(map={"k": {"field": "bar"}}))
    assert (ruled.code, ruled.json["details"]["causes"][0]["field"]) == (422, "map[k].field")
    typed = api.call("POST", THINGS, thing(map={"k": {"word": "bar"}}))
    assert (typed.code, typed.json["details"]["causes"][0]["field"]) == (422, "map.k.word")


def test_a_rule_that_is_cut_short_says_that_it_costs_too_much(api: Api, define: Define) -> None:
    rule = {"rule": "self.many.all(x, self.many.all(y, y == x))"}
    spec = {"type": "object", "x-kubernetes-validations": [{"rule": "self.none > 0"}, rule], "properties": {
        "many": {"type": "array", "maxItems": 725, "items": {"type": "integer"}}, "none": {"type": "integer"}}}  # fmt: skip
    define({"type": "object", "properties": {"spec": spec}})
    refused = api.call("POST", THINGS, thing(spec={"many": [20] * 725}))
    assert (refused.code, "call cost exceeds limit" in refused.json["message"]) == (422, True)


def test_a_status_that_the_definition_gives_is_there_from_the_start_whatever_was_sent(api: Api, define: Define) -> None:
    phase = {"type": "object", "properties": {"phase": {"type": "string"}}}
    define({"type": "object", "properties": {"status": {**phase, "default": {"phase": "Waiting"}}}}, subresources={"status": {}})
    made = api.create(THINGS, thing(status={"phase": "Done"}))
    seen = api.get(f"{THINGS}/{made['metadata']['name']}")
    assert [found["status"] for found in (made, seen)] == [{"phase": "Waiting"}] * 2


def test_asking_what_is_there_and_choosing_between_two_cost_a_rule_one_step_for_each_name(api: Api, define: Define) -> None:
    """The rules of Volcano's HyperNodes, which bound no list: as many elements as a request has room for."""

    def members(ways: int) -> Json:
        names = [f"way{i}" for i in range(ways)]
        selector = {"type": "object", "properties": {name: {"type": "string", "maxLength": 9} for name in names}}
        selector["x-kubernetes-validations"] = [
            {"rule": " || ".join(f"has(self.{name})" for name in names)},
            {"rule": " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names) + " <= 1"}]  # fmt: skip
        return {"type": "object", "properties": {"members": {"type": "array", "items": {
            "type": "object", "properties": {"selector": selector}}}}}  # fmt: skip

    refused = api.call("POST", CRDS, definition(members(5)))
    assert refused.code == 422
    assert "exceeds budget by factor of 1." in refused.json["message"]
    define(members(4))


def test_a_schema_is_published_for_both_readers_of_it(api: Api, define: Define) -> None:
    define({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "string"}}})
    old: Json = {}

    def published() -> bool:
        old.update(api.get("/openapi/v2")["definitions"].get("com.example.v1.Thing", {}))
        return bool(old)

    until(published)
    assert old["type"] == "object"
    assert "properties" not in old  # a reader of v2 would take them for all that there are
    until(lambda: b"com.example.v1.Thing" in api.call("GET", "/openapi/v3/apis/example.com/v1").body)
    new = api.get("/openapi/v3/apis/example.com/v1")["components"]["schemas"]["com.example.v1.Thing"]["properties"]
    assert new["a"] == {"type": "string"}
    assert all(new[key]["description"] for key in ("apiVersion", "kind"))


def test_discovery_tells_how_objects_are_stored(api: Api, define: Define) -> None:
    define({"type": "object"})
    (kind,) = [k for k in api.get("/apis/example.com/v1")["resources"] if k["name"] == "things"]
    pods = next(k for k in api.get("/api/v1")["resources"] if k["name"] == "pods")
    assert (kind["storageVersionHash"], pods["storageVersionHash"]) == ("MkkTy7bNlnM=", "xPOwRZ+Yhw8=")


@pytest.mark.parametrize(("field", "where"), [
    ({"type": "string", "$ref": "#/definitions/x"}, ".$ref"),
    ({"type": "object", "patternProperties": {"a": {"type": "string"}}}, ".patternProperties"),
    ({"type": "array", "uniqueItems": True, "items": {"type": "string"}}, ".uniqueItems"),
    ({"type": "array"}, ".items"),
    ({"type": "array", "items": [{"type": "string"}]}, ".items"),
    ({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}, ".x-kubernetes-list-map-keys"),
    ({}, ".type"),
    ({"type": "nonsense"}, ".type"),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
     ".additionalProperties"),
    ({"type": "string", "pattern": "("}, ".pattern"),
    ({"type": "string", "default": 1}, ".default"),
])  # fmt: skip
def test_a_schema_that_nobody_could_serve_is_refused_where_it_is_wrong(api: Api, field: Json, where: str) -> None:
    refused = api.call("POST", CRDS, definition({"type": "object", "properties": {"f": field}}))
    assert refused.code == 422, refused.body
    assert f".openAPIV3Schema.properties[f]{where}" in [
        cause["field"].replace("spec.validation.", ".") .replace("spec.versions[0].schema.", ".")
        for cause in refused.json["details"]["causes"]]  # fmt: skip
    assert api.call("GET", f"{CRDS}/things.example.com").code == 404


def test_a_negative_bound_is_taken_and_makes_no_rule_cheap(api: Api, define: Define) -> None:
    define({"type": "object", "properties": {"f": {"type": "array", "maxItems": -1, "items": {"type": "string"}}}})
    assert api.call("POST", THINGS, thing(f=["a"])).code == 422


def test_rules_of_defaults_share_one_budget(api: Api) -> None:
    rule = {"rule": "self.all(x, self.all(y, y == x))"}
    field = {"type": "array", "maxItems": 700, "items": {"type": "integer"}, "default": [1] * 700}
    field["x-kubernetes-validations"] = [rule]
    spec = {"type": "object", "properties": {f"f{i}": field for i in range(30)}}
    refused = api.call("POST", CRDS, definition({"type": "object", "properties": {"spec": spec}}))
    assert refused.code == 422
