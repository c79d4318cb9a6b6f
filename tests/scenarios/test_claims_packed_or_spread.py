"""Devices by claim are packed or spread by the names that cards are: between nodes, and on a node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from kit.claims import COUNTERS, asks, claim, device, of_memory, published, shared_card
from kit.device_claims import GPU, ClaimWorld, cards, whole
from kit.mig_rules import RuledSlices
from kit.objects import node
from kit.scheduler_confs import conf, sharing

from pumice.devices.nvidia_vgpu.node.claims import slice_specs
from pumice.model.cards import Allocation
from pumice.node.claims import slice_object
from pumice.ports.cards import CardFacts
from pumice.scheduler.placing.claim_search import ClaimSearch
from pumice.scheduler.state.classes import PodClass

Json = dict[str, Any]


def world_by(policy: str, nodes: int = 1, each: int = 3) -> ClaimWorld:
    world = ClaimWorld(conf("predicates", sharing("VGPU", SchedulePolicy=policy)) if policy else conf("predicates"))
    world.publish(GPU)
    for at in range(nodes):
        name = f"n{at}"
        world.add(node(name))
        slice_ = published(*(shared_card(f"card-{number}") for number in range(each)), name=name, pool=name, nodeName=name)
        world.publish({"kind": "ResourceSlice", **slice_})
    return world


def ask(world: ClaimWorld, name: str, *specs: Json) -> list[str]:
    world.ask(name, *specs)
    world.settle()
    return [place for at in range(len(specs)) for place in world.devices_of(f"{name}-c{at}")]


@pytest.mark.parametrize(("policy", "places"), [
    ("", ["n0/card-0", "n0/card-0", "n0/card-0"]),
    ("binpack", ["n0/card-0", "n0/card-0", "n0/card-0"]),
    ("lookahead", ["n0/card-0", "n0/card-0", "n0/card-0"]),
    ("spread", ["n0/card-0", "n1/card-0", "n0/card-1"]),
])  # fmt: skip
def test_shares_of_ten_gib_come_one_after_the_other(policy: str, places: list[str]) -> None:
    world = world_by(policy, nodes=2, each=2)
    assert [ask(world, name, of_memory("10Gi", cores="10"))[0] for name in "abc"] == places


def test_the_fullest_card_that_has_room_takes_a_share_and_the_drivers_order_would_open_the_first() -> None:
    on = "device.attributes['gpu.example.com'].uuid == 'GPU-card-2'"
    for policy, card in (("binpack", "n0/card-2"), ("fgd", "n0/card-2"), ("", "n0/card-0"), ("spread", "n0/card-0")):
        world = world_by(policy)
        ask(world, "first", claim(asks(expression=on, capacity={"memory": "40Gi", "cores": "10"})))
        assert ask(world, "next", of_memory("20Gi", cores="10")) == [card]
        assert ask(world, "large", of_memory("50Gi", cores="10"))[0] != "n0/card-2"


def test_the_node_whose_cards_are_fuller_takes_the_next_pod_and_the_emptier_one_where_pods_are_spread() -> None:
    for policy, expected in (("binpack", "n1"), ("spread", "n0")):
        world = world_by(policy, nodes=2)
        world.ask("first", of_memory("10Gi", cores="10"), nodeSelector={"kubernetes.io/hostname": "n1"})
        world.settle()
        assert ask(world, "next", of_memory("10Gi", cores="10"))[0].split("/")[0] == expected


def test_whole_cards_are_packed_node_by_node() -> None:
    world = ClaimWorld(conf("predicates", sharing("VGPU", SchedulePolicy="binpack")))
    world.nodes_with(3, 2)
    assert [ask(world, name, whole())[0].split("/")[0] for name in "abcd"] == ["n0", "n0", "n1", "n1"]
    world.delete_pod("a")
    world.settle()
    assert ask(world, "e", whole())[0].split("/")[0] == "n0"


def partitions(name: str, *sizes: str) -> list[Json]:
    devices = [device(f"{set_}-{size}-{at}", consumesCounters=[{"counterSet": set_, "counters": {"memory": {"value": size}}}])
               for set_ in ("card-0", "card-1") for at, size in enumerate(sizes)]  # fmt: skip
    sets = [{**COUNTERS, "name": set_} for set_ in ("card-0", "card-1")]
    slices = [published(*devices, name=f"{name}-0", pool=name, nodeName=name, slices=2),
              published(name=f"{name}-1", pool=name, nodeName=name, slices=2, sharedCounters=sets)]  # fmt: skip
    return [{"kind": "ResourceSlice", **one} for one in slices]


def test_the_smallest_partition_that_will_do_is_taken_first_on_a_card_that_is_in_use() -> None:
    """As ``pumice.MigPolicy: tightest`` for slices by annotation; the drivers' order takes the first that is listed."""
    for policy, first, second in (("", "card-0-80Gi-0", "card-1-80Gi-0"), ("binpack", "card-0-10Gi-2", "card-0-20Gi-1"),
                                  ("spread", "card-0-10Gi-2", "card-1-20Gi-1")):  # fmt: skip
        world = ClaimWorld(conf("predicates", sharing("VGPU", SchedulePolicy=policy)) if policy else conf("predicates"))
        world.add(node("n0"))
        world.publish(GPU, *partitions("n0", "80Gi", "20Gi", "10Gi"))
        assert ask(world, "a", claim(asks())) == [f"n0/{first}"]
        large = claim(asks(expression="!device.driver.startsWith('x')"))
        if policy:
            twenty = claim({"name": "g", "exactly": {"deviceClassName": "twenty"}})
            world.publish({"kind": "DeviceClass", "metadata": {"name": "twenty"}, "spec": {"selectors": [
                {"cel": {"expression": "!device.attributes['gpu.example.com'].uuid.contains('10Gi')"}}]}})  # fmt: skip
            large = twenty
        assert ask(world, "b", large) == [f"n0/{second}"]


