"""A card serves annotated pods or claims: the scheduler has one ledger of both, until whoever holds the card is gone."""

from __future__ import annotations

from typing import Any

import pytest
from kit.claims import device, published, shared_card
from kit.device_claims import GPU, ClaimWorld, whole
from kit.objects import VGPU, group, node, pod
from kit.room_worlds import BUNDLES

from pumice.audit.auditor import audit

Json = dict[str, Any]


def on_cards(of: str, number: int, **more: Any) -> Json:
    """The slice of a node whose devices are its cards, which its plugin registers for annotated pods, too."""
    devices = (device(f"card-{at}", attributes={"uuid": {"string": f"GPU-{of}-{at}"}}, **more) for at in range(number))
    return {"kind": "ResourceSlice", **published(*devices, name=f"s-{of}", pool=of, nodeName=of)}


def one_node(number: int, conf: str = "", **more: Any) -> ClaimWorld:
    world = ClaimWorld(conf) if conf else ClaimWorld()
    world.add(node("n0", cards=number, mib=8000, shares=10))
    world.publish(GPU, on_cards("n0", number, **more))
    return world


def message(world: ClaimWorld, name: str) -> str:
    return str(world.condition(name)["message"])


def test_a_claim_gets_no_card_of_which_annotated_pods_have_shares() -> None:
    world = one_node(2)
    world.add(pod("shares", mib=1000))
    world.settle()
    world.ask("first", whole())
    world.ask("second", whole())
    world.settle()
    card = world.card_of("shares").partition("/")[2]
    (served,) = [name for name in ("first", "second") if world.node_of(name)]
    assert world.devices_of(f"{served}-c0") == [f"n0/card-{1 - int(card)}"]
    waits = {"first", "second"} - {served}
    assert "cannot allocate all claims (g: in use)" in message(world, *waits)
    world.delete_pod("shares")
    world.settle()
    assert all(world.node_of(name) for name in ("first", "second"))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("notes", [{}, {"volcano.sh/job-name": "j", "volcano.sh/task-index": "0"}])
def test_a_pod_that_runs_with_a_resource_of_another_device_plugin_closes_no_card_to_claims(restarted: bool, notes: Json) -> None:
    """It was taken for one that holds cards which nobody knows: beside an RDMA device no claim got anything of its node."""
    world = ClaimWorld()
    with_nics = node("n0")
    with_nics["status"]["allocatable"]["rdma/hca"] = "10"
    world.add(with_nics)
    world.publish(GPU, on_cards("n0", 2))
    world.add(pod("nic", limits={"rdma/hca": "1"}, annotations=notes))
    world.settle()
    world.set_phase("nic", "Running")
    if restarted:
        world.engine = world.restarted()
    world.ask("by-claim", whole())
    world.settle()
    assert (world.node_of("nic"), world.node_of("by-claim")) == ("n0", "n0")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pod_that_runs_with_a_device_of_a_class_for_its_resource_closes_no_other_device(restarted: bool) -> None:
    world = ClaimWorld()
    world.add(node("n0"))
    world.publish({**GPU, "spec": {"extendedResourceName": "example.com/gpu"}}, on_cards("n0", 2))
    world.add(pod("by-resource", limits={"example.com/gpu": "1"}))
    world.settle()
    world.set_phase("by-resource", "Running")
    if restarted:
        world.engine = world.restarted()
    world.ask("by-claim", whole())
    world.settle()
    assert (world.node_of("by-resource"), world.node_of("by-claim")) == ("n0", "n0")


REGISTERED = "GPU-n0-{},10,8000,NVIDIA-Tesla V100-SXM2-16GB,{},hami-core:"
ALL_UNHEALTHY = node("n0", register=REGISTERED.format(0, "false") + REGISTERED.format(1, "false"))
ALL_UNHEALTHY["status"]["allocatable"] |= {f"{VGPU}-{what}": "0" for what in ("number", "memory", "cores")}
ONE_LEFT = node("n0", mib=8000, register=REGISTERED.format(0, "true"))


