"""Claims for devices and the slices that serve them, as the API server takes them (resource.k8s.io/v1)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from kit.control_plane import Api, Json

GROUP = "/apis/resource.k8s.io/v1"
_count = itertools.count(1)
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
CONSUMER = {"resource": "pods", "name": "p", "uid": "11111111-2222-4333-8444-555555555555"}


def claims(namespace: str) -> str:
    return f"{GROUP}/namespaces/{namespace}/resourceclaims"


def claim(*requests: Json, **devices: Any) -> Json:
    asked = list(requests) or [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]
    return {"metadata": {"name": f"c-{next(_count)}"}, "spec": {"devices": {"requests": asked, **devices}}}


def exactly(**fields: Any) -> Json:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", **fields}}


def slice_(*devices: Json, **spec: Any) -> Json:
    whole = {"driver": "gpu.example.com", "nodeName": "n1", "devices": list(devices) or [{"name": "gpu-0"}],
             "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}, **spec}  # fmt: skip
    return {"metadata": {"name": f"s-{next(_count)}"}, "spec": {key: value for key, value in whole.items() if value is not None}}


def allocated(api: Api, namespace: str, **status: Any) -> tuple[str, Json]:
    made = api.create(claims(namespace), claim())
    path = f"{claims(namespace)}/{made['metadata']['name']}"
    made["status"] = {"allocation": {"devices": {"results": [RESULT]}}, **status}
    return path, api.call("PUT", f"{path}/status", made).json


def test_a_request_asks_for_one_device_unless_it_says_otherwise_and_no_status_is_taken(api: Api, namespace: str) -> None:
    made = api.create(claims(namespace), claim() | {"status": {"reservedFor": [CONSUMER]}})
    assert made["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}  # fmt: skip
    assert not made.get("status")


@pytest.mark.parametrize(("wanted", "cause"), [
    (claim({"name": "gpu"}), "exactly one of `exactly` or `firstAvailable` is required"),
    (claim(exactly(), exactly()), 'spec.devices.requests[1]: Duplicate value: '),
    (claim(exactly(deviceClassName="")), "spec.devices.requests[0].exactly.deviceClassName: Required value"),
    (claim(exactly(count=-1)), "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero"),
    (claim(exactly(allocationMode="All", count=2)), "must not be specified when allocationMode is 'All'"),
    (claim(exactly(allocationMode="Some")), 'allocationMode: Unsupported value: "Some"'),
    (claim(exactly(selectors=[{}])), "spec.devices.requests[0].exactly.selectors[0].cel: Required value"),
    (claim(exactly(selectors=[{"cel": {"expression": "device.driver =="}}])), "selectors[0].cel.expression: Invalid value"),
    (claim(exactly(selectors=[{"cel": {"expression": "device.driver"}}])), "must evaluate to bool"),
    (claim({**exactly(), "name": "Not A Label"}), "spec.devices.requests[0].name: Invalid value"),
    (claim(constraints=[{"matchAttribute": "a.example/b", "requests": ["other"]}]), "must be the name of a request in the claim"),
    (claim(constraints=[{"requests": ["gpu"]}]), "spec.devices.constraints[0]: Required value"),
    (claim(config=[{"requests": ["gpu"]}]), "spec.devices.config[0].opaque: Required value"),
    (claim(*({**exactly(), "name": f"r{i}"} for i in range(33))), "spec.devices.requests: Too many: 33"),
])  # fmt: skip
def test_a_claim_that_could_be_misread_is_refused(api: Api, namespace: str, wanted: Json, cause: str) -> None:
    answer = api.call("POST", claims(namespace), wanted)
    assert answer.code == 422, answer.json
    assert cause in answer.json["message"]


def test_admin_access_is_for_namespaces_that_are_labelled_for_it(api: Api, namespace: str) -> None:
    """Acceptance case 13 of claims, the second half."""
    wanted = claim(exactly(), {**exactly(adminAccess=True), "name": "look"})
    template = {"metadata": {"name": f"t-{next(_count)}"}, "spec": {"spec": wanted["spec"]}}
    for path, obj in ((claims(namespace), wanted), (f"{GROUP}/namespaces/{namespace}/resourceclaimtemplates", template)):
        answer = api.call("POST", path, obj)
        assert answer.code == 422
        assert answer.json["details"]["causes"][0]["field"] == "spec.devices.requests[1].adminAccess"
        assert "requires the `resource.kubernetes.io/admin-access: true` label" in answer.json["message"]
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    assert api.call("PATCH", f"/api/v1/namespaces/{namespace}", label, media="application/merge-patch+json").code == 200
    made = api.create(claims(namespace), wanted)
    assert made["spec"]["devices"]["requests"][1]["exactly"]["adminAccess"] is True


def test_what_is_claimed_stays(api: Api, namespace: str) -> None:
    made = api.create(claims(namespace), claim())
    change = {"spec": {"devices": {"requests": [exactly(count=2)]}}}
    path = f"{claims(namespace)}/{made['metadata']['name']}"
    answer = api.call("PATCH", path, change, media="application/merge-patch+json")
    assert answer.code == 422
    assert "spec: Invalid value" in answer.json["message"]
    assert "field is immutable" in answer.json["message"]


def test_a_template_stays_too(api: Api, namespace: str) -> None:
    templates = f"{GROUP}/namespaces/{namespace}/resourceclaimtemplates"
    made = api.create(templates, {"metadata": {"name": "t"}, "spec": {"spec": claim()["spec"]}})
    assert made["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    change = {"spec": {"metadata": {"labels": {"a": "b"}}}}
    assert api.call("PATCH", f"{templates}/t", change, media="application/merge-patch+json").code == 422


def test_an_allocation_is_set_and_cleared_and_never_changed(api: Api, namespace: str) -> None:
    path, made = allocated(api, namespace, reservedFor=[CONSUMER])
    assert made["status"]["allocation"]["devices"]["results"] == [RESULT]
    assert made["status"]["reservedFor"] == [CONSUMER]
    other = {**made, "status": {**made["status"], "allocation": {"devices": {"results": [{**RESULT, "device": "gpu-1"}]}}}}
    answer = api.call("PUT", f"{path}/status", other)
    assert answer.code == 422
    assert "status.allocation: Invalid value" in answer.json["message"]
    cleared = api.call("PUT", f"{path}/status", {**made, "status": {}})
    assert cleared.code == 200
    assert not cleared.json.get("status")


def test_nobody_reserves_what_is_not_allocated(api: Api, namespace: str) -> None:
    made = api.create(claims(namespace), claim())
    path = f"{claims(namespace)}/{made['metadata']['name']}"
    answer = api.call("PUT", f"{path}/status", {**made, "status": {"reservedFor": [CONSUMER]}})
    assert answer.code == 422
    assert "status.reservedFor: Forbidden: may not be specified when `allocated` is not set" in answer.json["message"]


@pytest.mark.parametrize(("change", "cause"), [
    ({"reservedFor": [{**CONSUMER, "uid": f"u{i}"} for i in range(257)]}, "status.reservedFor: Too many: 257"),
    ({"reservedFor": [CONSUMER, CONSUMER]}, "status.reservedFor[1]: Duplicate value"),
    ({"reservedFor": [{**CONSUMER, "name": ""}]}, "status.reservedFor[0].name: Required value"),
    ({"devices": [{"driver": "gpu.example.com", "pool": "n1", "device": "gpu-9"}]}, "status.devices[0]"),
])  # fmt: skip
def test_a_status_that_contradicts_the_allocation_is_refused(api: Api, namespace: str, change: Json, cause: str) -> None:
    path, made = allocated(api, namespace)
    answer = api.call("PUT", f"{path}/status", {**made, "status": {**made["status"], **change}})
    assert answer.code == 422, answer.json
    assert cause in answer.json["message"]


def test_a_result_names_a_request_of_the_claim(api: Api, namespace: str) -> None:
    made = api.create(claims(namespace), claim())
    path = f"{claims(namespace)}/{made['metadata']['name']}"
    made["status"] = {"allocation": {"devices": {"results": [{**RESULT, "request": "other"}]}}}
    answer = api.call("PUT", f"{path}/status", made)
    assert answer.code == 422
    assert "must be the name of a request in the claim" in answer.json["message"]


def test_what_is_told_of_a_device_goes_with_its_allocation(api: Api, namespace: str) -> None:
    reported = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    path, made = allocated(api, namespace, devices=[reported])
    assert made["status"]["devices"][0]["device"] == "gpu-0"
    status = {key: value for key, value in made["status"].items() if key != "allocation"}
    cleared = api.call("PUT", f"{path}/status", {**made, "status": status})
    assert cleared.code == 200
    assert not cleared.json.get("status")


@pytest.mark.parametrize(("wanted", "cause"), [
    (slice_(nodeName=None), "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"),
    (slice_(allNodes=True), "but multiple fields are set"),
    (slice_(pool={"name": "n1", "generation": 1, "resourceSliceCount": 0}), "spec.pool.resourceSliceCount: Invalid value: 0"),
    (slice_(*({"name": f"gpu-{i}"} for i in range(129))), "spec.devices: Too many: 129: must have at most 128 items"),
    (slice_({"name": "gpu-0", "taints": [{"key": "a.example/b", "effect": "NoSchedule"}]},
            *({"name": f"g-{i}"} for i in range(64))),
     "spec.devices: Too many: 65: must have at most 64 items"),
    (slice_({"name": "gpu-0"}, {"name": "gpu-0"}), "spec.devices[1]: Duplicate value"),
    (slice_(sharedCounters=[{"name": "a", "counters": {"m": {"value": "1"}}}]),
     "only one of `sharedCounters` or `devices` is allowed"),
    (slice_({"name": "gpu-0", "attributes": {"a": {}}}), "exactly one value must be specified"),
    (slice_({"name": "gpu-0", "capacity": {"memory": {"value": "1Gi", "requestPolicy": {"default": "1Gi"}}}}),
     "allowMultipleAllocations must be true"),
    (slice_({"name": "gpu-0", "allowMultipleAllocations": True,
             "capacity": {"memory": {"value": "1Gi", "requestPolicy": {"validRange": {"min": "1Mi"}}}}}),
     "requestPolicy.default: Required value: required when validRange is defined"),
])  # fmt: skip
def test_a_slice_that_could_be_misread_is_refused(api: Api, wanted: Json, cause: str) -> None:
    answer = api.call("POST", f"{GROUP}/resourceslices", wanted)
    assert answer.code == 422, answer.json
    assert cause in answer.json["message"]


def test_slices_are_selected_by_node_and_driver_and_keep_both(api: Api) -> None:
    driver = f"d{next(_count)}.example.com"
    made = api.create(f"{GROUP}/resourceslices", slice_(driver=driver, nodeName="n7"))
    found = api.call("GET", f"{GROUP}/resourceslices?fieldSelector=spec.nodeName=n7,spec.driver={driver}").json
    assert [one["metadata"]["name"] for one in found["items"]] == [made["metadata"]["name"]]
    answer = api.call("PATCH", f"{GROUP}/resourceslices/{made['metadata']['name']}", {"spec": {"nodeName": "n8"}},
                      media="application/merge-patch+json")  # fmt: skip
    assert answer.code == 422
    assert "spec.nodeName: Invalid value" in answer.json["message"]


def test_a_class_may_change_and_its_selectors_have_to_compile(api: Api) -> None:
    name = f"class-{next(_count)}.example.com"
    made = api.create(f"{GROUP}/deviceclasses", {"metadata": {"name": name}, "spec": {}})
    assert made["metadata"]["generation"] == 1
    spec = {"selectors": [{"cel": {"expression": "device.driver == 'a'"}}]}
    assert api.merge(f"{GROUP}/deviceclasses/{name}", {"spec": spec})["metadata"]["generation"] == 2
    wrong = {"metadata": {"name": f"{name}.b"}, "spec": {"selectors": [{"cel": {"expression": "device.nothing"}}]}}
    answer = api.call("POST", f"{GROUP}/deviceclasses", wrong)
    assert answer.code == 422
    assert "spec.selectors[0].cel.expression: Invalid value" in answer.json["message"]
