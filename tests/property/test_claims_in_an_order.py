"""Random worlds of claims whose devices are packed or spread: whether a claim gets devices is as in the drivers' order, and what
it gets is right, by a judge that tries everything."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from kit.claim_answers import ours
from kit.claim_judge import Judge
from kit.claim_worlds import World
from kit.claims import Cluster, asks, claim, of_memory, published, shared_card

from pumice.claims.filling import Filling
from pumice.claims.objects import claim_of
from pumice.claims.reasons import Unallocated
from pumice.claims.search import allocate, finished
from pumice.claims.slices import Node
from pumice.devices.card_policies import POLICIES


@pytest.mark.parametrize("first", [0, 1000])
@pytest.mark.parametrize("policy", ["binpack", "spread", "lookahead"])
def test_an_order_changes_which_devices_are_given_and_never_whether(policy: str, first: int) -> None:
    other = 0
    for seed in range(first, first + 120):
        world = World(seed)
        (kind, said), (usual, as_published) = ours(world, rank=POLICIES[policy].rank), ours(world)
        if kind == "ok":
            assert not Judge(world).wrong(said), f"seed {seed}: {Judge(world).wrong(said)}: {said}"
            assert usual == "ok" or Judge(world).throws(), f"seed {seed}: {as_published}"
            other += said != as_published
        else:
            assert kind == usual, f"seed {seed}: {said}; {as_published}"
    assert other > 3  # the order matters in some of them


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(20))
def test_of_all_cards_that_take_a_share_the_first_by_the_policy_gives_it(policy: str, seed: int) -> None:
    """Brute force: each card alone is asked whether it would take the claim, and the best of those by rank is expected."""
    rng = random.Random(seed)
    cluster = Cluster(published(*(shared_card(f"card-{at}") for at in range(6))))
    for _ in range(12):
        amount, cores = f"{rng.choice((1, 5, 20, 50))}Gi", str(rng.choice((5, 20, 60)))
        wanted = of_memory(amount, cores=cores)
        taking = [f"card-{at}" for at in range(6)
                  if cluster.would_give(of_memory_on(f"card-{at}", amount, cores))]  # fmt: skip
        usage = cluster.usage
        pools = cluster.slices.pools_of(Node("n1", {"zone": "z1"}))
        ranked = [place.id.device for place in Filling(usage).in_order(pools, POLICIES[policy].rank, cluster.slices)]
        uses = {place.id.device: Filling(usage).of(pool, place) for pool in pools for place in pool.devices}
        best = max(taking, key=lambda name: (rank_of(policy, uses[name]), -int(name[-1])), default=None)
        assert [name for name in ranked if name in taking][:1] == ([] if best is None else [best])
        found = finished(allocate([claim_of(wanted)], Node("n1", {"zone": "z1"}), cluster.slices, cluster.classes, usage,
                                  share_id=lambda: "s", rank=POLICIES[policy].rank))  # fmt: skip
        if best is None:
            assert isinstance(found, Unallocated)
            break
        assert not isinstance(found, Unallocated)
        assert [one.place.id.device for one in found[0].devices] == [best]
        cluster.keep(wanted, found)


def rank_of(policy: str, use: tuple[int, int, int]) -> int:
    memory, shares, cores = use
    return {"binpack": memory, "spread": -shares}.get(policy, max(memory, cores * 10_000))


def of_memory_on(card: str, amount: str, cores: str) -> dict[str, object]:
    return claim(asks(expression=f"device.attributes['gpu.example.com'].uuid == 'GPU-{card}'",
                      capacity={"memory": amount, "cores": cores}))  # fmt: skip


def test_the_use_of_a_device_is_between_nothing_and_all_of_it_whatever_statuses_say() -> None:
    """Amounts below nothing, and above what there is."""
    cluster = Cluster(published(shared_card()))
    for amount in (Fraction(-5), Fraction(10**30)):
        (pool,) = cluster.slices.pools_of(Node("n1", {"zone": "z1"}))
        (place,) = pool.devices
        usage = replace(cluster.usage, shared=frozenset({place.id}), consumed={place.id: {"memory": amount, "odd": amount}})
        assert 0 <= Filling(usage).of(pool, place).memory <= 1_000_000
