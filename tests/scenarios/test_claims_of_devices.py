"""Claims of devices (``resource.k8s.io/v1``) in the scheduler: gangs, shared claims, waking, reasons, what is undone."""

from __future__ import annotations

import copy
from itertools import count
from typing import Any

import pytest
from kit.claims import asks, claim, of_memory, published, shared_card
from kit.device_claims import GPU, ClaimWorld, cards, whole
from kit.objects import group, node, pod, priority_class
from kit.room_worlds import BUNDLES
from kit.scheduler_confs import conf

from pumice.effects.vocabulary import Bind
from pumice.scheduler.placing import claim_search
from pumice.scheduler.state.known_claims import results_in


def test_pods_of_one_template_are_one_class_and_get_a_card_each() -> None:
    world = ClaimWorld()
    world.nodes_with(2)
    for at in range(5):
        world.ask(f"p{at}", whole())
    classes = {task.cls for task in world.engine.state.tasks.values()}
    world.settle()
    assert len(classes) == 1
    assert sum(bool(world.node_of(f"p{at}")) for at in range(5)) == 4
    message = next(world.condition(f"p{at}")["message"] for at in range(5) if not world.node_of(f"p{at}"))
    assert "2 cannot allocate all claims (g: in use)" in message


def test_three_claims_share_a_card_and_a_fourth_is_told_the_numbers() -> None:  # acceptance case 1
    world = ClaimWorld()
    world.add(node("n1"))
    world.publish(GPU, {"kind": "ResourceSlice", **published(shared_card())})
    for name, amount in (("a", "27Gi"), ("b", "27Gi"), ("c", "26Gi")):
        world.ask(name, of_memory(amount, cores="20"))
        world.settle()
    assert [world.node_of(name) for name in "abc"] == ["n1"] * 3
    shares = {world.claims[f"default/{name}-c0"]["status"]["allocation"]["devices"]["results"][0]["shareID"] for name in "abc"}
    assert len(shares) == 3
    world.ask("d", of_memory("1Gi", cores="20"))
    world.settle()
    assert "cannot allocate all claims (g: capacity memory)" in world.condition("d")["message"]
    task = world.engine.state.tasks["pod-d"]
    (fit_error,) = world.engine.placer.why(task.cls, per_node=True).fit_errors
    assert "capacity memory: wants 1Gi, 0 is free" in fit_error.detail


def test_two_pods_of_one_claim_run_on_one_node() -> None:  # acceptance case 19
    world = ClaimWorld()
    world.nodes_with(3)
    world.shared("both", whole())
    world.use("a", "both")
    world.use("b", "both")
    world.settle()
    assert world.node_of("a") == world.node_of("b") != ""
    assert sorted(world.users_of("both")) == ["a", "b"]


def test_who_comes_when_a_claims_node_is_closed_waits_for_that_node() -> None:
    """What was known of the class before the claim had its devices held another node open."""
    world = ClaimWorld()
    world.nodes_with(2)
    world.shared("both", whole())
    world.use("a", "both")
    world.settle()
    closed = world.node_of("a")
    world.add(node(closed, taints=[{"key": "dedicated", "value": "gpu", "effect": "NoExecute"}]))
    world.use("b", "both")
    world.settle()
    assert closed
    assert world.node_of("b") == ""


