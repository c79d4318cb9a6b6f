"""Cards by claim: what a node publishes of them, and when a claim is refused whatever its allocation says."""

from __future__ import annotations

from typing import Any

import pytest

from pumice.claims.objects import slice_of
from pumice.devices.nvidia_vgpu.node.claims import BOTH, SHARED, WHOLE, prepare, slice_specs
from pumice.node.claims import ClaimShare, Holdings, PreparedClaim, crowded, slice_object
from pumice.ports.cards import CardFacts

VGPU = "volcano.sh/vgpu-number".__eq__
GIB = 1 << 30
CARDS = tuple(CardFacts(at, f"GPU-{at}", "NVIDIA A100", 80 * GIB + 5, minor=at, bus_id=f"00000000:0{at}:00.0")
              for at in range(2))  # fmt: skip


def claim(*shares: tuple[str, str], name: str = "c", memory: str = "4Gi", cores: str = "10", **result: Any) -> dict[str, Any]:
    """``shares``: requests and devices."""
    results = [{"request": request, "driver": "gpu.pumice.io", "pool": "n1", "device": device,
                **({"shareID": f"s{at}", "consumedCapacity": {"memory": memory, "cores": cores}} if "shared" in device else {}),
                **result} for at, (request, device) in enumerate(shares)]  # fmt: skip
    return {"metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
            "status": {"allocation": {"devices": {"results": results}},
                       "reservedFor": [{"resource": "pods", "uid": "p"}]}}  # fmt: skip


def held(name: str, gib: int, cores: int = 10, card: str = "GPU-0", *, whole: bool = False) -> PreparedClaim:
    return PreparedClaim(f"uid-{name}", "default", name, (ClaimShare("gpu", "d", card, gib * GIB, cores, whole=whole),))


def refused(found: Any) -> str:
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize(("worlds", "devices"), [
    (SHARED, ["gpu-0-shared", "gpu-1-shared"]), (WHOLE, ["gpu-0", "gpu-1"]),
    (BOTH, ["gpu-0-shared", "gpu-0", "gpu-1-shared", "gpu-1"]),
])  # fmt: skip
def test_a_card_is_published_in_the_worlds_that_were_asked_for(worlds: str, devices: list[str]) -> None:
    specs = slice_specs("n1", CARDS, worlds, {}, 3)
    assert [device["name"] for spec in specs for device in spec.get("devices", ())] == devices
    assert {spec["pool"]["resourceSliceCount"] for spec in specs} == {len(specs)}
    for at, spec in enumerate(specs):
        slice_of(slice_object(spec, at, {}, 3))


def test_nine_cards_take_two_slices_of_counters_for_a_slice_has_eight_sets() -> None:
    cards = [CardFacts(at, f"GPU-{at}", "A", GIB, minor=at) for at in range(40)]
    specs = slice_specs("n1", cards, BOTH, {}, 1)
    assert [len(spec.get("sharedCounters", ())) for spec in specs] == [8, 8, 8, 8, 8, 0, 0]
    assert [len(spec.get("devices", ())) for spec in specs[-2:]] == [64, 16]


def test_memory_is_published_in_whole_mib_and_a_sick_card_stays_with_a_taint() -> None:
    [spec] = slice_specs("n1", CARDS, SHARED, {"GPU-1": ["gpu.pumice.io/unhealthy"]}, 1)
    assert spec["devices"][0]["capacity"]["memory"]["value"] == str(80 * GIB)
    assert spec["devices"][1]["taints"] == [{"key": "gpu.pumice.io/unhealthy", "effect": "NoSchedule"}]


@pytest.mark.parametrize("worlds", [SHARED, BOTH])
def test_each_capacity_of_a_card_that_is_shared_has_a_policy(worlds: str) -> None:
    shared = [one for spec in slice_specs("n1", CARDS, worlds, {}, 1) for one in spec.get("devices", ())
              if one.get("allowMultipleAllocations")]  # fmt: skip
    assert len(shared) == len(CARDS)
    for capacity in (one for device in shared for one in device["capacity"].values()):
        policy = capacity["requestPolicy"]
        assert policy["default"] == policy["validRange"]["max"] == capacity["value"]


