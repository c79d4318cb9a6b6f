"""Gangs run with their minimum or not at all."""

from kit.engine_world import World, scenario
from kit.objects import group, node, pod
from kit.scheduler_confs import conf


def gang(size: int, minimum: int, **shape: str) -> list[dict[str, object]]:
    return [group("g", minimum=minimum), *(pod(f"g-{i}", group="g", **shape) for i in range(size))]  # type: ignore[arg-type]


def test_a_gang_of_three_waits_on_room_for_two_and_runs_in_one_cycle_after_a_node_is_added() -> None:
    world = World()
    world.add(node("n1", cpu="2"), *gang(3, 3, cpu="1"))
    world.settle()
    assert [world.node_of(f"g-{i}") for i in range(3)] == ["", "", ""]
    status = world.groups["default/g"]["status"]
    assert status["phase"] == "Inqueue"
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("Unschedulable", "NotEnoughResources")
    assert condition["message"].startswith(
        "1/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; "
        "Pending: 1 Unschedulable, 2 Schedulable. Origin reason is g-2: 0/1 nodes are unavailable: 1 Insufficient cpu."
    )
    assert world.condition("g-0")["message"] == (
        "Pod default/g-0 can possibly be assigned to n1, once minAvailable is satisfied"
    )
    world.add(node("n2", cpu="2"))
    world.cycle()
    assert all(world.node_of(f"g-{i}") for i in range(3))
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Running"
    assert [e.message for e in world.events if e.reason == "Scheduled"] == ["pod group is ready"]


def test_a_gang_is_not_tried_before_enough_of_its_pods_exist() -> None:
    world = World()
    world.add(node("n1"), *gang(2, 3, cpu="1"))
    world.settle()
    assert world.node_of("g-0") == ""
    assert "Not enough valid tasks for gang-scheduling, valid: 2, min: 3" in world.condition("g-0")["message"]
    world.add(pod("g-2", group="g", cpu="1"))
    world.settle()
    assert all(world.node_of(f"g-{i}") == "n1" for i in range(3))


def test_an_elastic_gang_takes_what_fits_beyond_its_minimum() -> None:
    world = scenario(
        "four of six fit", nodes=[node("n1", cpu="4")], arriving=gang(6, 2, cpu="1"), expect={"g-0": "n1", "g-3": "n1"}
    )
    assert sum(bool(world.node_of(f"g-{i}")) for i in range(6)) == 4
    assert world.groups["default/g"]["status"]["phase"] == "Running"


def test_role_minimums_hold_the_gang_back() -> None:
    world = World()
    world.add(node("n1", cpu="3"), group("g", minimum=3, roles={"ps": 1, "worker": 2}))
    world.add(pod("g-w0", group="g", role="worker", cpu="1"), pod("g-w1", group="g", role="worker", cpu="1"),
              pod("g-w2", group="g", role="worker", cpu="1"))  # fmt: skip
    world.settle()
    assert all(not world.node_of(f"g-w{i}") for i in range(3))
    world.add(pod("g-p0", group="g", role="ps", cpu="1"))
    world.settle()
    assert world.node_of("g-p0") == "n1"
    assert sum(bool(world.node_of(f"g-w{i}")) for i in range(3)) == 2


def test_without_the_gang_plugin_pods_go_one_by_one() -> None:
    world = World(conf("predicates"))
    world.add(node("n1", cpu="2"), *gang(3, 3, cpu="1"))
    world.settle()
    assert sum(bool(world.node_of(f"g-{i}")) for i in range(3)) == 2


def test_minimum_above_what_exists_waits_and_harms_nobody() -> None:
    world = World()
    world.add(node("n1"), group("huge", minimum=2_000_000_000), pod("h-0", group="huge", cpu="1"), pod("other", cpu="1"))
    world.settle()
    assert (world.node_of("h-0"), world.node_of("other")) == ("", "n1")


def test_pods_whose_group_does_not_exist_wait_without_cost() -> None:
    world = World()
    world.add(node("n1"), pod("a", cpu="1", group="nowhere"))
    world.settle()
    assert not world.engine.has_work(world.now + 3600)
    world.add(group("nowhere", minimum=1))
    world.settle()
    assert world.node_of("a") == "n1"


def test_a_gang_that_does_not_fit_is_left_alone_until_something_is_released() -> None:
    world = World(conf("gang", "predicates"))
    world.add(node("n1", cpu="3"), pod("holder", cpu="2"))
    world.settle()
    world.add(*gang(3, 3, cpu="1"))
    world.settle()
    assert not world.engine.has_work(world.now)
    world.delete_pod("holder")
    assert world.engine.has_work(world.now)
    world.settle()
    assert all(world.node_of(f"g-{i}") == "n1" for i in range(3))


def test_a_small_pod_is_placed_although_a_gang_took_its_room_for_a_moment() -> None:
    """Pods that become unschedulable while a gang is tried are activated when the gang is rolled back."""
    world = World()
    world.add(node("n1", cpu="2"), *gang(3, 3, cpu="1"), pod("late", cpu="1"))
    world.settle()
    assert world.node_of("late") == "n1"