def test_the_257th_consumer_waits_and_is_told_so() -> None:  # acceptance case 19
    world = ClaimWorld()
    world.nodes_with(1)
    world.shared("all", whole())
    world.use("first", "all")
    world.settle()
    held = world.claims["default/all"]
    held["status"]["reservedFor"] += [{"resource": "pods", "name": f"x{at}", "uid": f"x{at}"} for at in range(255)]
    world.publish(held)
    world.use("late", "all")
    world.settle()
    assert world.node_of("late") == ""
    assert "is used by 256 pods, as many as may" in world.condition("late")["message"]
    held["status"]["reservedFor"].pop()
    world.publish(held)
    world.settle()
    assert world.node_of("late") == "n0"


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_gang_for_which_a_claim_with_devices_has_no_room_any_more_waits_as_a_whole(nodes: int) -> None:
    world = ClaimWorld()
    world.nodes_with(nodes)
    world.shared("all", whole())
    held = world.claims["default/all"]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]}
    result = {"request": "g", "driver": "gpu.example.com", "pool": "n0", "device": "card-1"}
    others = [{"resource": "pods", "name": f"x{at}", "uid": f"x{at}"} for at in range(253)]
    held["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}, "reservedFor": others}
    world.publish(held)
    world.add(group("g", minimum=4))
    for at in range(4):
        world.use(f"p{at}", "all", group="g")
    world.settle()
    assert not world.bindings, "the API server stores 256 users of a claim: the last member would be refused"
    assert "is used by 256 pods, as many as may" in world.condition("p3")["message"]
    assert not world.engine.pressing
    others.pop()
    world.publish(held)
    world.settle()
    assert [world.node_of(f"p{at}") for at in range(4)] == ["n0"] * 4


def test_a_gang_takes_all_its_claims_or_none() -> None:  # acceptance case 21
    world = ClaimWorld()
    world.nodes_with(1, each=3)
    world.add(group("g", minimum=4))
    for at in range(4):
        world.ask(f"p{at}", whole(), group="g")
    world.settle()
    assert not world.bindings
    assert not world.engine.state.device_claims.decisions
    assert not any(held.get("status") for held in world.claims.values())
    world.publish(cards("n0", 4))
    world.settle()
    assert len(world.bindings) == 4


def test_a_gang_whose_claims_do_not_all_fit_rests_until_something_comes() -> None:
    """What it took on trial and gave back was taken for news, and each cycle asked for the next."""
    world = ClaimWorld()
    world.nodes_with(1, each=1)
    world.add(group("g", minimum=2))
    for at in range(2):
        world.ask(f"p{at}", whole(), group="g")
    world.settle()
    assert not world.bindings
    assert not world.engine.pressing
    world.publish(cards("n0", 2))
    assert world.engine.pressing
    world.settle()
    assert len(world.bindings) == 2


@pytest.mark.parametrize("comes", ["slice", "class", "claim", "freed"])
def test_a_pod_wakes_when_what_it_lacks_comes(comes: str) -> None:  # acceptance case 18
    world = ClaimWorld()
    world.add(node("n0"))
    if comes != "class":
        world.publish(GPU)
    if comes != "slice":
        world.publish(cards("n0", 1))
    if comes == "freed":
        world.ask("before", whole())
        world.settle()
    if comes == "claim":
        world.use("p", "mine")
    else:
        world.ask("p", whole())
    world.settle(60)
    assert world.node_of("p") == ""
    assert not world.engine.has_work(world.now)
    if comes == "slice":
        world.publish(cards("n0", 1))
    elif comes == "class":
        world.publish(GPU)
    elif comes == "claim":
        world.shared("mine", whole())
    else:
        world.delete_pod("before")
    assert world.engine.has_work(world.now)
    world.settle()
    assert world.node_of("p") == "n0"


@pytest.mark.parametrize("published", [False, True])
def test_a_class_that_is_not_there_is_named_whether_or_not_a_driver_publishes_anything(published: bool) -> None:
    world = ClaimWorld()
    world.add(node("n0"))
    if published:
        world.publish(cards("n0", 1))
    world.ask("p", whole())
    world.settle()
    assert "there is no device class gpu" in world.condition("p")["message"]
    world.publish(GPU)
    world.settle(60)
    assert world.node_of("p") == ("n0" if published else "")
    assert published or "had no devices for claims" in world.condition("p")["message"]


def test_a_template_claim_that_is_not_made_yet_is_waited_for() -> None:
    world = ClaimWorld()
    world.nodes_with(1)
    world.add(pod("p", cpu="1", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]))
    world.settle()
    assert "spec.resourceClaims[gpu]: waits for a ResourceClaim to be made of template t" in world.condition("p")["message"]


def test_a_refused_write_gives_the_devices_back() -> None:  # acceptance case 20
    world = ClaimWorld()
    world.nodes_with(1, each=1)
    refused: list[Bind] = []
    world.refuse_claim = lambda bind: not refused and not refused.append(bind)  # type: ignore[func-returns-value]
    world.ask("p", whole())
    world.cycle()
    assert refused
    assert not world.engine.state.device_claims.decisions
    world.settle()
    assert world.node_of("p") == "n0"


def test_a_successor_goes_on_from_a_claim_that_has_its_devices() -> None:  # acceptance case 20: killed before the Binding
    world = ClaimWorld()
    world.nodes_with(2)
    world.ask("p", whole())
    held = world.claims["default/p-c0"]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
    result = {"request": "g", "driver": "gpu.example.com", "pool": "n1", "device": "card-1"}
    held["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector},
                      "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-p"}]}  # fmt: skip
    world.publish(held)
    world.settle()
    assert (world.node_of("p"), world.devices_of("p-c0")) == ("n1", ["n1/card-1"])


