"""A scheduler with claims can be kept as bytes, and goes on as it would have."""

from __future__ import annotations

from kit.claims import of_memory, published, shared_card
from kit.device_claims import GPU, ClaimWorld
from kit.objects import node

from pumice.journal.freezing import freeze, thaw


def test_an_engine_with_claims_is_thawed_as_it_was() -> None:
    world = ClaimWorld()
    world.add(node("n1"))
    world.publish(GPU, {"kind": "ResourceSlice", **published(shared_card())})
    world.ask("a", of_memory("50Gi", cores="10"))
    world.settle()
    world.ask("b", of_memory("40Gi", cores="10"))
    world.settle()
    world.engine = thaw(freeze(world.engine))
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")
    world.delete_pod("a")
    world.settle()
    assert world.node_of("b") == "n1"