@pytest.mark.parametrize("told", [ALL_UNHEALTHY, ONE_LEFT])
def test_a_claim_gets_no_card_of_a_pod_that_was_bound_just_before_the_node_took_the_card_back(
    told: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = one_node(2)
    before = [*world.nodes.values()]
    monkeypatch.setattr(world, "nodes_as_counted", lambda: before)
    world.add(pod("shares", cards=2, mib=5000))
    world.settle()
    assert world.card_of("shares") == "n0/0+1"
    world.add(told)
    world.ask("late", whole())
    world.settle()
    assert world.node_of("late") == ""
    world.delete_pod("shares")
    world.settle()
    assert world.node_of("late") == "n0"


def test_an_annotated_pod_gets_no_card_that_a_claim_holds_and_is_told_whose() -> None:
    world = one_node(1)
    world.ask("whole", whole())
    world.settle()
    world.add(pod("shares", mib=1000))
    world.settle()
    assert world.node_of("shares") == ""
    task = world.engine.state.tasks[world.pods["default/shares"]["metadata"]["uid"]]
    (fit_error,) = world.engine.placer.why(task.cls, per_node=True).fit_errors
    assert fit_error.cards[0].text == "claim default/whole-c0 holds it"
    world.delete_pod("whole")
    world.settle()
    assert world.node_of("shares") == "n0"


def test_shares_of_a_card_by_claim_leave_no_room_for_annotated_ones_and_more_claims_share_it() -> None:
    world = ClaimWorld()
    world.add(node("n0", cards=1, mib=80_000))
    world.publish(GPU, {"kind": "ResourceSlice", **published(shared_card("c", attributes={"uuid": {"string": "GPU-n0-0"}}),
                                                             pool="n0", nodeName="n0")})  # fmt: skip
    small = whole(capacity={"requests": {"memory": "1Gi", "cores": "10"}})
    world.ask("a", small)
    world.settle()
    world.add(pod("shares", mib=1000))
    world.ask("b", small)
    world.settle()
    assert [world.node_of(name) for name in ("a", "b", "shares")] == ["n0", "n0", ""]


def test_a_gang_of_both_kinds_takes_different_cards_or_none() -> None:
    for number in (1, 2):
        world = one_node(number)
        world.add(group("g", minimum=2), pod("shares", mib=1000, group="g"))
        world.ask("whole", whole(), group="g")
        world.settle()
        assert len(world.bindings) == (2 if number == 2 else 0)
        assert len(world.engine.state.device_claims.cards.by_card) == number - 1


def test_a_pod_that_asks_for_both_gets_two_cards() -> None:
    for number in (1, 2):
        world = one_node(number)
        world.ask("both", whole(), mib=1000)
        world.settle()
        assert bool(world.node_of("both")) == (number == 2)
        if number == 2:
            card = world.card_of("both").partition("/")[2]
            assert world.devices_of("both-c0") == [f"n0/card-{1 - int(card)}"]


def test_a_more_important_claim_has_annotated_pods_evicted_for_their_card() -> None:
    world = one_node(1, BUNDLES)
    world.add(pod("low", mib=1000, priority=1))
    world.settle()
    world.set_phase("low", "Running")
    world.grace = True
    world.ask("high", whole(), priority=100)
    world.settle(5)
    assert [evicted.name for evicted in world.evictions] == ["low"]
    world.add(pod("late", mib=1000, priority=1))
    world.delete_pod("low")
    world.settle(5)
    assert (world.node_of("high"), world.node_of("late")) == ("n0", "")


def test_a_more_important_annotated_pod_has_claims_released_and_waits_until_they_are() -> None:
    world = one_node(1, BUNDLES)
    world.ask("low", whole(), priority=1)
    world.settle()
    world.set_phase("low", "Running")
    world.clears = False
    world.add(pod("high", mib=1000, priority=100))
    world.settle(5)
    assert [evicted.name for evicted in world.evictions] == ["low"]
    world.ask("late", whole(), priority=1)
    world.settle(5)
    assert (world.node_of("high"), world.node_of("late"), len(world.evictions)) == ("", "", 1)
    world.clear()
    world.settle(5)
    assert (world.node_of("high"), world.node_of("late"), len(world.evictions)) == ("n0", "", 1)


def test_a_claim_that_two_pods_use_holds_its_card_until_both_are_gone() -> None:
    world = one_node(1, BUNDLES)
    world.shared("both", whole())
    world.use("a", "both", priority=1)
    world.use("b", "both", priority=200)
    world.settle()
    for name in ("a", "b"):
        world.set_phase(name, "Running")
    world.add(pod("high", mib=1000, priority=100))
    world.settle(5)
    assert not world.evictions, "the more important of the two stays, and so does the claim"
    world.delete_pod("a")
    world.settle(5)
    assert world.node_of("high") == ""
    world.delete_pod("b")
    world.settle(5)
    assert world.node_of("high") == "n0"


def test_a_refused_write_of_a_claim_opens_its_card() -> None:
    world = one_node(1)
    world.refuse_claim = lambda bind: True
    world.ask("whole", whole())
    world.cycle()
    assert not world.engine.state.device_claims.cards.by_card
    world.delete_pod("whole")
    world.add(pod("shares", mib=1000))
    world.settle()
    assert world.node_of("shares") == "n0"


def test_a_device_that_is_published_no_more_keeps_its_card_closed() -> None:
    world = one_node(1)
    world.ask("whole", whole())
    world.settle()
    world.withdraw("ResourceSlice", "s-n0")
    world.add(pod("shares", mib=1000))
    world.settle()
    assert world.node_of("shares") == ""
    world.delete_pod("whole")
    world.settle()
    assert world.node_of("shares") == "n0"


def test_a_plugin_that_restarts_makes_nobody_forget_whose_the_cards_are() -> None:
    world = one_node(2)
    world.ask("whole", whole())
    world.settle()
    world.add(pod("shares", mib=1000))
    world.settle()
    registered = world.nodes["n0"]["metadata"]["annotations"].pop("volcano.sh/node-vgpu-register")
    world.add(world.nodes["n0"])
    world.ask("another", whole())
    world.settle()
    assert world.node_of("another") == "", "nobody can say which card the pod with shares has"
    world.nodes["n0"]["metadata"]["annotations"]["volcano.sh/node-vgpu-register"] = registered
    world.add(world.nodes["n0"])
    world.add(pod("more", mib=1000))
    world.settle()
    assert world.card_of("more") == world.card_of("shares")
    assert world.node_of("another") == ""


def test_a_part_of_a_card_says_by_its_parent_which_card_it_is_of() -> None:
    world = ClaimWorld()
    world.add(node("n0", cards=1, mib=8000))
    part = {"uuid": {"string": "MIG-1"}, "gpu.example.com/parentUUID": {"string": "GPU-n0-0"}}
    world.publish(GPU, {"kind": "ResourceSlice", **published(device("p0", attributes=part), pool="n0", nodeName="n0")})
    world.ask("part", whole())
    world.settle()
    world.add(pod("shares", mib=1000))
    world.settle()
    assert (world.node_of("part"), world.node_of("shares")) == ("n0", "")


def test_what_another_scheduler_gave_out_counts_and_the_audit_names_a_card_in_both_worlds() -> None:
    world = one_node(1)
    world.add(pod("shares", mib=1000))
    world.settle()
    world.shared("stolen", whole())
    held = world.claims["default/stolen"]
    result = {"request": "g", "driver": "gpu.example.com", "pool": "n0", "device": "card-0"}
    held["status"] = {"allocation": {"devices": {"results": [result]}}}
    world.publish(held)
    said = audit(world.nodes.values(), world.pods.values(), (), world.claims.values(), world.slices.values())
    assert said == ["card GPU-n0-0 is held by claims default/stolen and shared by pods default/shares"]
    world.withdraw("ResourceClaim", "default/stolen")
    assert not audit(world.nodes.values(), world.pods.values(), (), world.claims.values(), world.slices.values())


def test_a_driver_of_one_node_closes_no_cards_of_others() -> None:
    world = ClaimWorld()
    world.add(node("n0", cards=1, mib=8000), node("n1"))
    alien = device("card-0", attributes={"uuid": {"string": "GPU-n0-0"}})
    world.publish(GPU, {"kind": "ResourceSlice", **published(alien, name="s-n1", pool="n1", nodeName="n1")})
    world.ask("claims", whole())
    world.settle()
    world.add(pod("shares", mib=1000))
    world.settle()
    assert (world.node_of("claims"), world.node_of("shares")) == ("n1", "n0")


def test_a_successor_knows_both_worlds_from_the_objects() -> None:
    world = one_node(2)
    world.ask("whole", whole())
    world.settle()
    world.add(pod("shares", mib=1000))
    world.settle()
    world.engine = world.restarted()
    world.publish(*world.device_classes.values(), *world.slices.values(), *world.claims.values())
    world.add(pod("large", mib=8000))
    world.ask("another", whole())
    world.settle()
    assert (world.node_of("large"), world.node_of("another")) == ("", "")
