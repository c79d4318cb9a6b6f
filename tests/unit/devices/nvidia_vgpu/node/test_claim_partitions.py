"""Cards in MIG mode as devices: what claims are allocated by their counters is what NVIDIA's driver can cut."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kit.claims import Cluster, asks, claim
from kit.mig_rules import RULES, RuledSlices

from pumice.claims.objects import slice_of
from pumice.devices.nvidia_vgpu.node.claims import BOTH, SHARED, WHOLE, partition_named, partitions, slice_specs
from pumice.node.claims import slice_object
from pumice.ports.cards import CardFacts
from pumice.ports.slices import CutRefused

Json = dict[str, Any]
MIXED = (CardFacts(0, "GPU-0", "NVIDIA A100-SXM4-80GB", 80 << 30, minor=0, mig=True),
         CardFacts(1, "GPU-1", "NVIDIA A100-SXM4-80GB", 80 << 30, minor=1))  # fmt: skip


def published(
    cards: tuple[CardFacts, ...], slices: RuledSlices, worlds: str = SHARED, **taints: list[str]
) -> list[Json]:
    offers = {card.uuid: slices.profiles(card.uuid) for card in cards if card.mig}
    marked = {uuid.replace("_", "-"): keys for uuid, keys in taints.items()}
    specs = slice_specs("n1", cards, worlds, marked, 1, offers)
    assert {spec["pool"]["resourceSliceCount"] for spec in specs} == {len(specs)}
    return [slice_object(spec, at, {}, 1) for at, spec in enumerate(specs)]


def devices(objects: list[Json]) -> dict[str, Json]:
    return {one["name"]: one for object_ in objects for one in object_["spec"].get("devices", ())}


@pytest.mark.parametrize("model", RULES)
def test_9_what_is_allocated_of_a_card_in_mig_mode_is_what_its_driver_can_cut(model: str) -> None:
    """Random claims by profile: what the allocator gives the driver cuts, and what it refuses has no room there either."""
    card = CardFacts(0, "GPU-0", f"NVIDIA {model}", 80 << 30, minor=0, mig=True)
    rng = random.Random(model)
    profiles = [one.name for one in RuledSlices({"GPU-0": model}).profiles("GPU-0")]
    assert {
        one.place.profile for one in partitions(card, {"GPU-0": RuledSlices({"GPU-0": model}).profiles("GPU-0")})
    } == set(profiles)
    for _ in range(6):
        slices = RuledSlices({"GPU-0": model})
        offers = {"GPU-0": slices.profiles("GPU-0")}
        world = Cluster(*published((card,), slices))
        for _ in range(9):
            profile = rng.choice(profiles)
            found = world.gives(claim(asks(expression=f"device.attributes['gpu.pumice.io'].profile == '{profile}'")))
            if (one := partition_named(found[0].removeprefix("g "), (card,), offers)) is not None and len(found) == 1:
                slices.make(one.place)
                slices.fill(one.place)
            else:
                for part in (part for part in partitions(card, offers) if part.place.profile == profile):
                    with pytest.raises(CutRefused):
                        slices.make(part.place)


def test_a_card_in_mig_mode_is_its_slices_in_whatever_world_and_the_card_beside_it_is_shared() -> None:
    slices = RuledSlices({"GPU-0": "A100-SXM4-80GB"})
    for worlds, other in ((SHARED, ["gpu-1-shared"]), (WHOLE, ["gpu-1"]), (BOTH, ["gpu-1-shared", "gpu-1"])):
        objects = published(MIXED, slices, worlds)
        found = devices(objects)
        assert [name for name in found if "mig" not in name] == other
        one = found["gpu-0-mig-1g10gb-19-4"]
        assert one["attributes"]["profile"] == {"string": "1g.10gb"}
        assert one["attributes"]["parentUUID"] == {"string": "GPU-0"}
        assert one["capacity"]["memory"] == {"value": str(9728 << 20)}
        [drawn] = one["consumesCounters"]
        assert drawn["counterSet"] == "gpu-0-counter-set"
        assert drawn["counters"]["memory-slice-4"] == {"value": "1"}
        assert [sets["name"] for object_ in objects for sets in object_["spec"].get("sharedCounters", ())] == [
            "gpu-0-counter-set", *(["gpu-1-counter-set"] if worlds == BOTH else [])]  # fmt: skip


def test_a_node_of_eight_such_cards_takes_several_slices_within_the_limits_of_the_api() -> None:
    cards = tuple(CardFacts(at, f"GPU-{at}", "NVIDIA H100-SXM5-80GB", 80 << 30, minor=at, mig=True) for at in range(9))
    objects = published(cards, RuledSlices({card.uuid: "H100-SXM5-80GB" for card in cards}))
    assert len(objects) > 3
    for one in objects:
        slice_of(one)
        spec = one["spec"]
        assert len(spec.get("devices", ())) <= 64
        assert len(spec.get("sharedCounters", ())) <= 8
        assert ("devices" in spec) != ("sharedCounters" in spec)
        assert all(len(sets["counters"]) <= 32 for sets in spec.get("sharedCounters", ()))
        assert all(len(device["attributes"]) + len(device["capacity"]) <= 32 for device in spec.get("devices", ()))


def test_12_slices_of_a_card_that_is_sick_stay_published_and_take_no_more() -> None:
    slices = RuledSlices({"GPU-0": "A100-SXM4-80GB"})
    well = published(MIXED[:1], slices)
    world = Cluster(*well)
    assert len(world.gives(claim(asks()))) == 1
    sick = published(MIXED[:1], slices, GPU_0=["gpu.pumice.io/unhealthy"])
    assert devices(sick).keys() == devices(well).keys()
    world.publish(*sick)
    assert not world.would_give(claim(asks()))
    world.publish(*well)
    assert not world.would_give(claim(asks(expression="device.attributes['gpu.pumice.io'].profile == '7g.80gb'")))


def test_a_model_whose_profiles_nobody_knows_and_a_card_that_tells_none_publish_nothing() -> None:
    strange = CardFacts(0, "GPU-0", "NVIDIA X1", 80 << 30, minor=0, mig=True)
    assert not devices(published((strange,), RuledSlices({"GPU-0": "A100-SXM4-80GB"})))
    assert not devices(published(MIXED[:1], RuledSlices({"GPU-0": ""})))