def test_room_that_a_discarded_gang_gave_back_is_seen_by_every_class() -> None:
    """While a gang is tried its own pods fill n1; afterwards n1 is empty again for classes that saw it full."""
    world = World(conf("gang", "predicates", "binpack", actions="allocate"))
    world.add(node("n1", cpu="2"), node("n2", cpu="3"), group("mixed", minimum=4))
    shapes = [("a", "1"), ("b", "1"), ("c", "2"), ("d", "9")]
    world.add(*(pod(f"mixed-{name}", group="mixed", cpu=cpu) for name, cpu in shapes))
    world.cycle()
    assert not any(world.node_of(f"mixed-{name}") for name, _ in shapes)
    world.add(pod("filler", cpu="3"))
    world.settle()
    world.add(pod("two", cpu="2"))
    world.settle()
    assert (world.node_of("filler"), world.node_of("two")) == ("n2", "n1")


def test_a_gang_of_which_one_member_requests_nothing_is_not_bound_by_halves() -> None:
    world = World()
    world.add(node("n1", cpu="2", pods=1), group("g", minimum=2), pod("g-0", group="g", cpu="1"), pod("g-1", group="g"))
    world.settle()
    assert [world.node_of(f"g-{i}") for i in range(2)] == ["", ""]
    world.add(node("n2", cpu="2", pods=1))
    world.settle()
    assert sorted(world.node_of(f"g-{i}") for i in range(2)) == ["n1", "n2"]
    world.add(pod("g-2", group="g"), node("n3", pods=1))
    world.settle()
    assert world.node_of("g-2") == "n3"


def test_a_gang_whose_members_request_nothing_is_not_bound_by_halves() -> None:
    world = World()
    world.add(node("n1", pods=2), group("g", minimum=3), *(pod(f"g-{i}", group="g") for i in range(3)))
    world.settle()
    assert [world.node_of(f"g-{i}") for i in range(3)] == ["", "", ""]
    world.add(node("n2", pods=1))
    world.settle()
    assert sorted(world.node_of(f"g-{i}") for i in range(3)) == ["n1", "n1", "n2"]


def test_a_role_is_not_filled_by_a_pod_without_a_place() -> None:
    world = World()
    world.add(node("n1", cpu="2", pods=1), group("g", minimum=2, roles={"ps": 1, "worker": 1}))
    world.add(pod("g-p", group="g", role="ps"), pod("g-w", group="g", role="worker", cpu="1"))
    world.settle()
    assert [world.node_of("g-p"), world.node_of("g-w")] == ["", ""]
    world.add(node("n2", cpu="2", pods=1))
    world.settle()
    assert sorted((world.node_of("g-p"), world.node_of("g-w"))) == ["n1", "n2"]


def test_a_gang_that_stands_on_a_pod_that_never_goes_lets_the_others_pass_after_a_while() -> None:
    world = World(conf("gang", "predicates"))
    world.add(node("n1", cpu="2"), pod("stuck", cpu="1"))
    world.settle()
    world.terminate("stuck")
    world.add(*gang(2, 2, cpu="1"))
    world.settle()
    world.add(pod("late", cpu="1"))
    world.settle(290)
    assert world.node_of("late") == ""
    world.settle(20)
    assert world.node_of("late") == "n1"
    reported = [(e.kind, e.name) for e in world.events if e.reason == "StuckTerminating"]
    assert reported == [("Pod", "stuck"), ("PodGroup", "g")]
    world.delete_pod("stuck")
    world.delete_pod("late")
    world.settle()
    assert [world.node_of(f"g-{i}") for i in range(2)] == ["n1", "n1"]


def test_a_gang_that_comes_to_stand_by_pods_that_ask_for_nothing_lets_the_others_come_at_once() -> None:
    alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}]}}  # fmt: skip
    world = World()
    world.add(
        node("n1", cpu="4"), group("g", minimum=2), pod("apart", group="g", cpu="2", priority=5, affinity=alone),
        pod("idle-1", group="g", priority=9), pod("idle-2", group="g", priority=9), pod("other", group="g", cpu="2"),
    )  # fmt: skip
    world.settle(1)
    assert [world.node_of(name) for name in ("idle-1", "idle-2", "other")] == ["n1"] * 3, "held back by none that did not stay"
    assert world.node_of("apart") == ""


def test_a_nomination_that_leaves_no_room_for_the_rest_of_a_gang_is_followed_once() -> None:
    small = pod("small", group="g", cpu="1", priority=9)
    small["status"]["nominatedNodeName"] = "n1"
    world = World()
    world.add(node("n1", cpu="4"), node("n2", cpu="1"), group("g", minimum=2), small, pod("large", group="g", cpu="4"))
    world.settle(1)
    assert (world.node_of("small"), world.node_of("large")) == ("n2", "n1")
