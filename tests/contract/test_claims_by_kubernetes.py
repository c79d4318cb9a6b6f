"""The allocator of claims against Kubernetes' own, on random worlds: the same devices, or a defect of 1.36.1 that is listed in
``docs/reference/claims.md``, and then a judge decides that we are right."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest
from kit.claim_answers import Answer, Kubernetes, ours, plain
from kit.claim_judge import Judge
from kit.claim_worlds import World


def _devices(world: World) -> list[dict[str, object]]:
    return [device for one in world.seen for device in one["spec"].get("devices", ())]


def _draws(world: World, *, shared: bool = False) -> bool:
    return any(one.get("consumesCounters") and (one.get("allowMultipleAllocations") or not shared) for one in _devices(world))


def _has(world: World, word: str) -> bool:
    return f"'{word}'" in str(world.claims)


LISTED: dict[str, Callable[[World, str], bool]] = {
    "a selector throws that nobody has to ask": lambda world, said: "CEL runtime error" in said,
    "a shared device in use leaves its counters free": lambda world, said: (
        _draws(world, shared=True) and "shareID" in str(world.in_use)
    ),
    "counters are kept by the pool's name alone": lambda world, said: _draws(world) and any(
        len({one["spec"]["driver"] for one in world.slices if one["spec"]["pool"]["name"] == name}) > 1
        for name in {one["spec"]["pool"]["name"] for one in world.slices}
    ),
    "a device that was turned down, or given back, keeps counters": lambda world, said: _draws(world) and (
        "taints" in str(world.slices) or _has(world, "constraints") or _draws(world, shared=True)
    ),
    "a device that is published no more frees its counters": lambda world, said: world.seen != world.slices,
    "adminAccess needs what others have": lambda world, said: _has(world, "adminAccess"),
    "All leaves out shared devices that are full": lambda world, said: (
        _has(world, "All") and "allowMultiple" in str(world.slices)
    ),
    "fractions are rounded to whole units": lambda world, said: "00m'" in str(world.slices) + str(world.claims),
    "distinctAttribute looks at the last device of a request": lambda world, said: _has(world, "distinctAttribute"),
    "All with counters is a crash": lambda world, said: _has(world, "All") and "nil pointer" in said,
    "All is refused for another node's pool with counters": lambda world, said: (
        "currently being updated" in said and "sharedCounters" in str(world.slices)
    ),
    "All under a constraint is an error at the first try": lambda world, said: "constraint would not be satisfied" in said,
}  # fmt: skip


def _differences(first: int, many: int, allocator: Kubernetes, *, without_defects: bool) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in range(first, first + many):
        world = World(seed, plain=without_defects)
        allocator.ask(world.question)
        here, there = ours(world), allocator.answer()
        found[f"{here[0]} here, {there[0]} there"] += 1
        if plain(here) == plain(there):
            continue
        said = str(there[1]) if there[0] == "error" else ""
        why = next((name for name, holds in LISTED.items() if holds(world, said)), None)
        assert why is not None, f"seed {seed}: {here} here, {there} there"
        assert not without_defects or "selector" in why, f"seed {seed}: {why}: {here} here, {there} there"
        assert _is_right(world, here), f"seed {seed}: {here}"
        found[why] += 1
    return found


def _is_right(world: World, answer: Answer) -> bool:
    judge, (kind, said) = Judge(world), answer
    if kind == "error":  # a search that goes on where Kubernetes' ends meets more devices
        return "no such key" in said and judge.throws()
    return not judge.wrong(said) if kind == "ok" else not judge.is_possible()


def test_without_its_defects_kubernetes_takes_the_same_devices(allocator: Kubernetes) -> None:
    print(_differences(0, 6000, allocator, without_defects=True))


def test_differences_are_listed_and_decided(allocator: Kubernetes) -> None:
    print(_differences(0, 4000, allocator, without_defects=False))


@pytest.mark.parametrize("seed", [1070567, 1070727])
def test_a_further_share_of_a_device_whose_counters_are_over_committed_is_not_given(allocator: Kubernetes, seed: int) -> None:
    assert _differences(seed, 1, allocator, without_defects=False)["a shared device in use leaves its counters free"] == 1


def test_a_pool_of_another_node_that_is_being_updated_does_not_concern_this_one(allocator: Kubernetes) -> None:
    found = _differences(10518426, 1, allocator, without_defects=False)
    assert found["All is refused for another node's pool with counters"] == 1


def test_a_world_whose_last_request_no_device_can_serve_is_refused_within_the_budget(allocator: Kubernetes) -> None:
    assert _differences(2012554, 1, allocator, without_defects=False) == {"none here, none there": 1}


@pytest.mark.soak
@pytest.mark.parametrize("without_defects", [True, False])
@pytest.mark.parametrize("part", range(10))
def test_a_million_worlds(
    allocator: Kubernetes, part: int, without_defects: bool, record_property: Callable[[str, object], None]
) -> None:
    """In twenty parts, each of which can be played alone."""
    first = int(os.environ.get("PUMICE_SEED", "10000000")) + (2 * part + without_defects) * 50_000
    answers = _differences(first, 50_000, allocator, without_defects=without_defects)
    record_property("first_seed", first)
    record_property("worlds", 50_000)
    record_property("answers", dict(answers))
