"""Duplicate and unknown fields are reported, refused or dropped, by fieldValidation."""

from __future__ import annotations

from typing import Any

import pytest
from kit.control_plane import Api, Json

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
    reported = 'unknown field "spec.unknown", duplicate field "spec.clusterIP", duplicate field "spec.ports[0].port"'
    assert refused.code == 400
    assert sorted(refused.json["message"].removeprefix("strict decoding error: ").split(", ")) == sorted(
        reported.split(", ")
    ) or (reported in refused.json["message"])


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


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize(("path", "field", "value", "fits"), [
    ("/apis/apps/v1", "replicas", 2**31 - 1, True), ("/apis/apps/v1", "replicas", 2**31, False),
    ("/apis/apps/v1", "replicas", -(2**31) - 1, False), ("/apis/apps/v1", "replicas", 1e30, False),
    ("/apis/apps/v1", "replicas", 10**30, False), ("/apis/apps/v1", "progressDeadlineSeconds", 2**40, False),
    ("/apis/apps/v1", "strategy", {"rollingUpdate": {"maxSurge": 2**31}}, False),
    ("/api/v1", "terminationGracePeriodSeconds", 2**63 - 1, True), ("/api/v1", "terminationGracePeriodSeconds", 2**63, False),
    ("/api/v1", "terminationGracePeriodSeconds", 1e30, False), ("/api/v1", "activeDeadlineSeconds", 10**25, False),
    ("/api/v1", "priority", 2**31, False),
])  # fmt: skip
def test_a_whole_number_has_the_size_that_its_field_has(api: Api, namespace: str, path: str, field: str, value: Any,
                                                        fits: bool) -> None:  # fmt: skip
    plural = "pods" if path == "/api/v1" else "deployments"
    spec: Json = {"containers": [{"name": "c", "image": "i"}]} if plural == "pods" else {
        "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}  # fmt: skip
    body = {"metadata": {"name": "x"}, "spec": {**spec, field: value}}
    answer = api.call("POST", f"{path}/namespaces/{namespace}/{plural}", body, dryRun="All")
    assert answer.code == (201 if fits else 400), answer.body
    if not fits:
        assert "json: cannot unmarshal number" in answer.json["message"]
        assert answer.json["message"].endswith(("of type int32", "of type int64", "of type int-or-string"))


def test_a_pod_is_deleted_whatever_grace_is_asked_for(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for name, own, asked, reported in (
            ("a", 2**31, {}, 2**31), ("b", 10**12, {}, 10**12), ("c", 5, {"gracePeriodSeconds": 2**62}, 2**62),
            ("d", 5, {"gracePeriodSeconds": -3}, 1), ("e", 2**63 - 1, {}, 2**63 - 1)):
        api.create(pods, {"metadata": {"name": name}, "spec": {
            "nodeName": "n", "terminationGracePeriodSeconds": own, "containers": [{"name": "c", "image": "i"}]}})
        assert api.delete(f"{pods}/{name}", asked or None)["metadata"]["deletionGracePeriodSeconds"] == reported, name
        api.call("DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 0})
        assert api.call("GET", f"{pods}/{name}").code == 404


@pytest.mark.parametrize(("zone", "why"), [
    ("UTC", ""), ("Europe/Berlin", ""), ("Etc/GMT+5", ""), ("../../etc/passwd", "unknown time zone ../../etc/passwd"),
    ("/etc/shadow", "unknown time zone /etc/shadow"), ("Europe/../UTC", "unknown time zone Europe/../UTC"),
    ("Nowhere", "unknown time zone Nowhere"), ("", "timeZone must be nil or non-empty string"),
    ("Local", "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"),
])  # fmt: skip
def test_the_time_zone_of_a_schedule_is_one(api: Api, namespace: str, zone: str, why: str) -> None:
    pod = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    body = {"metadata": {"name": "x"}, "spec": {
        "schedule": "* * * * *", "timeZone": zone, "jobTemplate": {"spec": {"template": pod}}}}  # fmt: skip
    answer = api.call("POST", f"/apis/batch/v1/namespaces/{namespace}/cronjobs", body, dryRun="All")
    assert answer.code == (422 if why else 201), answer.body
    assert not why or answer.json["message"].endswith(f'spec.timeZone: Invalid value: "{zone}": {why}')