def test_devices_that_a_pod_cannot_use_are_given_back() -> None:
    world = ClaimWorld()
    world.nodes_with(2)
    world.ask("p", whole())
    held = world.claims["default/p-c0"]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]}
    result = {"request": "g", "driver": "gpu.example.com", "pool": "gone", "device": "card-1"}
    held["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector},
                      "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-p"}]}  # fmt: skip
    world.publish(held)
    world.settle()
    assert world.node_of("p") in ("n0", "n1")


def left_by_a_killed_scheduler(world: ClaimWorld, key: str, where: str, *pods: str) -> None:
    """The API server shows the claim with a device on that node, reserved for pods that were not bound any more."""
    held = world.claims[f"default/{key}"]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [where]}]}]}
    result = {"request": "g", "driver": "gpu.example.com", "pool": where, "device": "card-1"}
    uids = {name: world.pods[f"default/{name}"]["metadata"]["uid"] for name in pods}
    held["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector},
                      "reservedFor": [{"resource": "pods", "name": name, "uid": uid} for name, uid in uids.items()]}  # fmt: skip
    world.publish(held)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("minimum", [2, 3])
def test_a_gang_of_which_a_killed_scheduler_left_one_claim_with_a_device_of_a_node_that_is_gone_starts(
    which: int, minimum: int
) -> None:
    world = ClaimWorld()
    world.nodes_with(2)
    world.add(group("g", minimum=minimum))
    for at in range(3):
        world.ask(f"p{at}", whole(), group="g")
    left_by_a_killed_scheduler(world, f"p{which}-c0", "gone", f"p{which}")
    world.settle(20)
    assert all(world.node_of(f"p{at}") for at in range(3))