def test_a_node_without_cards_says_that_its_driver_is_there() -> None:
    assert slice_specs("n1", (), SHARED, {}, 1)[0]["devices"] == []


def test_a_claim_gets_what_it_consumes_and_memory_in_whole_mib() -> None:
    found = prepare(claim(("gpu", "gpu-0-shared"), memory="3001024512"), "uid-c", "n1", CARDS, Holdings())
    assert isinstance(found, PreparedClaim)
    assert found.shares == (ClaimShare("gpu", "gpu-0-shared", "GPU-0", 3001024512 // (1 << 20) * (1 << 20), 10, share="s0"),)


def test_the_cards_sum_is_counted_anew_and_the_others_are_named() -> None:
    others = Holdings([held("a", 40), held("b", 38)])
    text = refused(prepare(claim(("gpu", "gpu-0-shared")), "uid-c", "n1", CARDS, others))
    assert "card GPU-0 has memory" in text
    assert "default/a, default/b" in text
    assert isinstance(prepare(claim(("gpu", "gpu-1-shared")), "uid-c", "n1", CARDS, others), PreparedClaim)
    text = refused(prepare(claim(("gpu", "gpu-0-shared"), cores="95"), "uid-c", "n1", CARDS, Holdings([held("a", 1)])))
    assert "has cores 100, and with what default/a holds it would be 105" in text


def test_two_requests_of_one_claim_on_one_card_count_both() -> None:
    two = claim(("a", "gpu-0-shared"), ("b", "gpu-0-shared"), memory="41Gi")
    assert "default/c holds" in refused(prepare(two, "uid-c", "n1", CARDS, Holdings()))


def test_a_card_is_not_given_whole_and_in_shares() -> None:
    text = refused(prepare(claim(("gpu", "gpu-0")), "uid-c", "n1", CARDS, Holdings([held("a", 1)])))
    assert "would be given whole and in shares; it is held by default/a" in text
    text = refused(prepare(claim(("gpu", "gpu-0-shared")), "uid-c", "n1", CARDS, Holdings([held("a", 80, whole=True)])))
    assert "default/a" in text


def test_a_card_with_annotated_shares_is_refused_naming_both() -> None:
    others = Holdings((), {"GPU-0": "shared by annotated pods (default/p)"})
    text = refused(prepare(claim(("gpu", "gpu-0-shared")), "uid-c", "n1", CARDS, others))
    assert "claim default/c: card GPU-0 is shared by annotated pods (default/p)" in text


@pytest.mark.parametrize(("changed", "why"), [
    ({"adminAccess": True}, "its specification does not ask for it"),
    ({"device": "gpu-7-shared"}, "device gpu-7-shared is not on this node"),
    ({"shareID": ""}, "says neither how much"), ({"consumedCapacity": {}}, "says neither how much"),
    ({"pool": "n2"}, "is allocated nothing"), ({"driver": "gpu.nvidia.com"}, "is allocated nothing"),
])  # fmt: skip
def test_an_allocation_that_cannot_be_meant_is_refused(changed: dict[str, Any], why: str) -> None:
    assert why in refused(prepare(claim(("gpu", "gpu-0-shared"), **changed), "uid-c", "n1", CARDS, Holdings()))


@pytest.mark.parametrize(("consumed", "why"), [
    ({"memory": "4Gi", "cores": "250m"}, "0.25 cores"), ({"memory": "4Gi", "cores": "1500m"}, "1.5 cores"),
    ({"memory": "4Gi", "cores": "-10"}, "-10 cores"), ({"memory": "-4Gi", "cores": "10"}, "-4.29497e+09 bytes"),
    ({"memory": "250m", "cores": "10"}, "0.25 bytes"), ({"memory": "1Ki", "cores": "10"}, "1024 bytes"),
    ({"memory": "0", "cores": "10"}, "says neither"), ({"memory": "1e30", "cores": "1"}, "has memory"),
    ({"memory": ["4Gi"], "cores": "1"}, "not a quantity"),
])  # fmt: skip
def test_a_status_that_would_mean_no_limit_or_a_negative_one_is_refused(consumed: Any, why: str) -> None:
    assert why in refused(prepare(claim(("gpu", "gpu-0-shared"), consumedCapacity=consumed), "uid-c", "n1", CARDS, Holdings()))


def test_a_request_that_was_given_one_card_twice_is_refused() -> None:
    twice = claim(("gpu", "gpu-0-shared"), ("gpu", "gpu-0-shared"))
    assert "request gpu was given card GPU-0 twice" in refused(prepare(twice, "uid-c", "n1", CARDS, Holdings()))


def test_the_slices_of_a_node_with_a_long_name_have_names_that_an_api_server_takes() -> None:
    [spec] = slice_specs("n" * 253, CARDS, SHARED, {}, 1)
    [other] = slice_specs("n" * 252 + "m", CARDS, SHARED, {}, 1)
    names = [slice_object(one, 0, {}, 9)["metadata"]["name"] for one in (spec, other)]
    assert len(set(names)) == 2
    assert max(map(len, names)) <= 253


def test_a_claim_of_the_same_name_is_another_one() -> None:
    one = claim(("gpu", "gpu-0-shared"))
    assert "another one now" in refused(prepare(one, "old", "n1", CARDS, Holdings()))


V1BETA1 = "resource.nvidia.com/v1beta1"


def configured(parameters: Any, driver: str = "gpu.pumice.io") -> Any:
    one = claim(("gpu", "gpu-0-shared"))
    config = {"source": "FromClaim", "opaque": {"driver": driver, "parameters": parameters}}
    one["status"]["allocation"]["devices"]["config"] = [config]
    return prepare(one, "uid-c", "n1", CARDS, Holdings())


@pytest.mark.parametrize("sharing", [
    {}, {"sharing": None}, {"sharing": {"strategy": "TimeSlicing"}},
    {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}}},
])  # fmt: skip
def test_nvidias_parameters_are_taken_where_they_mean_what_a_share_is(sharing: dict[str, Any]) -> None:
    assert isinstance(configured({"apiVersion": V1BETA1, "kind": "GpuConfig", **sharing}), PreparedClaim)
    if "timeSlicingConfig" not in (sharing.get("sharing") or {}):
        assert isinstance(configured({"apiVersion": V1BETA1, "kind": "MigDeviceConfig", **sharing}), PreparedClaim)
    assert isinstance(configured("of another driver", driver="gpu.nvidia.com"), PreparedClaim)


