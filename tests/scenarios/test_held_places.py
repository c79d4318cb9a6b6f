"""Places that a node's annotation holds: the cards take nobody but whom they are held for, until the time is over, whatever is
written there."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import MovingWorld
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf, sharing

from pumice.apps.moving import HELD, PATIENCE
from pumice.scheduler.state.held_places import AT_ONCE
from pumice.wire import names
from pumice.wire.held_places import (
    LONGEST,
    MOST,
    HeldPlace,
    parse_held_for,
    parse_held_places,
    render_held_for,
    render_held_places,
)
from pumice.wire.times import stamp

Json = dict[str, Any]
CONF = conf("gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"))
FIRST, SECOND = "GPU-n1-0", "GPU-n1-1"


def one_card(*more: Json) -> MovingWorld:
    world = MovingWorld(CONF)
    world.add(node("n1", cards=1), *more)
    return world


def say(world: MovingWorld, text: str, name: str = "n1") -> None:
    found = world.nodes[name]
    notes = {**found["metadata"].get("annotations", {}), names.HELD_PLACES: text}
    world.add({**found, "metadata": {**found["metadata"], "annotations": notes}})


def hold(world: MovingWorld, *places: HeldPlace) -> None:
    say(world, render_held_places(places))


def until(world: MovingWorld, seconds: float) -> str:
    return stamp(world.now + seconds)


def held_on_books(world: MovingWorld) -> list[str]:
    return [uid for uid in world.engine.state.ledger.placements if "held on" in uid]


def uid_of(world: MovingWorld, name: str) -> str:
    return str(world.pods[f"default/{name}"]["metadata"]["uid"])


def test_a_third_pod_of_the_same_size_does_not_take_the_place_of_one_that_is_made_anew() -> None:
    world = one_card(pod("a", mib=8000, owner="a"))
    world.settle()
    hold(world, HeldPlace((FIRST,), until(world, 300), uid_of(world, "a"), "job-a"))
    world.delete_pod("a")
    world.add(pod("thief", mib=8000), pod("small", mib=10))
    world.settle(5)
    assert (world.node_of("thief"), world.node_of("small")) == ("", "")
    world.add(pod("a-2", mib=8000, owner="a"))
    world.settle(5)
    assert (world.node_of("a-2"), world.node_of("thief")) == ("n1", "")
    assert not held_on_books(world)


def test_a_place_is_free_again_when_its_time_is_over() -> None:
    world = one_card(pod("a", mib=8000, owner="a"))
    world.settle()
    hold(world, HeldPlace((FIRST,), until(world, 60), uid_of(world, "a"), "job-a"))
    world.delete_pod("a")
    world.add(pod("third", mib=8000))
    world.settle(50)
    assert world.node_of("third") == ""
    world.settle(20)
    assert world.node_of("third") == "n1"
    assert not held_on_books(world)


def test_a_place_is_free_again_when_the_node_says_no_more_that_it_is_held_or_is_gone() -> None:
    world = one_card(pod("a", mib=8000, owner="a"))
    world.settle()
    hold(world, HeldPlace((FIRST,), until(world, 300)))
    world.delete_pod("a")
    world.add(pod("third", mib=8000))
    world.settle(5)
    assert held_on_books(world)
    say(world, "")
    world.settle(5)
    assert world.node_of("third") == "n1"
    hold(world, HeldPlace((FIRST,), until(world, 300)))
    world.settle(2)
    world.remove("Node", "n1")
    world.settle(2)
    assert not held_on_books(world)


def test_a_pod_that_waits_in_vain_behind_others_gets_the_card_that_is_held_for_it() -> None:
    world = one_card(pod("a", mib=8000), pod("first", mib=8000, priority=9), pod("late", mib=8000))
    world.settle()
    hold(world, HeldPlace((FIRST,), until(world, 300), uid_of(world, "late")))
    world.delete_pod("a")
    world.settle(5)
    assert (world.node_of("first"), world.node_of("late")) == ("", "n1")


def test_a_gang_gets_the_places_that_are_held_for_it_together_or_none() -> None:
    world = MovingWorld(CONF)
    world.add(node("n1", cards=2))
    world.on_card(FIRST, pod("a", mib=8000))
    world.on_card(SECOND, pod("b", mib=8000))
    world.add(group("g", minimum=2), pod("g0", mib=8000, group="g"), pod("g1", mib=8000, group="g"), pod("thief", mib=8000))
    world.settle()
    hold(world, *(HeldPlace((card,), until(world, 300), uid_of(world, name)) for card, name in ((FIRST, "g0"), (SECOND, "g1"))))
    world.delete_pod("a")
    world.settle(5)
    assert [world.node_of(name) for name in ("g0", "g1", "thief")] == ["", "", ""]
    world.delete_pod("b")
    world.settle(5)
    assert [world.card_of(name) for name in ("g0", "g1")] == ["n1/0", "n1/1"]
    assert not held_on_books(world)


def test_of_two_places_that_are_held_for_one_pod_it_gets_one_and_two_of_a_controller_get_one_each() -> None:
    world = MovingWorld(CONF)
    world.add(node("n1", cards=2))
    world.on_card(FIRST, pod("a", mib=8000, owner="set"))
    world.on_card(SECOND, pod("b", mib=8000, owner="set"))
    world.add(pod("late", mib=8000))
    hold(world, *(HeldPlace((card,), until(world, 300), uid_of(world, name), "job-set")
                  for card, name in ((FIRST, "a"), (SECOND, "b"))))  # fmt: skip
    world.delete_pod("a")
    world.delete_pod("b")
    world.add(pod("a-2", mib=8000, owner="set"), pod("b-2", mib=8000, owner="set"))
    world.settle(5)
    assert {world.card_of(name) for name in ("a-2", "b-2")} == {"n1/0", "n1/1"}
    world.delete_pod("a-2")
    world.delete_pod("b-2")
    hold(world, *(HeldPlace((card,), until(world, 300), uid_of(world, "late")) for card in (FIRST, SECOND)))
    world.settle(5)
    assert world.node_of("late") == "n1"


def test_a_sibling_that_waits_already_does_not_take_the_place_while_the_pod_is_still_there() -> None:
    world = MovingWorld(CONF)
    world.add(node("n1", cards=2))
    world.on_card(FIRST, pod("a", mib=8000, owner="set"))
    hold(world, HeldPlace((SECOND,), until(world, 300), uid_of(world, "a"), "job-set"))
    world.add(pod("sibling", mib=8000, owner="set"))
    world.settle(5)
    assert world.node_of("sibling") == ""


BAD = {
    "no JSON": "GPU-n1-0 for ever", "no list": "{}", "an unknown field": '[{"cards":["GPU-n1-0"],"until":"x","node":"n2"}]',
    "no time": '[{"cards":["GPU-n1-0"],"until":"tomorrow"}]', "no cards": '[{"cards":[],"until":"UNTIL"}]',
    "a time without a zone": '[{"cards":["GPU-n1-0"],"until":"2026-01-01T00:00:00"}]',
    "far ahead": '[{"cards":["GPU-n1-0"],"until":"9999-01-01T00:00:00Z"}]',
    "a card of another node": '[{"cards":["GPU-n2-0"],"until":"UNTIL"}]',
    "an unknown pod": '[{"cards":["GPU-n1-0"],"until":"UNTIL","pod":"nobody"}]',
    "an unknown controller": '[{"cards":["GPU-n1-0"],"until":"UNTIL","pod":"nobody","controller":"nobody"}]',
    "too many": "[" + ",".join(['{"cards":["GPU-n1-0"],"until":"UNTIL"}'] * 65) + "]",
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_hold_counts_as_none_and_the_log_says_why(case: str) -> None:
    world = one_card()
    say(world, BAD[case].replace("UNTIL", until(world, 100)))
    world.add(pod("third", mib=8000))
    world.settle(2)
    assert world.node_of("third") == "n1"
    assert world.engine.state.problems["Node n1: held places"]
    say(world, "")
    assert not world.engine.state.problems


def test_a_pod_that_says_that_places_are_held_holds_none() -> None:
    world = one_card()
    text = render_held_places((HeldPlace((FIRST,), until(world, 300)),))
    world.add(pod("greedy", mib=10, annotations={names.HELD_PLACES: text}), pod("third", mib=7900))
    world.settle(2)
    assert (world.node_of("greedy"), world.node_of("third")) == ("n1", "n1")
    assert not held_on_books(world)


def test_a_time_that_is_over_is_no_hold_and_no_trouble() -> None:
    world = one_card()
    hold(world, HeldPlace((FIRST,), until(world, -1)))
    world.add(pod("third", mib=8000))
    world.settle(2)
    assert world.node_of("third") == "n1"
    assert not world.engine.state.problems


def test_a_pod_of_a_queue_that_has_no_room_does_not_get_a_place_that_is_held_for_it() -> None:
    world = MovingWorld(conf("gang", "capacity", "predicates", sharing("VGPU")))
    world.add(node("n1", cards=1), queue("small", capability={names.VGPU_MEMORY: "1000"}))
    world.add(pod("late", mib=8000, queue="small"))
    world.settle()
    hold(world, HeldPlace((FIRST,), until(world, 300), uid_of(world, "late")))
    world.settle(10)
    assert world.node_of("late") == ""


def test_a_place_that_is_held_for_a_pod_that_cannot_have_it_is_free_when_its_time_is_over() -> None:
    world = one_card()
    world.add(pod("late", mib=8000, nodeSelector={"zone": "nowhere"}), pod("third", mib=8000))
    hold(world, HeldPlace((FIRST,), until(world, 30), uid_of(world, "late")))
    world.settle(10)
    assert (world.node_of("late"), world.node_of("third")) == ("", "")
    world.settle(40)
    assert world.node_of("third") == "n1"


def test_a_restarted_scheduler_holds_what_the_nodes_say() -> None:
    world = one_card(pod("a", mib=8000, owner="a"))
    world.settle()
    hold(world, HeldPlace((FIRST,), until(world, 300), uid_of(world, "a"), "job-a"))
    world.settle(1)
    world.engine = world.restarted()
    world.cycle()
    world.delete_pod("a")
    world.add(pod("thief", mib=8000))
    world.settle(5)
    assert world.node_of("thief") == ""


@pytest.mark.parametrize("gone", ["deleted", "Failed", "placed"])
def test_a_place_is_free_again_when_the_pod_that_it_is_held_for_waits_no_more(gone: str) -> None:
    world = one_card(pod("a", mib=8000))
    world.settle()
    world.add(node("n2", cards=1, mib=9000))
    world.on_card("GPU-n2-0", pod("b", mib=8000))
    world.add(pod("late", mib=8500))
    world.settle(5)
    hold(world, HeldPlace((FIRST,), until(world, 300), uid_of(world, "late")))
    world.delete_pod("a")
    world.settle(5)
    assert held_on_books(world)
    match gone:
        case "deleted":
            world.delete_pod("late")
        case "Failed":
            world.set_phase("late", "Failed")
        case "placed":
            world.delete_pod("b")
    world.settle(5)
    world.add(pod("third", mib=8000))
    world.settle(5)
    assert gone != "placed" or world.node_of("late") == "n2"
    assert world.node_of("third") == "n1"
    assert not held_on_books(world)


def test_however_much_nodes_say_a_cycle_puts_no_more_than_so_many_places_in_the_ledger_and_the_next_ones_the_rest() -> None:
    world = MovingWorld(CONF)
    world.add(*(node(f"n{at}", cards=8) for at in range(64)), pod("late", mib=9000))
    world.settle()
    for at in range(64):
        say(world, render_held_places(tuple(HeldPlace(tuple(f"GPU-n{at}-{card}" for card in range(8)), until(world, 300),
                                                      uid_of(world, "late")) for _ in range(MOST))), f"n{at}")  # fmt: skip
    found = [0]
    while found[-1] < 64 * MOST:
        assert world.engine.has_work(world.now)
        world.cycle()
        found.append(len(held_on_books(world)))
        assert 0 < found[-1] - found[-2] <= AT_ONCE / 9 + MOST


def test_who_waits_behind_a_hold_keeps_no_scheduler_busy() -> None:
    world = one_card(pod("a", mib=8000))
    world.settle()
    world.add(pod("late", mib=8000), *(pod(f"w{i}", mib=8000) for i in range(5)))
    hold(world, HeldPlace((FIRST,), until(world, 300), uid_of(world, "late")))
    world.settle(5)
    cycles, end = 0, world.now + 60
    while world.now < end:
        if world.engine.has_work(world.now):
            world.cycle()
            cycles += 1
        world.now += 0.01
    assert cycles < 400


def test_what_is_rendered_is_read_back() -> None:
    until = "2026-01-01T00:00:00Z"
    places = (HeldPlace((FIRST, SECOND), until, "pod", "controller"), HeldPlace((FIRST,), until))
    assert parse_held_places(render_held_places(places)) == places
    assert parse_held_places("") == ()
    assert [parse_held_for(render_held_for("pod a/b", run)) for run in ("", "7c")] == [("pod a/b", ""), ("pod a/b", "7c")]


def test_places_are_written_for_a_time_that_is_believed_although_clocks_differ_by_minutes() -> None:
    assert LONGEST - HELD >= 300
    assert HELD - PATIENCE >= 300
