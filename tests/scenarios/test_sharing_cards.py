"""Pods share cards, and policies decide which ones."""

from kit.engine_world import DEVICES_ONLY, World, scenario
from kit.objects import group, node, pod


def test_two_half_card_pods_share_one_card_under_binpack() -> None:
    scenario(
        "two half-card pods share one card under binpack",
        nodes=[node("n1", cards=2, mib=8000)],
        arriving=[pod("a", mib=4000), pod("b", mib=4000)],
        expect={"a": "n1/0", "b": "n1/0"},
    )


def test_binpack_fills_one_node_before_it_opens_the_next() -> None:
    """Decision 2: the seeds set SchedulePolicy and no ScheduleWeight, and it takes effect between nodes."""
    scenario(
        "binpack fills one node before the next",
        conf=DEVICES_ONLY % "binpack",
        nodes=[node("n1", cards=1), node("n2", cards=1), node("n3", cards=1)],
        arriving=[pod(name, mib=3000) for name in "abcd"],
        expect={"a": "n1", "b": "n1", "c": "n2", "d": "n2"},
    )


def test_spread_alternates_between_nodes() -> None:
    scenario(
        "spread alternates",
        conf=DEVICES_ONLY % "spread",
        nodes=[node("n1", cards=2), node("n2", cards=2)],
        arriving=[pod(name, mib=1000) for name in "abcd"],
        expect={"a": "n1", "b": "n2", "c": "n1", "d": "n2"},
    )


def test_a_weight_of_zero_means_that_cards_have_no_say_between_nodes() -> None:
    conf = (DEVICES_ONLY % "binpack").rstrip() + '\n      deviceshare.ScheduleWeight: 0\n  - name: nodeorder\n'
    scenario(
        "an explicit 0 leaves the choice to nodeorder",
        conf=conf,
        nodes=[node("n1", cards=1, cpu="2"), node("n2", cards=1, cpu="64")],
        having=[],
        arriving=[pod("a", mib=1000, cpu="1"), pod("b", mib=1000, cpu="1")],
        expect={"a": "n2", "b": "n2"},
    )


def test_a_pod_for_two_cards_gets_two_cards() -> None:
    scenario(
        "two cards",
        nodes=[node("n1", cards=1), node("n2", cards=2)],
        arriving=[pod("a", cards=2, mib=3000)],
        expect={"a": "n2/0+1"},
    )


def test_terminating_pods_keep_their_cards_until_they_are_gone() -> None:
    """D-28: a card is not free as soon as its pod starts terminating."""
    world = World()
    world.add(node("n1", cards=1), pod("old", mib=8000))
    world.settle()
    world.set_phase("old", "Running")
    world.terminate("old")
    world.add(pod("new", mib=8000))
    world.settle()
    assert world.node_of("new") == ""
    world.delete_pod("old")
    world.settle()
    assert world.card_of("new") == "n1/0"


def test_cards_are_not_handed_out_again_while_the_watch_is_behind() -> None:
    """D-30: between the Binding and the watch the cards are assumed."""
    world = World()
    world.deliver = False
    world.add(node("n1", cards=1), pod("a", mib=5000))
    world.cycle()
    world.add(pod("b", mib=5000))
    world.settle()
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")


def test_a_refused_gang_gives_its_cards_back_within_the_cycle() -> None:
    """D-31: a discarded gang leaves nothing behind that hinders the next job of the same cycle."""
    world = World()
    world.add(node("n1", cards=2), group("big", minimum=3))
    world.add(*(pod(f"big-{i}", mib=8000, group="big", priority=9) for i in range(3)), pod("small", mib=8000))
    world.cycle()
    assert world.node_of("small") == "n1"
    assert all(not world.node_of(f"big-{i}") for i in range(3))


def test_a_pod_whose_node_does_not_register_cards_is_refused_there() -> None:
    """D-10: allocatable alone makes no cards."""
    bare = node("n1", register="", extra={"volcano.sh/vgpu-number": "10"})
    world = scenario("no registration", nodes=[bare], arriving=[pod("a", mib=100)], expect={"a": ""})
    assert "hami-vgpuDeviceSharing" in world.condition("a")["message"]


def test_a_node_that_shrinks_under_its_pods_takes_no_more() -> None:
    world = World()
    world.add(node("n1", cards=2, mib=8000))
    world.add(*(pod(f"p{i}", mib=4000) for i in range(4)))
    world.settle()
    shrunk = node("n1", cards=1, mib=8000)
    world.check = lambda: None  # type: ignore[method-assign]  # the pods that run there are over by no fault of ours
    world.add(shrunk, pod("late", mib=100))
    world.settle()
    assert world.node_of("late") == ""
    world.delete_pod("p0")
    world.delete_pod("p1")
    world.delete_pod("p2")
    world.delete_pod("p3")
    world.settle()
    assert world.card_of("late") == "n1/0"


def test_stale_decisions_on_a_pending_pod_mean_nothing() -> None:
    """D-46: a copied manifest carries somebody else's cards."""
    scenario(
        "stale annotation",
        nodes=[node("n1", cards=1)],
        arriving=[pod("a", mib=8000, annotations={"volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,8000,0:"})],
        expect={"a": "n1/0"},
    )
