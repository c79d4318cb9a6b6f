"""Claims that are damaged, or written by a tenant with too many rights: nobody else is given what they hold; no cycle ends."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kit.claims import asks, claim, of_memory, published, shared_card
from kit.device_claims import DRIVER, GPU, ClaimWorld, whole
from kit.objects import node

Json = dict[str, Any]
HELD = {"request": "g", "driver": DRIVER, "pool": "n0", "device": "card-0"}


def held(spec: Json, *results: Json) -> Json:
    return {"kind": "ResourceClaim", "metadata": {"name": "odd", "namespace": "default"}, "spec": spec,
            "status": {"allocation": {"devices": {"results": list(results)}}}}  # fmt: skip


@pytest.mark.parametrize("spec", [
    {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu", "selectors": [{"rego": "of tomorrow"}]}}]}},
    {"devices": {"requests": [{"name": "g", "oneOf": []}]}},
    {"devices": "none"},
])  # fmt: skip
def test_a_claim_whose_spec_cannot_be_read_keeps_its_devices(spec: Json) -> None:
    world = ClaimWorld()
    world.nodes_with(1, each=1)
    world.publish(held(spec, HELD))
    world.ask("p", whole())
    world.settle()
    assert world.node_of("p") == ""
    assert "in use" in world.condition("p")["message"]
    world.withdraw("ResourceClaim", "default/odd")
    world.settle()
    assert world.node_of("p") == "n0"


def test_a_share_of_an_amount_that_cannot_be_read_is_the_whole_card() -> None:
    world = ClaimWorld()
    world.add(node("n1"))
    world.publish(GPU, {"kind": "ResourceSlice", **published(shared_card())})
    world.publish(held(whole()["spec"], {**HELD, "pool": "n1", "shareID": "s", "consumedCapacity": {"memory": "many"}}))
    del world.claims["default/odd"]  # the checks of this world cannot read it either
    world.ask("p", of_memory("1Gi", cores="1"))
    world.settle()
    assert world.node_of("p") == ""


def test_less_than_nothing_in_a_status_frees_nothing() -> None:
    world = ClaimWorld()
    world.add(node("n1"))
    world.publish(GPU, {"kind": "ResourceSlice", **published(shared_card())})
    world.ask("a", of_memory("60Gi", cores="10"))
    world.settle()
    share = {"shareID": "s", "consumedCapacity": {"memory": "-60Gi", "cores": "-50"}}
    world.publish(held(whole()["spec"], {**HELD, "pool": "n1", **share}))
    world.ask("b", of_memory("60Gi", cores="10"))
    world.settle()
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")


def test_a_selector_of_no_nodes_is_not_one_of_all() -> None:
    world = ClaimWorld()
    world.nodes_with(1)
    one = held(whole()["spec"], HELD)
    one["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": []}
    one["status"]["reservedFor"] = [{"resource": "pods", "name": "x", "uid": "x"}]
    world.publish(one)
    world.use("p", "odd")
    world.settle()
    assert world.node_of("p") == ""
    assert "cannot reach the devices of a claim" in world.condition("p")["message"]


NONSENSE: tuple[Any, ...] = (None, 7, "x", [], [7], [None], {}, {"x": 1}, [{}], [{"uid": 7}], "-1", True)


@pytest.mark.parametrize("path", [
    ("metadata", "ownerReferences"), ("metadata", "resourceVersion"), ("spec",), ("spec", "devices"),
    ("spec", "devices", "requests"), ("status",), ("status", "reservedFor"), ("status", "allocation"),
    ("status", "allocation", "nodeSelector"), ("status", "allocation", "nodeSelector", "nodeSelectorTerms"),
    ("status", "allocation", "devices"), ("status", "allocation", "devices", "results"),
], ids="/".join)  # fmt: skip
def test_nonsense_anywhere_in_a_claim_ends_no_cycle(path: tuple[str, ...]) -> None:
    for value in NONSENSE:
        world = ClaimWorld()
        world.nodes_with(1)
        world.ask("p", whole())
        one: Json = copy.deepcopy(world.claims["default/p-c0"])
        one["status"] = {"allocation": {"devices": {"results": [HELD]}, "nodeSelector": {"nodeSelectorTerms": []}}}
        place = one
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        world.engine.state.device_claims.put_claim(one)
        world.ask("q", whole())
        for _ in range(3):
            world.engine.cycle(world.now, world.rng)
            world.now += 5
        assert list(world.engine.state.device_claims.validate()) == []
        assert world.engine.state.tasks["pod-q"].node or world.engine.state.tasks["pod-q"].trial, value


@pytest.mark.parametrize(("expression", "said"), [
    ("lists.range(10000).all(i, lists.range(10000).all(j, i + j >= 0))", "actual cost limit exceeded"),
    ("[1, 2].all(x,", "Syntax error"), ("device.nothing == 1", "undefined field 'nothing'"),
])  # fmt: skip
def test_a_selector_that_costs_too_much_or_means_nothing_is_told_and_keeps_nobody_else_away(expression: str, said: str) -> None:
    world = ClaimWorld()
    world.nodes_with(1)
    world.ask("bad", claim(asks(expression=expression)))
    world.ask("good", whole())
    world.settle()
    assert (world.node_of("bad"), world.node_of("good")) == ("", "n0")
    message = world.condition("bad")["message"]
    assert "claim default/c0, request g, selector 0, device gpu.example.com/n0/card-" in message
    assert said in message
