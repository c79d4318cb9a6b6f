"""Quotas of queues in cards and memory: what a pod is charged is what it takes of the cards."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest
from kit.engine_world import DEVICES_ONLY, World
from kit.objects import group, node, pod, queue
from kit.room_worlds import MIG, mig_node
from kit.scheduler_confs import conf

from pumice.effects.vocabulary import Bind
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.state import State
from pumice.wire.scheduler_conf import parse_scheduler_conf


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


MEMORY = "volcano.sh/vgpu-memory"
NUMBER = "volcano.sh/vgpu-number"


def whole(name: str, cards: int = 1, **more: Any) -> dict[str, Any]:
    return pod(name, cards=cards, queue="team", **more)


def share(name: str, percent: int, cards: int = 1) -> dict[str, Any]:
    return pod(name, cards=cards, queue="team", limits={"volcano.sh/vgpu-memory-percentage": str(percent)})


def charged(world: World) -> int:
    """Memory units that queue team is charged now."""
    return world.engine.state.queues["team"].allocated.get(MEMORY, 0) // 1000


def test_a_pod_of_whole_cards_is_charged_the_memory_of_the_cards_it_gets() -> None:
    world = World()
    world.add(node("n1", cards=4, mib=8000), queue("team", capability={MEMORY: "20000"}))
    world.add(whole("pair", 2), whole("third"))
    world.settle()
    world.add(whole("fourth"))
    world.settle()
    assert charged(world) == 16000
    assert sum(bool(world.node_of(name)) * cards for name, cards in (("pair", 2), ("third", 1), ("fourth", 1))) == 2
    waiting = "third" if world.node_of("pair") else "pair"
    assert "queue team has no room left" in world.condition(waiting)["message"]
    assert f"{MEMORY}: " in world.condition(waiting)["message"]


def test_a_percentage_is_charged_what_it_comes_to_on_the_card() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000), node("n2", cards=1, mib=16000), queue("team", capability={MEMORY: "10000"}))
    world.add(share("quarter", 25), share("half", 50))
    world.settle()
    assert world.node_of("quarter")
    assert world.node_of("half")
    held = {"n1": 8000, "n2": 16000}
    assert charged(world) == held[world.node_of("quarter")] // 4 + held[world.node_of("half")] // 2 <= 10000


def test_where_the_better_card_is_too_dear_for_the_queue_the_cheaper_one_is_taken() -> None:
    """Binpack prefers the large card, on which something runs; the queue can pay for the small one only."""
    world = World()
    world.add(node("large", cards=2, mib=32000), node("small", cards=1, mib=8000), queue("team", capability={MEMORY: "10000"}))
    world.add(pod("other", mib=1000, nodeSelector={"kubernetes.io/hostname": "large"}))
    world.settle()
    world.add(whole("mine"))
    world.settle()
    assert world.node_of("mine") == "small"
    assert charged(world) == 8000


def unlike(name: str, *sizes: int) -> dict[str, Any]:
    """A node whose cards have these amounts of memory."""
    entries = [f"GPU-{name}-{i},10,{mib},NVIDIA-{mib},true,hami-core:" for i, mib in enumerate(sizes)]
    made = node(name, register="".join(entries))
    made["status"]["allocatable"] |= {NUMBER: str(10 * len(sizes)), MEMORY: str(sum(sizes)),
                                      "volcano.sh/vgpu-cores": str(100 * len(sizes))}  # fmt: skip
    return made


@pytest.mark.parametrize("sizes", list(permutations((32000, 16000, 8000))))
@pytest.mark.parametrize("policy", ["binpack", "spread"])
@pytest.mark.parametrize("limit", [40000, 20000, 10000, 7000])
def test_of_unlike_cards_of_one_node_those_are_taken_that_the_queue_can_pay(
    sizes: tuple[int, ...], policy: str, limit: int
) -> None:
    """Whole cards, one after the other, until the queue can pay for none that is left."""
    world = World(DEVICES_ONLY % policy + "  - name: proportion\n")
    world.add(unlike("n1", *sizes), queue("team", capability={MEMORY: str(limit)}))
    world.add(*(whole(name) for name in ("one", "two", "three")))
    world.settle()
    free = [mib for card, mib in enumerate(sizes) if f"n1/{card}" not in world.placements().values()]
    assert charged(world) == sum(sizes) - sum(free) <= limit
    assert min(free) > limit - charged(world)


def test_of_two_cards_that_a_pod_wants_only_the_dear_one_is_exchanged() -> None:
    world = World()
    world.add(unlike("n1", 32000, 8000, 8000), queue("team", capability={MEMORY: "16000"}), whole("pair", 2))
    world.settle()
    assert (world.card_of("pair"), charged(world)) == ("n1/1+2", 16000)


def test_a_queue_without_memory_gets_no_whole_card() -> None:
    world = World()
    world.add(node("n1", cards=4, mib=8000), queue("team", capability={MEMORY: "5000"}), whole("w"))
    world.settle()
    assert world.node_of("w") == ""
    assert "8000 wanted" in world.condition("w")["message"]


def test_what_whole_cards_were_charged_is_given_back_when_the_pod_goes_and_the_next_one_starts() -> None:
    world = World()
    world.add(node("n1", cards=4, mib=8000), queue("team", capability={MEMORY: "16000"}), whole("pair", 2))
    world.settle()
    world.add(whole("late", 2))
    world.settle()
    assert (charged(world), world.node_of("late")) == (16000, "")
    world.delete_pod("pair")
    world.settle()
    assert (charged(world), world.node_of("late")) == (16000, "n1")
    world.delete_pod("late")
    world.settle()
    assert charged(world) == 0


def test_a_gang_of_whole_cards_beyond_its_queue_is_taken_back_as_a_whole() -> None:
    world = World()
    world.add(node("n1", cards=4, mib=8000), queue("team", capability={MEMORY: "20000"}))
    world.add(group("gang", minimum=3, queue="team"), *(whole(f"g-{i}", group="gang") for i in range(3)))
    world.settle()
    assert not any(world.placements().values())
    assert charged(world) == 0
    world.add(whole("alone", 2))
    world.settle()
    assert (world.node_of("alone"), charged(world)) == ("n1", 16000)


def test_a_restarted_scheduler_charges_the_same() -> None:
    world = World()
    world.add(node("n1", cards=4, mib=8000), node("n2", cards=2, mib=16000), queue("team", capability={MEMORY: "60000"}))
    world.add(whole("a", 2), share("b", 30), share("c", 100), pod("d", mib=3000, cards=1, queue="team"))
    world.settle()
    assert len(world.placements()) == 4
    before = world.engine.state.queues["team"].allocated
    assert world.restarted().state.queues["team"].allocated == before
    assert world.restarted().state.queues["team"].pending == world.engine.state.queues["team"].pending


@pytest.mark.parametrize("kind", [{"cards": 2}, {"cards": 2, "mib": 3000}, {"cards": 2, "mib": 3000, "cores": 20}])
def test_a_restarted_scheduler_that_reads_its_configuration_last_charges_the_same(kind: dict[str, int]) -> None:
    """Lists and ConfigMaps come in at once: pods may be read before anybody knows which cards are shared, and how."""
    world = World()
    world.add(node("n1", cards=4, mib=8000), queue("team", capability={MEMORY: "16000"}))
    world.add(pod("a", queue="team", **kind), share("b", 25))
    world.settle()
    before = world.engine.state.queues["team"].allocated
    known, world.engine = world.engine.conf, Engine(parse_scheduler_conf(conf("predicates")), state=State())
    for table in (world.queues, world.nodes, world.pods):
        for obj in table.values():
            world.report(obj)
    world.engine.configure(known)
    assert world.engine.state.queues["team"].allocated == before
    world.add(whole("c"))
    world.settle()
    assert world.engine.state.queues["team"].allocated.get(MEMORY, 0) <= 16_000_000


def test_whole_cards_cost_their_queue_the_same_while_their_plugin_restarts() -> None:
    world = World()
    world.add(node("n1", cards=2, mib=8000), queue("team", capability={MEMORY: "12000"}), whole("a"))
    world.settle()
    world.add(node("n1"), node("n2", cards=2, mib=8000), whole("b"))
    assert not [effect for effect in world.engine.cycle(world.now).effects if isinstance(effect, Bind)]
    world.add(node("n1", cards=2, mib=8000))
    world.settle()
    assert (charged(world), world.node_of("b")) == (8000, "")


def test_a_card_that_registers_anew_with_other_memory_changes_what_is_charged() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000), queue("team", capability={MEMORY: "60000"}), share("a", 50), share("b", 25))
    world.settle()
    assert charged(world) == 6000
    world.delete_pod("b")
    world.add(node("n1", cards=2, mib=8000))
    world.settle()
    assert charged(world) == 4000  # by its annotation, as long as it runs


def sliced(name: str, mib: int, **more: Any) -> dict[str, Any]:
    return pod(name, mib=mib, queue="team", **more)


def test_a_mig_slice_is_charged_its_size_and_not_what_was_asked_of_it() -> None:
    world = World()
    world.add(mig_node("m"), queue("team", capability={MEMORY: "15000"}))
    world.add(*(sliced(f"p{number}", 3000, annotations=MIG) for number in range(3)))
    world.settle()
    assert charged(world) == 2 * 5120
    (waiting,) = [name for name in ("p0", "p1", "p2") if not world.node_of(name)]
    assert "queue team has no room left for it (volcano.sh/vgpu-memory: 5120 wanted" in world.condition(waiting)["message"]
    assert world.restarted().state.queues["team"].allocated == world.engine.state.queues["team"].allocated


def test_where_a_slice_is_too_dear_a_share_of_another_card_is_taken() -> None:
    world = World()
    world.add(mig_node("m"), node("plain", cards=1, mib=8000), queue("team", capability={MEMORY: "4000"}))
    world.add(pod("other", mib=1000, annotations=MIG))  # binpack goes on with m
    world.settle()
    world.add(sliced("either", 3000), sliced("slice", 3000, annotations=MIG))
    world.settle()
    assert (world.node_of("either"), world.node_of("slice"), charged(world)) == ("plain", "", 3000)


def test_a_queue_may_have_all_slices_that_its_capability_pays_whatever_groups_they_come_from() -> None:
    """The first pod opens group2; what the next one gets there is larger than on an empty card."""
    world = World()
    world.add(mig_node("m"), queue("team", capability={MEMORY: "30720"}))
    world.add(sliced("ten", 9000, annotations=MIG))
    world.settle()
    world.add(*(sliced(f"p{number}", 5500, annotations=MIG) for number in range(3)))
    world.settle()
    assert charged(world) == 3 * 10240


def test_quotas_of_random_pods_hold_whatever_cards_they_get() -> None:
    for seed in range(12):
        rng = random.Random(seed)
        limit = rng.randrange(8000, 60000)
        world = World()
        world.add(queue("team", capability={MEMORY: str(limit), NUMBER: "9"}))
        world.add(*(node(f"n{i}", cards=rng.randint(1, 4), mib=rng.choice((8000, 16000, 24000))) for i in range(3)))
        world.add(mig_node("m1", cards=2), mig_node("m2"))
        alive: list[str] = []
        for step in range(25):
            name = f"p{step}"
            kind = rng.random()
            world.add(whole(name, rng.randint(1, 2)) if kind < 0.4 else share(name, rng.randint(1, 100), rng.randint(1, 2))
                      if kind < 0.8 else pod(name, mib=rng.randint(100, 8000), queue="team"))  # fmt: skip
            alive.append(name)
            if rng.random() < 0.3:
                world.delete_pod(alive.pop(rng.randrange(len(alive))))
            world.settle(0.5)
            books = world.engine.state.ledger.placements.values()
            real = sum(
                container_device.memory
                for held in books
                for allocation in held.allocations
                for container_device in allocation.container_devices
            )
            assert charged(world) == real <= limit, (seed, step)
            assert world.restarted().state.queues["team"].allocated == world.engine.state.queues["team"].allocated
        for name in alive:
            world.delete_pod(name)
        world.settle()
        team = world.engine.state.queues["team"]
        assert (team.allocated, team.pending, team.quota_known_late) == ({}, {}, {}) or not any(
            {**team.allocated, **team.pending, **team.quota_known_late}.values()
        )