@pytest.mark.parametrize("gangs", [1, 2])
@pytest.mark.parametrize("users", [0, 1, 2])
def test_a_claim_that_pods_share_and_a_killed_scheduler_left_on_a_node_that_is_gone_gets_other_devices(
    users: int, gangs: int
) -> None:
    """It was given back only where one pod alone had it reserved."""
    world = ClaimWorld()
    world.nodes_with(2)
    for at in range(gangs):
        world.add(group(f"g{at}", minimum=4 // gangs))
    world.shared("all", whole())
    for at in range(4):
        world.use(f"p{at}", "all", group=f"g{at % gangs}")
    left_by_a_killed_scheduler(world, "all", "gone", *(f"p{at}" for at in range(users)))
    world.settle(20)
    assert all(world.node_of(f"p{at}") for at in range(4))
    assert sorted(world.users_of("all")) == [f"p{at}" for at in range(4)]


def test_a_gang_that_does_not_start_keeps_no_device_that_a_killed_scheduler_left_to_one_of_its_pods() -> None:
    world = ClaimWorld()
    world.nodes_with(1, each=3)
    world.add(group("g", minimum=4))
    for at in range(4):
        world.ask(f"p{at}", whole(), group="g")
    left_by_a_killed_scheduler(world, "p2-c0", "n0", "p2")
    world.settle()
    for at in range(3):
        world.ask(f"other-{at}", whole())
    world.settle()
    assert all(world.node_of(f"other-{at}") for at in range(3))
    assert not world.engine.pressing


def test_a_card_that_is_published_no_more_stays_taken() -> None:  # acceptance case 12
    world = ClaimWorld()
    world.add(node("n1"))
    world.publish(GPU, {"kind": "ResourceSlice", **published(shared_card())})
    world.ask("a", of_memory("50Gi", cores="10"))
    world.settle()
    world.withdraw("ResourceSlice", "s0")
    world.publish({"kind": "ResourceSlice", **published(shared_card(), generation=2)})
    world.ask("b", of_memory("50Gi", cores="10"))
    world.settle()
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")


def test_an_incomplete_pool_is_named() -> None:  # acceptance case 15
    world = ClaimWorld()
    world.add(node("n0"))
    world.publish(GPU, cards("n0", 1, slices=2))
    world.ask("p", whole())
    world.settle()
    task = world.engine.state.tasks["pod-p"]
    (fit_error,) = world.engine.placer.why(task.cls, per_node=True).fit_errors
    assert "incomplete, generation 1: 1 of 2 slices are there" in fit_error.detail


def test_a_selector_that_throws_is_told_and_keeps_nobody_else_away() -> None:  # acceptance case 16
    world = ClaimWorld()
    world.nodes_with(1)
    world.ask("bad", claim(asks(expression='device.attributes["gpu.example.com"].nothing == "x"')))
    world.ask("good", whole())
    world.settle()
    assert (world.node_of("bad"), world.node_of("good")) == ("", "n0")
    assert "claim default/c0, request g, selector 0, device gpu.example.com/n0/card-" in world.condition("bad")["message"]


def test_the_first_alternative_that_fits_is_taken() -> None:  # acceptance case 17, the first half
    world = ClaimWorld()
    world.add(node("n1"))
    world.publish(GPU, {"kind": "ResourceSlice", **published(shared_card())})
    sizes = {"large": "100Gi", "small": "40Gi"}
    options = [
        {"name": name, "deviceClassName": "gpu", "capacity": {"requests": {"memory": size}}} for name, size in sizes.items()
    ]
    world.ask("p", claim({"name": "g", "firstAvailable": options}))
    world.settle()
    (result,) = world.claims["default/p-c0"]["status"]["allocation"]["devices"]["results"]
    assert (result["request"], result["consumedCapacity"]["memory"]) == ("g/small", "40Gi")


def test_a_cluster_without_the_api_says_so_and_serves_everybody_else() -> None:
    world = ClaimWorld()
    world.add(node("n0"))
    world.engine.state.device_claims.lacks("resourceslices", "403 Forbidden: no")
    world.ask("p", whole())
    world.add(pod("plain", cpu="1"))
    world.settle()
    assert (world.node_of("p"), world.node_of("plain")) == ("", "n0")
    assert "no claim can be allocated: resourceslices of resource.k8s.io/v1: 403 Forbidden: no" in world.condition("p")["message"]
    world.publish(GPU, cards("n0"))
    world.engine.state.device_claims.lacks("resourceslices", "")
    world.settle()
    assert world.node_of("p") == "n0"


def test_a_hostile_claim_delays_others_by_its_share_of_a_cycle() -> None:
    world = ClaimWorld()
    world.nodes_with(1, each=100)
    distinct = [{"distinctAttribute": "gpu.example.com/uuid"}, {"matchAttribute": "gpu.example.com/uuid"}]
    world.ask("hostile", claim(*(asks(f"r{at}") for at in range(32)), constraints=distinct), priority=1000)
    world.ask("other", whole())
    looks = count()
    plan = world.engine.cycle(world.now, world.rng, tick=lambda: next(looks) * 1e-4)
    for effect in plan.effects:
        world.perform(effect)
    assert world.node_of("other") == "n0"
    assert next(looks) * 1e-4 < claim_search.CYCLE + 0.02
    assert world.condition("hostile")["message"] == "not tried yet"  # the search goes on in the next cycle


def test_a_more_important_pod_has_a_claim_released_for_it_and_waits_until_it_is() -> None:
    world = ClaimWorld(BUNDLES)
    world.nodes_with(1, each=2)
    world.ask("low", whole(), priority=1)
    world.ask("other", whole(), priority=2)
    world.settle()
    for name in ("low", "other"):
        world.set_phase(name, "Running")
    world.clears = False
    world.ask("high", whole(), priority=100)
    world.settle(5)
    assert [evicted.name for evicted in world.evictions] == ["low"]
    assert world.node_of("high") == ""
    world.settle(5)
    assert len(world.evictions) == 1, "nobody else goes while the claim is still to be cleared"
    world.clear()
    world.settle(3)
    assert (world.node_of("high"), len(world.evictions)) == ("n0", 1)


def test_a_gang_of_64_pods_with_a_claim_each_preempts_lower_ones_and_no_more_of_them() -> None:
    world = ClaimWorld(BUNDLES)
    world.nodes_with(9, each=8)
    for at in range(72):
        world.ask(f"low-{at}", whole(), priority=2 if at < 8 else 1)
    world.settle(10)
    assert len(world.bindings) == 72
    for at in range(72):
        world.set_phase(f"low-{at}", "Running")
    world.add(priority_class("high", 100))
    world.add(group("gang", minimum=64, priority_class="high"))
    for at in range(64):
        world.ask(f"high-{at}", whole(), group="gang", priority=100)
    world.settle(10)
    assert len(world.evictions) == 64
    assert all(world.node_of(f"high-{at}") for at in range(64))
    held = [device for at in range(64) for device in world.devices_of(f"high-{at}-c0")]
    assert len(set(held)) == 64, "a device each"
    left = {one.name for one in world.evictions}
    assert all(f"low-{at}" not in left for at in range(8)), "the more important of the lower ones stay"


def slow(world: ClaimWorld, each: float) -> None:
    """From now on each look at the clock takes so many seconds, as where others have the machine's processors."""
    cycle, looks = world.engine.cycle, count()

    def tick() -> float:
        return next(looks) * each

    def slowly(now: float, rng: Any = None, **more: Any) -> Any:
        return cycle(now, rng, **{"budget": 0.05, "tick": tick, **more})

    world.engine.cycle = slowly  # type: ignore[method-assign]


@pytest.mark.parametrize("each", [0.0007, 0.003])
@pytest.mark.parametrize("preempts", [False, True])
def test_a_gang_of_64_pods_with_a_claim_each_starts_where_one_cycle_has_no_time_to_search_for_all_their_devices(
    each: float, preempts: bool
) -> None:
    world = ClaimWorld(BUNDLES)
    world.nodes_with(8, each=8)
    world.add(priority_class("high", 100))
    for at in range(64 * preempts):
        world.ask(f"low-{at}", whole(), priority=1)
    world.settle(10)
    for at in range(64 * preempts):
        world.set_phase(f"low-{at}", "Running")
    world.add(group("gang", minimum=64, priority_class="high"))
    for at in range(64):
        world.ask(f"high-{at}", whole(), group="gang", priority=100)
    slow(world, each)
    world.settle(40)
    assert len({effect.attempt for effect in world.bindings if effect.name.startswith("high")}) == 1, "all of it in one cycle"
    assert all(world.node_of(f"high-{at}") for at in range(64))
    assert len({device for at in range(64) for device in world.devices_of(f"high-{at}-c0")}) == 64
    assert len(world.evictions) == 64 * preempts
    assert not world.engine.state.terminating.gang_searches


@pytest.mark.parametrize("each", [0.0, 0.0007, 0.003])
def test_a_gang_whose_pods_ask_for_claims_and_nothing_else_preempts_and_starts(each: float) -> None:
    """Such pods request nothing that a queue counts: neither backfill nor a share of zero keeps them from starting as a gang."""
    gang = {"gang": {"enablePreemptable": False, "enableReclaimable": False}}
    world = ClaimWorld(conf(["priority", gang, "conformance"], ["predicates", "proportion", "nodeorder"],
                            actions="enqueue, allocate, preempt, reclaim, backfill"))  # fmt: skip
    world.clears = False
    world.nodes_with(4, each=4)
    world.add(priority_class("high", 100))
    for at in range(16):
        world.ask(f"low-{at}", whole(), priority=1, cpu=None)
    world.settle(10)
    assert len(world.bindings) == 16
    for at in range(16):
        world.set_phase(f"low-{at}", "Running")
    world.add(group("gang", minimum=16, priority_class="high"))
    for at in range(16):
        world.ask(f"high-{at}", whole(), group="gang", priority=100, cpu=None)
    slow(world, each)
    world.settle(20)
    assert len(world.evictions) == 16
    for at in range(16):
        world.ask(f"again-{at}", whole(), priority=1, cpu=None)  # as a Deployment makes those anew that were evicted
    world.clear()
    world.settle(1)
    assert all(world.node_of(f"high-{at}") for at in range(16)), "in the cycle that sees the last of them gone"
    world.settle(10)
    assert len(world.evictions) == 16


def test_a_device_that_another_scheduler_takes_from_what_is_held_for_a_gang_is_not_given_twice() -> None:
    world = ClaimWorld(BUNDLES)
    world.nodes_with(3, each=8)
    world.add(group("gang", minimum=20))
    for at in range(20):
        world.ask(f"m-{at}", whole(), group="gang")
    world.shared("other", whole())
    slow(world, 0.003)
    world.settle(1)
    [task, *_] = [found.task for found in world.engine.state.nominations.kept.values()]
    [held] = world.engine.state.ledger.placements[task.uid].claims
    assert held.allocation is not None
    [one] = results_in(held.allocation)
    mine = copy.deepcopy(world.claims["default/other"])
    result = {"request": "g", "driver": one.driver, "pool": one.pool, "device": one.device}
    mine["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [
        {"resource": "pods", "name": "theirs", "uid": "theirs"}]}  # fmt: skip
    world.publish(mine)
    world.settle(40)
    assert all(world.node_of(f"m-{at}") for at in range(20))
    world.check()


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_nobody_else_goes_for_a_pod_whose_devices_are_free_and_whose_search_had_no_more_time(
    looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ClaimWorld(BUNDLES)
    world.nodes_with(1, each=2)
    for name, priority in (("low", 1), ("other", 2)):
        world.ask(name, whole(), priority=priority)
    world.settle()
    for name in ("low", "other"):
        world.set_phase(name, "Running")
    world.clears = False
    world.ask("high", whole(), priority=100)
    world.settle(5)
    world.clear()
    over, past = [True] * looks, claim_search.ClaimSearch._past
    monkeypatch.setattr(claim_search.ClaimSearch, "_past", lambda *told: (bool(over) and over.pop()) or past(*told))
    world.settle(3)
    assert (world.node_of("high"), [evicted.name for evicted in world.evictions]) == ("n0", ["low"])
