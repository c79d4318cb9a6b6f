"""Quotas of queues in cards and memory: what a pod is charged is what it takes of the cards."""

from __future__ import annotations

from tests.kit.engine_world import World
from tests.kit.objects import node, pod, queue


def test_a_pod_of_two_cards_is_charged_the_memory_of_both() -> None:
    world = World()
    world.add(node("n1", cards=4, mib=8000), queue("team", capability={"volcano.sh/vgpu-memory": "6000"}))
    world.add(pod("pair", cards=2, mib=3000, queue="team"))
    world.settle()
    assert world.node_of("pair") == "n1"
    world.add(pod("late", mib=500, queue="team"))
    world.settle()
    assert world.node_of("late") == ""
    assert world.condition("late")["message"] == (
        "queue team has no room left for it (volcano.sh/vgpu-memory: 500 wanted, 6000 of 6000 in use)"
    )


def test_a_queue_without_room_names_each_resource_it_lacks_with_the_numbers() -> None:
    world = World()
    world.add(node("n1", cpu="64", memory="64Gi"), queue("team", capability={"cpu": "2500m", "memory": "3Gi"}))
    world.add(pod("first", cpu="2", memory="2Gi", queue="team"))
    world.settle()
    world.add(pod("late", cpu="1", memory="2Gi", queue="team"))
    world.settle()
    assert world.condition("late")["message"] == (
        "queue team has no room left for it (cpu: 1 wanted, 2 of 2500m in use, memory: 2048Mi wanted, 2048Mi of 3072Mi in use)"
    )


def test_what_a_pod_gives_back_another_of_its_queue_may_take() -> None:
    world = World()
    world.add(node("n1", cards=4, mib=8000), queue("team", capability={"volcano.sh/vgpu-memory": "6000"}))
    world.add(pod("pair", cards=2, mib=3000, queue="team"))
    world.settle()
    world.add(pod("late", cards=2, mib=3000, queue="team"))
    world.settle()
    assert world.node_of("late") == ""
    world.delete_pod("pair")
    world.settle()
    assert world.node_of("late") == "n1"


def test_a_quota_in_cards_counts_cards() -> None:
    world = World()
    world.add(node("n1", cards=4, mib=8000), queue("team", capability={"volcano.sh/vgpu-number": "3"}))
    world.add(pod("pair", cards=2, mib=3000, queue="team"), pod("another", cards=2, mib=3000, queue="team"))
    world.settle()
    assert sorted(world.node_of(name) for name in ("pair", "another")) == ["", "n1"]
