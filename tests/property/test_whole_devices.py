"""Shares are parts of everything and devices are whole: none lies idle while somebody waits who fits, and the shares hold."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.engine_world import World
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf

GPU = "nvidia.com/gpu"
SHARED = conf("gang", "proportion", "predicates")

def world_of(nodes: list[int], weights: list[int], text: str = SHARED) -> World:
    world = World(text)
    world.add(*(node(f"n{i}", extra={GPU: str(size)}) for i, size in enumerate(nodes)))
    world.add(*(queue(f"q{i}", weight=weight) for i, weight in enumerate(weights)))
    return world


def wanting(name: str, at: int, devices: int, **more: Any) -> dict[str, Any]:
    return pod(name, queue=f"q{at}", limits={GPU: str(devices)}, **more)


def held(world: World, at: int) -> int:
    return world.engine.state.queues[f"q{at}"].allocated.get(GPU, 0) // 1000


def fair(total: int, weights: list[int], demands: list[int]) -> list[Fraction]:
    """Everybody in proportion to its weight, and nobody more than it wants: worked out in fractions, queue by queue."""
    shares, left, hungry = [Fraction(0)] * len(weights), Fraction(total), [i for i, d in enumerate(demands) if d]
    while hungry:
        weight = sum(weights[i] for i in hungry)
        sated = [i for i in hungry if demands[i] <= left * weights[i] / weight]
        if not sated:
            for i in hungry:
                shares[i] = left * weights[i] / weight
            break
        for i in sated:
            shares[i] = Fraction(demands[i])
        left -= sum(demands[i] for i in sated)
        hungry = [i for i in hungry if i not in sated]
    return shares


def best(total: int, shares: list[Fraction], demands: list[int]) -> Fraction:
    """By trying them all: how close whole devices, all of them in use, can come to the shares."""
    whole = min(total, sum(demands))
    found = (held for held in product(*(range(min(total, d) + 1) for d in demands)) if sum(held) == whole)
    return min(sum(((h - s) ** 2 for h, s in zip(held, shares, strict=True)), Fraction(0)) for held in found)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=2), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)),
                                                                     min_size=1, max_size=5))  # fmt: skip
def test_all_devices_are_in_use_and_as_near_to_the_shares_as_whole_ones_can_be(
    nodes: list[int], queues: list[tuple[int, int]]
) -> None:
    weights, demands = [w for w, _ in queues], [d for _, d in queues]
    world = world_of(nodes, weights)
    world.add(*(wanting(f"p{at}-{i}", at, 1) for at, demand in enumerate(demands) for i in range(demand)))
    world.settle()
    found = [held(world, at) for at in range(len(queues))]
    assert sum(found) == min(sum(nodes), sum(demands))
    shares = fair(sum(nodes), weights, demands)
    off = sum(((h - s) ** 2 for h, s in zip(found, shares, strict=True)), Fraction(0))
    assert off <= best(sum(nodes), shares, demands) + Fraction(1, 50), (found, shares)


def idle_on(world: World, nodes: list[int]) -> list[int]:
    free = list(nodes)
    for obj in world.pods.values():
        if where := obj["spec"].get("nodeName"):
            free[int(where[1:])] -= int(obj["spec"]["containers"][0]["resources"]["limits"][GPU])
    return free


@settings(deadline=None, max_examples=150)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3),
       st.lists(st.integers(1, 4), min_size=1, max_size=4),
       st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from(("", "", "gated", "elsewhere"))), max_size=12),
       st.lists(st.integers(0, 11), max_size=6))  # fmt: skip
def test_where_reclaim_runs_no_pod_waits_that_fits(
    nodes: list[int], weights: list[int], wishes: list[tuple[int, int, str]], gone: list[int]
) -> None:
    world = world_of(nodes, weights)
    world.engine.actions.append(("reclaim", lambda cycle: None))
    for i, (at, devices, how) in enumerate(wishes):
        more: dict[str, Any] = {"gated": True} if how == "gated" else {"nodeSelector": {"no": "where"}} if how else {}
        world.add(wanting(f"p{i}", at % len(weights), devices, **more))
        if i % 3 == 0:
            world.settle(0.5)
    for i in gone:
        world.delete_pod(f"p{i}")
        world.settle(0.5)
    world.settle()
    widest = max(idle_on(world, nodes))
    for i, (_, devices, how) in enumerate(wishes):
        if f"default/p{i}" in world.pods and not how and not world.node_of(f"p{i}"):
            assert devices > widest, f"p{i}"


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 8), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8)), min_size=1, max_size=5), st.booleans())
def test_whatever_sizes_they_want_no_device_idles_for_all_queues_at_once(
    total: int, queues: list[tuple[int, int]], gangs: bool
) -> None:
    """One node, each queue with pods, or gangs, of one size, some larger than its share: in the end nobody waits for what is
    idle, unless another queue may still claim it within its share."""
    world = world_of([total], [weight for weight, _ in queues])
    for at, (_, size) in enumerate(queues):
        for i in range(3):
            if gangs:
                world.add(group(f"g{at}-{i}", minimum=size, queue=f"q{at}"))
                world.add(*(wanting(f"p{at}-{i}-{j}", at, 1, group=f"g{at}-{i}") for j in range(size)))
            else:
                world.add(wanting(f"p{at}-{i}", at, size))
    world.settle()
    found = [held(world, at) for at in range(len(queues))]
    idle = total - sum(found)
    if any(size <= total for _, size in queues):
        assert sum(found) > 0
    demands = [3 * size if size <= total else 0 for _, size in queues]
    shares = fair(total, [weight for weight, _ in queues], demands)
    claims = [max(Fraction(0), s - h) // size * size for s, h, (_, size) in zip(shares, found, queues, strict=True)]
    for at, (_, size) in enumerate(queues):
        if found[at] + size <= demands[at] and size <= idle:
            assert size > idle - sum(claims) + claims[at], (found, shares)