def in_mig_mode(name: str) -> list[Json]:
    """A node with one card, as ``pumice dra-driver nvidia`` publishes it in MIG mode."""
    card = CardFacts(0, f"GPU-{name}", "NVIDIA A100-SXM4-80GB", 80 << 30, minor=0, mig=True)
    offers = {card.uuid: RuledSlices({card.uuid: "A100-SXM4-80GB"}).profiles(card.uuid)}
    specs = slice_specs(name, (card,), "shared", {}, 1, offers)
    return [slice_object(spec, at, {}, 1) for at, spec in enumerate(specs)]


def test_of_two_cards_in_mig_mode_the_one_with_more_memory_in_use_is_the_fuller() -> None:
    """A memory slice is drawn whole by the smallest partition, and makes its card no fuller than its memory does. By what is left
    for larger ones it goes beside the small one, and where half a card is free that stays so."""
    for policy, weight, expected in (("binpack", {"ScheduleWeight": 10}, "n1"), ("binpack", {}, "n0"), ("spread", {}, "n0")):
        world = ClaimWorld(conf("predicates", sharing("VGPU", SchedulePolicy=policy, **weight)))
        world.publish(GPU)
        for name in ("n0", "n1"):
            world.add(node(name))
            world.publish(*in_mig_mode(name))
        for name, size in (("n0", "1g.10gb"), ("n1", "3g.40gb")):
            one = claim(asks(expression=f"device.attributes['gpu.pumice.io'].profile == '{size}'"))
            world.ask(f"on-{name}", one, nodeSelector={"kubernetes.io/hostname": name})
        world.settle()
        (place,) = ask(world, "next", claim(asks(capacity={"memory": "9Gi"})))
        assert place.split("/")[0] == expected
        assert "-mig-1g10gb-" in place, "the smallest that will do"


def mig(profile: str, more: str = "true") -> Json:
    return claim(asks(expression=f"device.attributes['gpu.pumice.io'].profile == '{profile}' && {more}"))


@pytest.mark.parametrize("policy", ["binpack", "lookahead", "fgd"])
def test_small_partitions_lie_so_that_a_large_one_starts(policy: str) -> None:
    """The first lies where the driver would not have put it. Three more by the driver's order are on either half of the card."""
    world = ClaimWorld(conf("predicates", sharing("VGPU", SchedulePolicy=policy)))
    world.publish(GPU, *in_mig_mode("n0"))
    world.add(node("n0"))
    ask(world, "first", mig("1g.10gb", "device.attributes['gpu.pumice.io'].start == 0"))
    small = [ask(world, f"small-{at}", mig("1g.10gb"))[0] for at in range(3)]
    assert sorted(place[-2:] for place in small) == ["-1", "-2", "-3"]
    assert ask(world, "large", mig("3g.40gb")) == ["n0/gpu-0-mig-3g40gb-9-4"]


def test_small_partitions_go_to_the_node_where_they_leave_most_for_larger_ones() -> None:
    """On n1 half a card is free, and n1 has the greater part of its card in use."""
    world = ClaimWorld(conf("predicates", sharing("VGPU", SchedulePolicy="lookahead")))
    world.publish(GPU)
    for name in ("n0", "n1", "n2"):
        world.add(node(name))
        world.publish(*in_mig_mode(name))
    for name, size in (("n0", "1g.10gb"), ("n1", "3g.40gb")):
        world.ask(f"on-{name}", mig(size, "device.attributes['gpu.pumice.io'].start == 0"),
                  nodeSelector={"kubernetes.io/hostname": name})  # fmt: skip
    world.settle()
    assert [ask(world, f"small-{at}", mig("1g.10gb"))[0][:2] for at in range(3)] == ["n0", "n0", "n0"]
    assert sorted(ask(world, f"large-{at}", mig("3g.40gb"))[0][:2] for at in range(2)) == ["n0", "n1"]
    assert ask(world, "whole", mig("7g.80gb")) == ["n2/gpu-0-mig-7g80gb-0-0"]


