"""What a partition leaves of its card: against every way to cut the rest, and against slices by annotation on the same models."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from kit.claims import Cluster, asks, claim, published
from kit.mig_rules import RULES, RuledSlices

from pumice.claims.objects import DeviceID, claim_of
from pumice.claims.partitions import Layout, PartitionedPool, State
from pumice.claims.reasons import Unallocated
from pumice.claims.search import allocate, finished
from pumice.claims.slices import Node
from pumice.devices.card_policies import POLICIES
from pumice.devices.nvidia_vgpu.mig import remaining_value
from pumice.devices.nvidia_vgpu.mig_catalogue import Places, places_of
from pumice.devices.nvidia_vgpu.node.claims import slice_specs
from pumice.model.hardware.mig import mig_table_for
from pumice.node.claims import slice_object
from pumice.ports.cards import CardFacts

Json = dict[str, Any]
NODE = Node("n1", {"zone": "z1"})
Part = tuple[str, int, dict[str, int]]
"""A partition: its name, its memory, and what it draws of each counter."""


def random_parts(rng: random.Random) -> tuple[dict[str, int], list[Part]]:
    """A card of a few slices, or one that counts memory alone, and partitions of it."""
    width = rng.randint(2, 6)
    totals = {"memory": 10 * width, **({f"slice-{at}": 1 for at in range(width)} if rng.random() < 0.7 else {})}
    if rng.random() < 0.4:
        totals["engines"] = rng.randint(1, 3)
    parts = []
    for number in range(rng.randint(2, 8)):
        size = rng.randint(1, width)
        start = rng.randint(0, width - size)
        draws = {"memory": 10 * size, **({f"slice-{at}": 1 for at in range(start, start + size)} if "slice-0" in totals else {})}
        if "engines" in totals and rng.random() < 0.5:
            draws["engines"] = 1
        parts.append((f"p{number}-{size}-{start}", 10 * size, draws))
    return totals, parts


def publish(totals: dict[str, int], parts: list[Part], cards: int = 1) -> Cluster:
    devices = [
        {"name": f"c{card}-{name}", "attributes": {"size": {"int": size}, "uuid": {"string": f"c{card}-{name}"}},
         "consumesCounters": [{"counterSet": f"card-{card}", "counters": {key: {"value": str(n)} for key, n in draws.items()}}]}
        for card in range(cards) for name, size, draws in parts
    ]  # fmt: skip
    sets = [{"name": f"card-{card}", "counters": {key: {"value": str(n)} for key, n in totals.items()}} for card in range(cards)]
    return Cluster(published(*devices, name="s0", slices=2), published(name="s1", slices=2, sharedCounters=sets))


def served(totals: dict[str, int], parts: list[Part], taken: list[Part]) -> float:
    """What the card can still serve, by every set of partitions: for each size as many of at least it as go together."""
    free = {key: n - sum(draws.get(key, 0) for _, _, draws in taken) for key, n in totals.items()}
    rest = [part for part in parts if part not in taken]
    sizes = sorted({size for _, size, _ in parts})
    best = dict.fromkeys(sizes, 0)
    for number in range(len(rest) + 1):
        for some in combinations(rest, number):
            if all(sum(draws.get(key, 0) for _, _, draws in some) <= n for key, n in free.items()):
                for size in sizes:
                    best[size] = max(best[size], sum(one[1] >= size for one in some))
    return sum(best.values()) / sum(1 / size for size in sizes)  # size * number / size: each size weighs 1 / size


def card_state(cluster: Cluster, card: int = 0) -> tuple[PartitionedPool, State]:
    (pool,) = cluster.slices.pools_of(NODE)
    partitioned = cluster.slices.partitioned_pool(pool.id)
    return partitioned, partitioned.states(cluster.usage.devices, cluster.usage.remembered)[f"card-{card}"]


def fits(totals: dict[str, int], taken: list[Part], part: Part) -> bool:
    return part not in taken and all(sum(one[2].get(key, 0) for one in (*taken, part)) <= n for key, n in totals.items())


@pytest.mark.parametrize("seed", range(60))
def test_what_is_lost_is_what_no_cut_of_the_rest_can_serve(seed: int) -> None:
    rng = random.Random(seed)
    totals, parts = random_parts(rng)
    cluster = publish(totals, parts)
    taken: list[Part] = []
    largest = max(size for _, size, _ in parts)
    while True:
        partitioned, state = card_state(cluster)
        lost = state.layout.lost(state)
        for part in parts:
            if part in taken:
                continue
            found = lost[partitioned.places[f"c0-{part[0]}"][1]]
            if not fits(totals, taken, part):
                assert found is None or any(one[1:] == part[1:] and fits(totals, taken, one) for one in parts)
                continue
            expected = (served(totals, parts, taken) - served(totals, parts, [*taken, part])) / largest
            assert found == pytest.approx(expected), (part, taken)
        fitting = [part for part in parts if fits(totals, taken, part)]
        if not fitting:
            break
        part = rng.choice(fitting)
        cluster.gives(claim(asks(expression=f"device.attributes['gpu.example.com'].uuid == 'c0-{part[0]}'")))
        taken.append(part)


@pytest.mark.parametrize("seed", range(60))
def test_of_partitions_of_one_size_that_one_is_given_which_leaves_most(seed: int) -> None:
    """Two cards, of which one is in use, perhaps: of all that the claim may take the best by brute force is given."""
    rng = random.Random(1000 + seed)
    totals, parts = random_parts(rng)
    cluster = publish(totals, parts, cards=2)
    taken: dict[int, list[Part]] = {0: [], 1: []}
    largest = max(size for _, size, _ in parts)
    for _ in range(6):
        size = rng.choice(parts)[1]
        spec = claim(asks(expression=f"device.attributes['gpu.example.com'].size == {size}"))
        costs = {
            f"c{card}-{part[0]}": (not taken[card],
                                   (served(totals, parts, taken[card]) - served(totals, parts, [*taken[card], part])) / largest)
            for card in (0, 1) for part in parts if part[1] == size and fits(totals, taken[card], part)
        }  # fmt: skip
        found = finished(allocate([claim_of(spec)], NODE, cluster.slices, cluster.classes, cluster.usage,
                                  share_id=lambda: "s", rank=POLICIES["lookahead"].rank))  # fmt: skip
        if isinstance(found, Unallocated):
            assert not costs
            continue
        (given,) = (one.place.id.device for one in found[0].devices)
        idle, lost = min(costs.values())
        assert costs[given] == (idle, pytest.approx(lost)), costs
        cluster.keep(spec, found)
        taken[int(given[1])].append(next(part for part in parts if part[0] == given[3:]))


MODELS = tuple(RULES)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(5))
def test_a_place_by_claim_is_worth_what_a_slice_by_annotation_is(model: str, seed: int) -> None:
    """The card that `pumice dra-driver nvidia` publishes, beside the model's places by annotation (``pumice.MigOffGroup``)."""
    rng = random.Random(seed)
    table = mig_table_for(f"NVIDIA {model}")
    assert table is not None
    card = CardFacts(0, "GPU-0", f"NVIDIA {model}", 200 << 30, minor=0, mig=True)
    offers = {card.uuid: RuledSlices({card.uuid: model}).profiles(card.uuid)}
    specs = slice_specs("n1", (card,), "shared", {}, 1, offers)
    cluster = Cluster(*(slice_object(spec, at, {}, 1) for at, spec in enumerate(specs)))
    places = places_of(0, (model,), (), 1, table)
    assert isinstance(places, Places)
    (pool,) = cluster.slices.pools_of(NODE)
    partitioned = cluster.slices.partitioned_pool(pool.id)
    ((set_, layout),) = partitioned.layouts.items()
    used, held = 0, list[DeviceID]()
    while True:
        state = partitioned.states(held, {})[set_]
        lost = layout.lost(state)
        before = remaining_value(places, -1, used)
        open_places = []
        for place in pool.devices:
            cover = cover_of(place.device.consumes_counters[0].counters)
            found = lost[partitioned.places[place.id.device][1]]
            if found is not None and not cover & used:
                after = remaining_value(places, -1, used | cover)
                assert found * float(layout.largest) / (1 << 20) == pytest.approx(before - after, rel=1e-6, abs=1e-6)
                open_places.append((place, cover))
        if not open_places:
            break
        place, cover = rng.choice(open_places)
        used |= cover
        held.append(place.id)


def cover_of(drawn: Json) -> int:
    return sum(1 << int(name.rpartition("-")[2]) for name in drawn if name.startswith("memory-slice-"))


def test_a_card_of_very_many_small_partitions_is_not_looked_through_and_served_all_the_same() -> None:
    """Forty sizes that go together in any number: too many ways. No place is better than another then, and claims are served."""
    parts: list[Part] = [(f"p{at}-{at}-0", 1 + at, {"memory": 1 + at, f"c{at % 7}": 1}) for at in range(40)]
    cluster = publish({"memory": 400, **{f"c{at}": 5 for at in range(7)}}, parts)
    _, state = card_state(cluster)
    assert set(state.layout.lost(state)) <= {0.0, None}
    assert isinstance(state.layout, Layout)
    for at in range(5):
        found = finished(allocate([claim_of(claim(asks()))], NODE, cluster.slices, cluster.classes, cluster.usage,
                                  share_id=lambda: "s", rank=POLICIES["binpack"].rank))  # fmt: skip
        assert not isinstance(found, Unallocated)
        assert found[0].devices[0].place.id.device == f"c0-p{at}-{at}-0", "the smallest that is free"
        cluster.keep(claim(asks()), found)
