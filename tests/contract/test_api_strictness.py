"""What stands twice or nowhere in what a client sends is told, refused or dropped, as it asks for (fieldValidation)."""

from __future__ import annotations

import pytest
from kit.control_plane import Api

TWICE = b'{"metadata": {"name": "m"},\n "data": {"a": "1", "b": "2", "a": "3"}}'


def test_a_field_that_stands_twice_is_refused_warned_of_or_read_as_its_last(api: Api, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    refused = api.call("POST", maps, TWICE, fieldValidation="Strict")
    assert (refused.code, 'strict decoding error: duplicate field "data.a"' in refused.json["message"]) == (400, True)
    warned = api.call("POST", maps, TWICE)
    assert (warned.code, warned.json["data"]) == (201, {"a": "3", "b": "2"})
    assert 'duplicate field \\"data.a\\"' in warned.headers["warning"]
    api.delete(f"{maps}/m")
    silent = api.call("POST", maps, TWICE, fieldValidation="Ignore")
    assert (silent.code, silent.headers.get("warning")) == (201, None)


def test_unknown_and_twice_are_told_together(api: Api, namespace: str) -> None:
    body = b"""{"metadata": {"name": "s"}, "spec": {"unknown": 1, "clusterIP": "None", "clusterIP": "None",
                "ports": [{"port": 80, "port": 81}]}}"""
    refused = api.call("POST", f"/api/v1/namespaces/{namespace}/services", body, fieldValidation="Strict")
    told = 'unknown field "spec.unknown", duplicate field "spec.clusterIP", duplicate field "spec.ports[0].port"'
    assert refused.code == 400
    assert sorted(refused.json["message"].removeprefix("strict decoding error: ").split(", ")) == sorted(
        told.split(", ")
    ) or (told in refused.json["message"])


@pytest.mark.parametrize("media", ["application/yaml", "application/apply-patch+yaml"])
def test_a_key_that_stands_twice_in_yaml_is_told_by_its_line(api: Api, namespace: str, media: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: v\n  b: v\n  a: w\n"
    how = ("POST", maps) if media == "application/yaml" else ("PATCH", f"{maps}/m?fieldManager=m")
    strict = f"{'&' if '?' in how[1] else '?'}fieldValidation=Strict"
    refused = api.call(how[0], how[1] + strict, body, media=media)
    assert refused.code == 400
    assert 'line 8: key "a" already set in map' in refused.json["message"]


@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
def test_an_apply_names_no_field_that_there_is_not(api: Api, namespace: str, validation: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}, "unknown": 1}
    refused = api.apply(f"/api/v1/namespaces/{namespace}/configmaps/m", body, "me", fieldValidation=validation)
    assert (refused.code, ".unknown: field not declared in schema" in refused.json["message"]) == (500, True)
