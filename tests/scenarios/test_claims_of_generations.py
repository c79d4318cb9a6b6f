"""Pools whose generation goes back: a driver that lost its count begins at 1 again, or an old slice is still there."""

from __future__ import annotations

from kit.claims import device, of_memory, published, shared_card
from kit.device_claims import GPU, ClaimWorld, Json, whole
from kit.objects import node


def a_slice(name: str, card: str, generation: int, slices: int = 2) -> Json:
    return {"kind": "ResourceSlice", **published(device(card), name=name, generation=generation, slices=slices)}


def with_slices(*slices: Json) -> ClaimWorld:
    world = ClaimWorld()
    world.add(node("n1"))
    world.publish(GPU, *slices)
    return world


def reason(world: ClaimWorld, pod: str) -> str:
    (fit_error,) = world.engine.placer.why(world.engine.state.tasks[f"pod-{pod}"].cls, per_node=True).fit_errors
    return fit_error.detail


def test_a_pool_that_goes_back_gives_nothing_until_its_last_slice_has_gone_back_too() -> None:
    world = with_slices(a_slice("s0", "card-0", 5), a_slice("s1", "card-1", 5))
    world.ask("a", whole())
    world.settle()
    world.publish(a_slice("s0", "card-0", 4))
    world.ask("b", whole())
    world.settle()
    assert (world.devices_of("a-c0"), world.node_of("b")) == (["n1/card-0"], "")
    assert "incomplete, generation 5: 1 of 2 slices are there" in reason(world, "b")
    world.publish(a_slice("s1", "card-1", 4))
    world.ask("c", whole())
    world.settle()
    placed = {pod: world.devices_of(f"{pod}-c0") for pod in "abc"}
    assert placed == {"a": ["n1/card-0"], "b": ["n1/card-1"], "c": []}


def test_a_share_is_still_held_of_a_pool_that_begins_at_generation_1_again() -> None:
    world = with_slices({"kind": "ResourceSlice", **published(shared_card(), generation=7)})
    world.ask("a", of_memory("50Gi", cores="10"))
    world.settle()
    world.withdraw("ResourceSlice", "s0")
    world.publish({"kind": "ResourceSlice", **published(shared_card(), generation=1)})
    world.ask("large", of_memory("50Gi", cores="10"))
    world.ask("small", of_memory("20Gi", cores="10"))
    world.settle()
    assert {pod: world.node_of(pod) for pod in ("a", "large", "small")} == {"a": "n1", "large": "", "small": "n1"}


def test_an_old_slice_that_comes_back_beside_newer_ones_gives_none_of_its_cards() -> None:
    world = with_slices(a_slice("s0", "card-0", 3, slices=1))
    world.publish(a_slice("old", "card-9", 2, slices=1))
    for pod in "ab":
        world.ask(pod, whole())
    world.settle()
    assert sorted(world.devices_of("a-c0") + world.devices_of("b-c0")) == ["n1/card-0"]
    world.withdraw("ResourceSlice", "old")
    world.publish(a_slice("s1", "card-1", 4, slices=1))
    world.settle()
    assert sorted(world.devices_of("a-c0") + world.devices_of("b-c0")) == ["n1/card-0", "n1/card-1"]
