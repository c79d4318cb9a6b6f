"""Quotas of queues by DeviceClass: what claims of its pods hold counts, with defaults and rounding, under Volcano's keys."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kit.claim_worlds import World as RandomWorld
from kit.claims import Cluster, asks, claim, of_memory, published, shared_card
from kit.device_claims import GPU, ClaimWorld, cards, whole
from kit.objects import group, node, pod, queue
from kit.room_worlds import SHARES, run
from kit.scheduler_confs import conf

from pumice.claims.objects import claim_of
from pumice.claims.reasons import Unallocated
from pumice.claims.search import finished
from pumice.scheduler.state.claim_charges import charged_for, least_for
from pumice.scheduler.state.known_claims import results_in
from pumice.wire.quantity import parse_quantity

Json = dict[str, Any]
COUNT, MEMORY, CORES = "deviceclass/gpu", "memory.deviceclass/gpu", "cores.deviceclass/gpu"
PLUGINS = {"capacity": conf("predicates", "capacity"), "proportion": conf("predicates", "proportion")}


def world_with(limits: dict[str, str], text: str = PLUGINS["capacity"], shared: int = 2, **more: Any) -> ClaimWorld:
    world = ClaimWorld(text)
    world.add(node("n1", cpu="64"), queue("team", capability=limits, **more))
    world.publish(GPU, {"kind": "ResourceSlice", **published(*(shared_card(f"card-{at}") for at in range(shared)))})
    return world


def ask(world: ClaimWorld, name: str, *specs: Json, **more: Any) -> str:
    world.ask(name, *specs, queue="team", **more)
    world.settle()
    return world.node_of(name)


def held(world: ClaimWorld, name: str = "team") -> dict[str, int]:
    """What the queue is charged by claims; a scheduler that starts anew charges the same."""
    found = {key: value for key, value in world.engine.state.queues[name].allocated.items() if "deviceclass" in key}
    again = world.restarted().state.queues[name].allocated
    assert found == {key: value for key, value in again.items() if "deviceclass" in key}
    return found


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_queue_of_two_devices_runs_two_pods_and_a_third_when_one_has_gone(plugin: str) -> None:
    world = ClaimWorld(PLUGINS[plugin])
    world.add(node("n1"), queue("team", capability={COUNT: "2"}))
    world.publish(GPU, cards("n1", 4))
    assert [ask(world, name, whole()) for name in "abc"] == ["n1", "n1", ""]
    assert world.condition("c")["message"] == (
        "queue team has no room left for it (deviceclass/gpu: 1 wanted, 2 of 2 in use)"
    )
    assert held(world) == {COUNT: 2000}
    world.delete_pod("a")
    world.settle()
    assert world.node_of("c") == "n1"


def test_a_capacity_counts_what_is_consumed_rounded_up_by_the_policy() -> None:
    """3G with steps of 1Mi is 2862Mi, and no more than two of that fit into 5724Mi."""
    world = world_with({MEMORY: "5724Mi"})
    assert [ask(world, name, of_memory("3G", cores="10")) for name in "abc"] == ["n1", "n1", ""]
    assert held(world) == {COUNT: 2000, MEMORY: 5724 << 20, CORES: 20}
    assert "memory.deviceclass/gpu: 3000000000 wanted, 5724Mi of 5724Mi in use" in world.condition("c")["message"]


def test_who_asks_for_nothing_is_charged_the_default() -> None:
    world = world_with({MEMORY: "100Gi"})
    assert ask(world, "a", claim(asks())) == "n1"
    assert held(world)[MEMORY] == 80 << 30
    assert ask(world, "b", claim(asks())) == ""
    assert "memory.deviceclass/gpu: 81920Mi wanted, 81920Mi of 102400Mi in use" in world.condition("b")["message"]
    assert ask(world, "c", of_memory("20Gi", cores="10")) == "n1"


def test_the_default_of_the_best_node_is_too_dear_and_that_of_another_is_not() -> None:
    small = shared_card("small")
    small["capacity"]["memory"] = {"value": "40Gi", "requestPolicy": {"default": "40Gi", "validRange": {"min": "1Mi"}}}
    world = ClaimWorld(PLUGINS["capacity"])
    world.add(node("n1"), node("n2"), node("n3"), queue("team", capability={MEMORY: "50Gi"}))
    for name, one in (("n1", shared_card()), ("n2", shared_card()), ("n3", small)):
        world.publish(GPU, {"kind": "ResourceSlice", **published(one, name=name, pool=name, nodeName=name)})
    assert ask(world, "a", claim(asks())) == "n3"


def test_the_alternative_that_was_taken_and_all_that_all_means_count() -> None:
    """Upstream counts neither."""
    either = {"name": "g", "firstAvailable": [
        {"name": "large", "deviceClassName": "gpu", "capacity": {"requests": {"memory": "100Gi"}}},
        {"name": "small", "deviceClassName": "gpu", "capacity": {"requests": {"memory": "40Gi", "cores": "5"}}}]}  # fmt: skip
    world = world_with({COUNT: "3"})
    assert ask(world, "a", claim(either)) == "n1"
    assert held(world) == {COUNT: 1000, MEMORY: 40 << 30, CORES: 5}
    every = claim({"name": "g", "exactly": {"deviceClassName": "gpu", "allocationMode": "All",
                                            "capacity": {"requests": {"memory": "1Gi", "cores": "1"}}}})  # fmt: skip
    assert ask(world, "b", every) == "n1"
    assert held(world)[COUNT] == 3000
    assert ask(world, "c", every) == ""


def test_admin_access_costs_nothing() -> None:
    world = world_with({COUNT: "1"})
    assert [ask(world, name, claim(asks(adminAccess=True))) for name in "ab"] == ["n1", "n1"]
    assert held(world) == {}


def test_a_claim_that_pods_share_counts_once_as_long_as_one_of_them_uses_it() -> None:
    world = world_with({COUNT: "1"})
    world.shared("both", of_memory("1Gi", cores="10"))
    for name in "ab":
        world.use(name, "both", queue="team")
        world.settle()
    assert [world.node_of(name) for name in "ab"] == ["n1", "n1"]
    assert held(world) == {COUNT: 1000, MEMORY: 1 << 30, CORES: 10}
    world.delete_pod("a")
    world.settle()
    assert held(world) == {COUNT: 1000, MEMORY: 1 << 30, CORES: 10}
    world.shared("other", of_memory("1Gi", cores="10"))
    world.use("c", "other", queue="team")
    world.settle()
    assert world.node_of("c") == ""
    world.delete_pod("b")
    world.settle()
    assert world.node_of("c") == "n1"


def test_a_gang_whose_third_claim_is_beyond_the_queue_leaves_no_charge() -> None:
    world = world_with({COUNT: "2"}, conf("gang", "predicates", "capacity"))
    world.add(group("gang", minimum=3, queue="team"))
    for at in range(3):
        world.ask(f"g-{at}", of_memory("1Gi", cores="1"), group="gang")
    world.settle()
    assert not any(world.node_of(f"g-{at}") for at in range(3))
    assert held(world) == {}
    world.add(queue("team", capability={COUNT: "3"}))
    world.settle()
    assert all(world.node_of(f"g-{at}") for at in range(3))


@pytest.mark.parametrize(("limits", "pods"), [
    ({COUNT: "0"}, 3), ({"deviceclass/other": "1"}, 3), ({MEMORY: "0"}, 0), ({MEMORY: "2Gi", CORES: "100"}, 2),
    ({"deviceclass/gpu": "nonsense"}, 3), ({"deviceclass/": "1"}, 3), ({COUNT: "-1"}, 3),
])  # fmt: skip
def test_what_is_not_named_is_not_bounded_and_no_devices_means_no_bound(limits: dict[str, str], pods: int) -> None:
    world = world_with(limits)
    found = [ask(world, name, of_memory("1Gi", cores="10")) for name in "abc"]
    assert found.count("n1") == pods


@pytest.mark.parametrize(("argument", "bounded"), [
    ("capacity.DynamicResourceAllocationEnable", set()), ("capacity.DRAConsumableCapacityEnable", {COUNT}),
])  # fmt: skip
def test_volcanos_arguments_leave_devices_or_their_capacities_uncounted(argument: str, bounded: set[str]) -> None:
    text = conf("predicates", {"capacity": {argument: False}})
    for name, limit in ((COUNT, "1"), (MEMORY, "1Gi")):
        world = world_with({name: limit}, text)
        found = [ask(world, each, of_memory("1Gi", cores="10")) for each in "ab"]
        assert found == ["n1", "" if name in bounded else "n1"]


def test_queues_above_bound_what_is_below_them_together() -> None:
    world = ClaimWorld(conf("predicates", {"capacity": {"enableHierarchy": True}}))
    world.add(node("n1"), queue("root"), queue("dept", parent="root", capability={COUNT: "3"}))
    world.add(queue("x", parent="dept"), queue("y", parent="dept", guarantee={COUNT: "1"}))
    world.publish(GPU, cards("n1", 6))
    for name in ("x0", "x1", "x2", "x3"):
        world.ask(name, whole(), queue="x")
    world.settle()
    assert [world.node_of(f"x{at}") for at in range(4)] == ["n1", "n1", "", ""]  # one is kept for y
    world.ask("y0", whole(), queue="y")
    world.settle()
    assert world.node_of("y0") == "n1"
    assert held(world, "dept") == {}


def test_a_queue_claims_back_the_devices_that_it_deserves_and_no_more() -> None:
    world = ClaimWorld(SHARES % "capacity")
    world.add(node("n1"), queue("a", deserved={COUNT: "2"}), queue("b", deserved={COUNT: "2"}))
    world.publish(GPU, cards("n1", 4))
    for at in range(4):
        world.ask(f"a{at}", whole(), queue="a")
    for _ in range(3):
        world.settle(1)
        run(world)
    assert held(world, "a") == {COUNT: 4000}
    for at in range(4):
        world.ask(f"b{at}", whole(), queue="b")
    for _ in range(8):
        world.settle(1)
        run(world)
    assert len(world.evictions) == 2
    assert (held(world, "a"), held(world, "b")) == ({COUNT: 2000}, {COUNT: 2000})


def test_a_queue_that_names_no_class_claims_back_what_it_deserves_of_other_things() -> None:
    """Pods with claims among them: quotas of classes that nobody uses change nothing."""
    world = ClaimWorld(SHARES % "capacity")
    world.add(node("n1", cpu="4"), queue("a", deserved={"cpu": "2"}), queue("b", deserved={"cpu": "2"}))
    world.publish(GPU, cards("n1", 8))
    world.add(*(pod(f"a{at}", cpu="1", queue="a") for at in range(4)))
    world.settle()
    run(world)
    world.shared("theirs", whole())
    entries = [{"name": "theirs", "resourceClaimName": "theirs"}]
    world.add(pod("b0", cpu="1", queue="b", resourceClaims=entries))
    for _ in range(4):
        world.settle(1)
        run(world)
    assert len(world.evictions) == 1
    assert world.node_of("b0") == "n1"


@pytest.mark.parametrize("seed", range(150))
def test_a_claim_never_comes_to_less_than_what_its_class_is_charged_before_its_devices_are_known(seed: int) -> None:
    case = RandomWorld(seed)
    cluster = Cluster(*case.slices, classes=[one for one in case.classes if one["metadata"]["name"] != "gpu"])
    found = finished(cluster.search(*case.claims))
    for one, allocation in zip(case.claims, () if isinstance(found, Unallocated) else found, strict=False):
        devices, results = claim_of(one).devices, results_in(allocation)
        charged, least = charged_for(devices, results), least_for(devices)
        assert all(charged.get(name, 0) >= value for name, value in least.items())
        said = [result for result in allocation.as_json()["devices"]["results"] if not result.get("adminAccess")]
        assert sum(value for name, value in charged.items() if name.startswith("deviceclass/")) == 1000 * len(said)


def test_a_history_of_pods_charges_a_queue_what_the_claims_of_its_pods_hold() -> None:
    """By the statuses of the claims, added up by nobody of the scheduler."""
    for seed in range(12):
        rng = Random(seed)
        world = world_with({MEMORY: "150Gi", COUNT: "5"}, shared=3)
        world.shared("common", of_memory("2Gi", cores="5"))
        alive: list[str] = []
        for at in range(25):
            if alive and rng.random() < 0.4:
                world.delete_pod(alive.pop(rng.randrange(len(alive))))
            elif rng.random() < 0.3:
                world.use(f"p{at}", "common", queue="team")
                alive.append(f"p{at}")
            else:
                world.ask(f"p{at}", of_memory(rng.choice(("1G", "20Gi", "45Gi")), cores=str(rng.choice((5, 40)))), queue="team")
                alive.append(f"p{at}")
            world.settle()
            results = [one for obj in world.claims.values() if obj.get("status", {}).get("reservedFor")
                       for one in obj["status"]["allocation"]["devices"]["results"]]  # fmt: skip
            consumed = {name: sum(int(parse_quantity(one["consumedCapacity"][name])) for one in results)
                        for name in ("memory", "cores")}  # fmt: skip
            expected = {COUNT: 1000 * len(results), MEMORY: consumed["memory"], CORES: consumed["cores"]}
            assert held(world) == {name: value for name, value in expected.items() if value}
            assert expected[MEMORY] <= 150 << 30
            assert len(results) <= 5