def test_a_selector_that_costs_too_much_prefers_no_node_and_gets_its_partition_all_the_same() -> None:
    world = ClaimWorld(conf("predicates", sharing("VGPU", SchedulePolicy="binpack")))
    world.publish(GPU, *in_mig_mode("n0"))
    world.add(node("n0"))
    many = "[" + ", ".join(str(at) for at in range(600)) + "].all(x, x >= 0)"
    assert ask(world, "a", mig("1g.10gb", many)) == ["n0/gpu-0-mig-1g10gb-19-6"]


def test_a_node_that_offers_the_first_alternative_is_preferred() -> None:  # acceptance case 17, the second half
    either = claim({"name": "g", "firstAvailable": [
        {"name": "large", "deviceClassName": "gpu", "capacity": {"requests": {"memory": "60Gi", "cores": "5"}}},
        {"name": "small", "deviceClassName": "gpu", "capacity": {"requests": {"memory": "40Gi", "cores": "5"}}}]})  # fmt: skip
    for policy in ("", "binpack", "spread"):
        world = world_by(policy, nodes=3, each=1)
        for name in ("n0", "n1"):
            world.ask(f"on-{name}", of_memory("30Gi", cores="5"), nodeSelector={"kubernetes.io/hostname": name})
        world.settle()
        assert ask(world, "a", either) == ["n2/card-0"]
        (result,) = world.claims["default/a-c0"]["status"]["allocation"]["devices"]["results"]
        assert result["request"] == "g/large"
        assert ask(world, "b", either)[0].split("/")[0] in ("n0", "n1")
        (result,) = world.claims["default/b-c0"]["status"]["allocation"]["devices"]["results"]
        assert result["request"] == "g/small"


def either_of_forty(world: ClaimWorld) -> Json:
    """Forty nodes of a card each, of which the last one alone has room for the first alternative."""
    for at in range(39):
        world.ask(f"on-n{at}", of_memory("30Gi", cores="5"), nodeSelector={"kubernetes.io/hostname": f"n{at}"})
    world.settle()
    return claim({"name": "g", "firstAvailable": [
        {"name": "large", "deviceClassName": "gpu", "capacity": {"requests": {"memory": "60Gi", "cores": "5"}}},
        {"name": "small", "deviceClassName": "gpu", "capacity": {"requests": {"memory": "1Gi", "cores": "1"}}}]})  # fmt: skip


@pytest.mark.parametrize("policy", ["", "binpack"])
def test_the_one_node_of_forty_that_offers_the_first_alternative_is_found(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_by(policy, nodes=40, each=1)
    either = either_of_forty(world)
    assert ask(world, "a", either) == ["n39/card-0"]
    ask(world, "b", either)
    (result,) = world.claims["default/b-c0"]["status"]["allocation"]["devices"]["results"]
    assert result["request"] == "g/small"
    searched, search = list[str](), ClaimSearch.on

    def noted(self: ClaimSearch, cls: PodClass, node: str, shares: Sequence[Allocation] = ()) -> Any:
        searched.append(node)
        return search(self, cls, node, shares)

    monkeypatch.setattr(ClaimSearch, "on", noted)
    for name in "cdef":
        ask(world, name, either)
    assert len(searched) <= 8, "what is known of the other nodes stands"


def test_who_looks_for_the_first_alternative_goes_on_in_the_next_cycle_until_all_nodes_are_looked_at() -> None:
    """By a clock on which a cycle has time for some of the nodes."""
    world = world_by("binpack", nodes=40, each=1)
    either = either_of_forty(world)
    world.ask("a", either)
    looks, cycles = count(), 0
    while not world.devices_of("a-c0"):
        cycles += 1
        for effect in world.engine.cycle(world.now, world.rng, tick=lambda: next(looks) * 5e-4).effects:
            world.perform(effect)
    assert world.devices_of("a-c0") == ["n39/card-0"]
    assert 1 < cycles < 40


def test_a_device_that_throws_when_it_is_asked_first_does_not_end_a_search_that_the_drivers_order_ends_well() -> None:
    odd = {**shared_card("odd"), "attributes": {}}
    world = ClaimWorld(conf("predicates", sharing("VGPU", SchedulePolicy="binpack")))
    world.add(node("n0"))
    world.publish(GPU, {"kind": "ResourceSlice", **published(shared_card("card-0"), odd, pool="n0", nodeName="n0")})
    ask(world, "first", of_memory("1Gi", cores="1"))
    fuller = claim(asks(expression="!has(device.attributes['gpu.example.com'].uuid)", capacity={"memory": "40Gi", "cores": "1"}))
    assert ask(world, "second", fuller) == ["n0/odd"]
    picky = claim(asks(expression="device.attributes['gpu.example.com'].uuid != ''", capacity={"memory": "1Gi", "cores": "1"}))
    assert ask(world, "third", picky) == ["n0/card-0"]


def test_the_policy_leaves_pods_without_claims_and_cards_of_no_driver_as_they_are() -> None:
    world = ClaimWorld(conf("predicates", sharing("VGPU", SchedulePolicy="binpack")))
    world.nodes_with(2)
    world.publish(cards("n0", 0))
    assert ask(world, "a", whole()) == ["n1/card-0"]