@pytest.mark.parametrize(("parameters", "why"), [
    ({"kind": "GpuConfig"}, "apiVersion '' (kind GpuConfig) is not known"),
    ({"apiVersion": "resource.nvidia.com/v1", "kind": "GpuConfig"}, "which reads resource.nvidia.com/v1beta1"),
    ({"apiVersion": V1BETA1, "kind": "MigDeviceConfig", "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}},
     "MigDeviceConfig has no timeSlicingConfig"),
    ({"apiVersion": V1BETA1, "kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}, "strategy MPS is not served"),
    ({"apiVersion": V1BETA1, "kind": "MigDeviceConfig", "profile": "1g.5gb"}, "MigDeviceConfig: "),
    ({"apiVersion": V1BETA1, "kind": "VfioDeviceConfig"}, "kind VfioDeviceConfig is not served"),
    ({"apiVersion": V1BETA1, "kind": "GpuConfig", "sharing": {"strategy": "MPS"}}, "give it --mps-root, or leave config out"),
    ({"apiVersion": V1BETA1, "kind": "GpuConfig", "sharing": {"strategy": "MPS", "timeSlicingConfig": {}}}, "stands beside"),
    ({"apiVersion": V1BETA1, "kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": {"threads": 5}}}, "unknown field"),
    ({"apiVersion": V1BETA1, "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing",
      "timeSlicingConfig": {"interval": "Long"}}}, "interval 'Long' is not set for a share"),
    ({"apiVersion": V1BETA1, "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}}, "mpsConfig"),
    ({"apiVersion": V1BETA1, "kind": "GpuConfig", "share": {}}, "unknown field `share`"),
    ({"apiVersion": V1BETA1, "kind": "GpuConfig", "sharing": "MPS"}, "Expected `object"),
    ({"apiVersion": V1BETA1, "kind": "GpuConfig", "sharing": {}}, "strategy '' is not known"),
    ("text", "no object"), (None, "no object"), (["x"], "no object"),
])  # fmt: skip
def test_other_parameters_are_refused_by_name(parameters: Any, why: str) -> None:
    found = refused(configured(parameters))
    assert "claim default/c: opaque parameters of the claim: " in found
    assert why in found


def by_mps(
    config: Any = None, *shares: tuple[str, str], memory: str = str(80 * GIB), requests: Any = (), cards: Any = CARDS
) -> PreparedClaim | str:
    """A claim whose parameters ask for MPS, on a node that keeps daemons."""
    one = claim(*(shares or (("gpu", "gpu-0-shared"),)), memory=memory, cores="100")
    sharing = {"strategy": "MPS", **({"mpsConfig": config} if config is not None else {})}
    parameters = {"apiVersion": V1BETA1, "kind": "GpuConfig", "sharing": sharing}
    one["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClaim", "requests": list(requests), "opaque": {"driver": "gpu.pumice.io", "parameters": parameters}}]
    return prepare(one, "uid-c", "n1", cards, Holdings(), mps=True)


def bounds(found: Any) -> list[tuple[int, int] | None]:
    assert isinstance(found, PreparedClaim), found
    return [None if one.mps is None else (one.mps.mib, one.mps.percent) for one in found.shares]


PERCENT, LIMIT, OF_CARD = ("defaultActiveThreadPercentage", "defaultPinnedDeviceMemoryLimit", "defaultPerDevicePinnedMemoryLimit")


@pytest.mark.parametrize(("config", "expected"), [
    (None, (81920, 100)), ({}, (81920, 100)), ({PERCENT: 50, LIMIT: "10Gi"}, (10240, 50)), ({LIMIT: "900Gi"}, (81920, 100)),
    ({LIMIT: "10Gi", OF_CARD: {"GPU-0": "2Gi"}}, (2048, 100)), ({OF_CARD: {"0": "3G"}}, (2861, 100)),
])  # fmt: skip
def test_programs_of_a_claim_with_a_card_alone_share_it_by_mps_as_its_parameters_say(config: Any, expected: Any) -> None:
    for device in ("gpu-0-shared", "gpu-0"):
        assert bounds(by_mps(config, ("gpu", device))) == [expected]
    two = ("a", "gpu-0-shared"), ("b", "gpu-1-shared")
    assert bounds(by_mps({OF_CARD: {"1": "2Gi"}}, *two)) == [(81920, 100), (2048, 100)]
    assert bounds(by_mps(config, *two, requests=["a"])) == [expected, None]


@pytest.mark.parametrize(("config", "shares", "more", "why"), [
    ({PERCENT: 0}, (), {}, "defaultActiveThreadPercentage 0 is not from 1 to 100"),
    ({LIMIT: "1Ki"}, (), {}, "is 1024 bytes; the least is 1Mi"), ({LIMIT: "much"}, (), {}, "a limit of pinned memory: "),
    ({OF_CARD: {"7": "1Gi"}}, (), {}, "'7' is neither the UUID nor the number of a card of the claim"),
    ({OF_CARD: {"9" * 5000: "1Gi"}}, (), {}, "9' is neither the UUID nor the number of a card of the claim"),
    (None, (), {"memory": "4Gi"}, "strategy MPS takes a card alone, and request gpu has a part of it: ask for no capacity"),
    (None, (("gpu", "gpu-0"), ("gpu", "gpu-1")), {}, "request gpu has 2 cards, and under MPS a container reaches the"),
    (None, (), {"cards": [CardFacts(0, "GPU-0", "NVIDIA GTX 1080 Ti", 80 * GIB, minor=0, capability=(6, 1))]},
     "MPS bounds nobody below compute capability 7.0, and card GPU-0 has 6.1"),
])  # fmt: skip
def test_where_mps_cannot_be_had_by_claim_the_refusal_says_what_to_do(config: Any, shares: Any, more: Any, why: str) -> None:
    found = refused(by_mps(config, *shares, **more))
    assert found.startswith("claim default/c: opaque parameters of the claim: ")
    assert why in found


def test_later_parameters_count_before_earlier_ones_and_those_of_cards_say_nothing_of_slices() -> None:
    one = claim(("gpu", "gpu-0"))
    parameters = [{"apiVersion": V1BETA1, "kind": "GpuConfig", "sharing": {"strategy": word}} for word in ("MPS", "TimeSlicing")]
    one["status"]["allocation"]["devices"]["config"] = [
        {"source": source, "opaque": {"driver": "gpu.pumice.io", "parameters": each}}
        for source, each in zip(("FromClass", "FromClaim"), parameters, strict=True)]  # fmt: skip
    assert bounds(prepare(one, "uid-c", "n1", CARDS, Holdings(), mps=True)) == [None]


def test_a_container_is_held_to_one_request() -> None:
    one = claim(("a", "gpu-0-shared"), ("b", "gpu-1-shared"))
    mine = prepare(one, "uid-c", "n1", CARDS, Holdings())
    assert isinstance(mine, PreparedClaim)

    def pod(*claims: dict[str, str]) -> dict[str, Any]:
        spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
                "containers": [{"name": f"c{at}", "resources": {"claims": [used]}}
                               for at, used in enumerate(claims)]}  # fmt: skip
        return {"metadata": {"namespace": "default", "name": "p", "uid": "p"}, "spec": spec}

    assert crowded(one, mine, [pod({"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"})], [], VGPU) == ""
    assert "container c0 of pod p names requests c/a, c/b" in crowded(one, mine, [pod({"name": "gpu"})], [], VGPU)


@pytest.mark.parametrize(("limits", "mapped", "refused"), [
    ({"volcano.sh/vgpu-number": 1}, [], True), ({"volcano.sh/vgpu-number": "0"}, [], False), ({"cpu": 1}, [], False),
    ({"volcano.sh/vgpu-number": 1}, ["main"], False), ({"volcano.sh/vgpu-number": 1}, ["other"], True)])  # fmt: skip
def test_a_container_with_an_annotated_share_gets_no_claim_beside_it(limits: Any, mapped: list[str], refused: bool) -> None:
    """Each is a limits page at one path: the mount of either would hide the other. A class may stand for the resource."""
    one = claim(("a", "gpu-0-shared"))
    mine = prepare(one, "uid-c", "n1", CARDS, Holdings())
    assert isinstance(mine, PreparedClaim)
    container = {"name": "main", "resources": {"limits": limits, "claims": [{"name": "gpu"}]}}
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}], "containers": [container]}
    status = {"extendedResourceClaimStatus": {"requestMappings": [{"containerName": name} for name in mapped]}}
    pod = {"metadata": {"namespace": "default", "name": "p", "uid": "p"}, "spec": spec, "status": status}
    why = crowded(one, mine, [pod], [], VGPU)
    assert bool(why) is refused
    assert not refused or why.startswith("container main of pod p names requests c/a and asks for volcano.sh/vgpu-number:")
