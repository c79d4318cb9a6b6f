"""Objects that Kubernetes would not have stored are refused with the place that is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from kit.claims import asks, claim, device, published, shared_card

from pumice.claims.objects import claim_of, class_of, results_of, slice_of
from pumice.model.errors import BadInput


def _with(object_: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**object_, "spec": {**object_["spec"], **more}}


POLICY = {"default": "1", "validRange": {"min": "1"}}
NO_STEP = {"default": "1", "validRange": {"min": "1", "step": "0"}}
ADMIN = {"name": "s", "deviceClassName": "gpu", "adminAccess": True}


@pytest.mark.parametrize(("object_", "said"), [
    (published(*[device(f"d{at}") for at in range(129)]), "length <= 128 - at `spec.devices`"),
    (published(*[device(f"d{at}", "1Gi") for at in range(65)]), "65 devices; with taints or counters at most 64"),
    (published(device("d", capacity={"memory": {"value": "250Q"}})), "'250Q' is not a quantity"),
    (published(device("d", capacity={"memory": {"value": True}})), "True is not a quantity"),
    (published(device("d", attributes={"x": {"int": "1"}})), "`str` - at `spec.devices[0].attributes[...].int`"),
    (published(device("d", attributes={"x": {"int": 1, "string": "1"}})), "exactly one of int, bool, string and version"),
    (published(device("d", attributes={f"x{at}": {"int": 1} for at in range(33)})), "more than 32 attributes"),
    (published(device("d"), slices=0), "`int` >= 1 - at `spec.pool.resourceSliceCount`"),
    (published(device("d"), nodeName="n1", allNodes=True), "exactly one of nodeName"),
    (published(device("d"), perDeviceNodeSelection=True), "device d: nodeName, nodeSelector or allNodes"),
    (published(device("d", nodeName="n1")), "none without"),
    (published(device("d"), sharedCounters=[{"name": "s", "counters": {}}]), "either devices or sharedCounters"),
    (published(device("d", capacity={"m": {"value": "1", "requestPolicy": POLICY}})), "allow multiple allocations"),
    (published(shared_card(capacity={"m": {"value": "9", "requestPolicy": NO_STEP}})), "a step must be above 0"),
    (published(shared_card(capacity={"m": {"value": "9", "requestPolicy": {"validValues": ["1"]}}})), "need a default"),
])  # fmt: skip
def test_a_slice_that_nobody_could_have_stored(object_: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as problem:
        slice_of(object_)
    assert str(problem.value).startswith("ResourceSlice s0: ")
    assert said in str(problem.value)


@pytest.mark.parametrize(("object_", "said"), [
    (claim(*[asks(f"g{at}") for at in range(33)]), "length <= 32 - at `spec.devices.requests`"),
    (claim(asks(), asks()), "two requests have one name"),
    (claim({"name": "g"}), "exactly one of exactly and firstAvailable"),
    (claim({"name": "g", "exactly": {}}), "deviceClassName is missing"),
    (claim(asks(allocationMode="Some")), "neither ExactCount nor All"),
    (claim(asks(count=-1)), "`int` >= 0 - at `spec.devices.requests[0].exactly.count`"),
    (claim(asks(selectors=[{"rego": "x"}])), "selector 0 has no cel"),
    (claim(asks(), constraints=[{"nearAttribute": "a/b"}]), "constraint 0: exactly one of matchAttribute and distinctAttribute"),
    (claim({"name": "g", "firstAvailable": [ADMIN]}), "adminAccess is for exactly"),
    (claim({"name": "g", "firstAvailable": [{"deviceClassName": "gpu"}]}), "an alternative has no name"),
    (claim(asks(capacity={"memory": "lots"})), "'lots' is not a quantity"),
    ({"metadata": {"name": "c"}, "spec": "x"}, "Expected `object`, got `str`"),
])  # fmt: skip
def test_a_claim_that_nobody_could_have_stored(object_: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as problem:
        claim_of(object_)
    assert said in str(problem.value)


def test_a_template_is_read_as_the_claim_that_it_makes() -> None:
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": claim(asks(count=2))["spec"]}}
    (request,) = claim_of(template).devices.requests
    assert request.exactly is not None
    assert request.exactly.count == 2


def test_keys_of_later_versions_are_passed_over() -> None:
    assert slice_of(_with(published(device("d", compatibilityGroups=["x"])), later=1)).spec.devices[0].name == "d"
    assert class_of({"metadata": {"name": "gpu"}, "spec": {"later": 1}}).name == "gpu"


def test_a_claim_without_an_allocation_holds_nothing() -> None:
    assert results_of(claim(asks())) == ()
    with pytest.raises(BadInput, match="driver"):
        results_of({**claim(asks()), "status": {"allocation": {"devices": {"results": [{"device": "d"}]}}}})
