"""With --worlds hami: what HAMi's driver publishes and its class selects, and shares that are held to what they got."""

from __future__ import annotations

from typing import Any

import pytest
from kit.claims import Cluster, asks
from kit.claims import claim as asking
from tests.unit.devices.nvidia_vgpu.node.test_claims import refused

from pumice.devices.nvidia_vgpu.node.claims import HAMI, prepare, slice_specs
from pumice.node.claims import ClaimShare, Holdings, PreparedClaim, owner_of, slice_object
from pumice.ports.cards import CardFacts
from pumice.wire.names import HAMI_CLAIM_DRIVER

GIB = 1 << 30
CARD = CardFacts(0, "GPU-0", "NVIDIA A100", 80 * GIB + 5, minor=3, bus_id="00000000:0A:00.0", capability=(8, 0))
MEMORY = str(80 * GIB)
SLICE = {
    "driver": "hami-core-gpu.project-hami.io", "nodeName": "n1",
    "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
    "devices": [{
        "name": "hami-gpu-3", "allowMultipleAllocations": True,
        "attributes": {
            "type": {"string": "hami-gpu"}, "uuid": {"string": "GPU-0"}, "productName": {"string": "NVIDIA A100"},
            "minor": {"int": 3}, "pcieBusID": {"string": "0000:0a:00.0"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:0a:00.0"}, "cudaComputeCapability": {"version": "8.0.0"},
        },
        "capacity": {
            "memory": {"value": MEMORY, "requestPolicy": {
                "default": MEMORY, "validRange": {"min": "1Mi", "max": MEMORY, "step": "1Mi"}}},
            "cores": {"value": "100", "requestPolicy": {
                "default": "100", "validRange": {"min": "0", "max": "100", "step": "1"}}},
        },
    }],
}  # fmt: skip
CLASS = ("device.driver == 'hami-core-gpu.project-hami.io' && "
         "device.attributes['hami-core-gpu.project-hami.io'].type == 'hami-gpu'")  # fmt: skip
"""The selector of the class in HAMi's chart (Project-HAMi/k8s-dra-driver chart/hami-dra-driver)."""


def test_a_card_is_published_as_hamis_driver_does() -> None:
    assert slice_specs("n1", [CARD], HAMI, {}, 1) == [SLICE]
    assert slice_object(SLICE, 0, {}, 1)["metadata"]["name"] == "00000-hami-core-gpu.project-hami.io-n1-1"


def allocated(memory: str, cores: str) -> dict[str, Any]:
    """As the scheduler's allocator gives it by HAMi's class."""
    world = Cluster(slice_object(SLICE, 0, owner_of("n1", "u"), 1))
    assert world.gives(asking(asks(expression=CLASS, capacity={"memory": memory, "cores": cores}))) == ["g hami-gpu-3"]
    status = {"allocation": {"devices": {"results": world.last}}}
    return {"metadata": {"namespace": "default", "name": "c", "uid": "u"}, "status": status}


def prepared(claim: dict[str, Any]) -> PreparedClaim | str:
    return prepare(claim, "u", "n1", [CARD], Holdings(), driver=HAMI_CLAIM_DRIVER)


@pytest.mark.parametrize(("cores", "held"), [("50", 50), ("0", 0)])
def test_a_claim_of_hamis_class_is_held_to_its_share_and_0_cores_are_no_limit_as_hami_means_them(cores: str, held: int) -> None:
    found = prepared(allocated("3000Mi", cores))
    assert isinstance(found, PreparedClaim)
    [share] = found.shares
    assert share == ClaimShare("g", "hami-gpu-3", "GPU-0", 3000 << 20, held, share=share.share)


def test_a_claim_of_the_other_name_is_not_this_drivers_and_no_name_lifts_a_limit() -> None:
    claim = allocated("3000Mi", "0")
    assert "allocated nothing of gpu.pumice.io" in refused(prepare(claim, "u", "n1", [CARD], Holdings()))
    claim["status"]["allocation"]["devices"]["results"][0]["driver"] = "gpu.pumice.io"
    assert "is not on this node" in refused(prepare(claim, "u", "n1", [CARD], Holdings()))
