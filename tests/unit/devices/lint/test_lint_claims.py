"""``pumice lint`` on claims, classes, slices and quotas by class: each mistake on its line, with what would be right."""

from __future__ import annotations

import pytest

from pumice.devices.lint import lint_files

CLAIM = """apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.example.com
        selectors:
        - cel: {expression: "SELECTOR"}
        capacity: {requests: {KEY: 3Gi}}
"""
CLASS = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: CLASS}\nspec: {}\n"
SLICE = """apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: d, allowMultipleAllocations: true, capacity: {memory: {value: 80Gi}}}
"""


def claim(selector: str = "true", key: str = "memory") -> str:
    return CLAIM.replace("SELECTOR", selector).replace("KEY", key)


def found(*texts: str) -> list[str]:
    files = {f"{at}.yaml": text for at, text in enumerate(texts)}
    return [str(finding) for finding in lint_files(files)]


def test_a_claim_with_its_class_and_slice_is_in_order() -> None:
    assert found(claim("device.attributes['gpu.example.com'].uuid != ''"), CLASS.replace("CLASS", "gpu.example.com"), SLICE) == []
    assert found(claim()) == []


def test_a_selector_that_does_not_compile_is_an_error_on_its_line() -> None:
    (said,) = found(claim("device.memory > 3"))
    assert said.startswith("0.yaml:11: error: the selector does not compile: ")


def test_a_class_that_is_not_there_and_a_key_that_no_device_has_are_named_with_what_was_meant() -> None:
    said = found(claim(key="gpu.example.com/memory"), CLASS.replace("CLASS", "gpu.example.org"), SLICE)
    assert said == [
        "0.yaml:7: warning: request gpu: no DeviceClass gpu.example.com among these files; did you mean 'gpu.example.org'?",
        "0.yaml:7: warning: request gpu: no device of these files has a capacity gpu.example.com/memory; did you mean 'memory'?",
    ]


def test_an_object_that_cannot_be_stored_and_one_of_an_older_version_are_told() -> None:
    (said,) = found(SLICE.replace("resourceSliceCount: 1", "resourceSliceCount: 0"))
    assert said.startswith("0.yaml:4: error: ResourceSlice s: ")
    (said,) = found(claim().replace("resource.k8s.io/v1", "resource.k8s.io/v1beta1"))
    assert said == "0.yaml:1: warning: resource.k8s.io/v1beta1 is not looked at; the scheduler reads resource.k8s.io/v1"


@pytest.mark.parametrize(("quota", "text"), [
    ('"deviceclass/": "2"', "deviceclass/ names no class: write deviceclass/CLASS, or CAPACITY.deviceclass/CLASS"),
    ('"xdeviceclass/gpu": "2"', "xdeviceclass/gpu names no class: write deviceclass/CLASS, or CAPACITY.deviceclass/CLASS"),
    ('"deviceclass/gpu": "two"', "deviceclass/gpu: 'two' is no quantity; it bounds nothing"),
    ('"deviceclass/gpu": "0"', "deviceclass/gpu: 0 devices is no bound, as with Volcano; leave it out"),
])  # fmt: skip
def test_a_quota_by_class_that_bounds_nothing_is_told(quota: str, text: str) -> None:
    obj = ("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec:\n  capability:\n    "
           f"{quota}\n    memory.deviceclass/gpu: 80Gi\n")  # fmt: skip
    assert found(obj) == [f"0.yaml:6: warning: {text}"]


@pytest.mark.parametrize("text", ["kind: ResourceClaim\nspec: [1]\n", "kind: Queue\nspec: {capability: [deviceclass/x]}\n",
                                  "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec: nonsense\n"])  # fmt: skip
def test_nonsense_ends_in_findings_and_not_in_a_traceback(text: str) -> None:
    assert all("Traceback" not in one for one in found(text))
