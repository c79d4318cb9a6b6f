"""Which cards of a node a pod gets: close ones, none that a rule or a cordon closes, by the policies of cluster and pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kit.device_world import fingerprint
from kit.engine_world import ALL_PLUGINS, DEVICES_ONLY, World
from kit.objects import group, node, pod

BINPACK = "deviceshare.SchedulePolicy: binpack"
SPREAD = {"volcano.sh/vgpu-podgroup-policy": "spread"}


def linked(name: str, *, cards: int, links: Mapping[tuple[int, int], int] | None = None, numa: str = "") -> dict[str, Any]:
    """A node that reports NVLink widths between pairs of cards, and the NUMA node of each."""
    made = node(name, cards=cards, mib=8000)
    parts = []
    for card in range(cards):
        widths = "".join(
            f",GPU-{name}-{a + b - card}={width}" for (a, b), width in (links or {}).items() if card in (a, b)
        )
        parts.append(f"GPU-{name}-{card},{numa[card] if numa else ''}{widths}:")
    made["metadata"]["annotations"]["pumice.io/card-topology"] = "".join(parts)
    return made


def where(policy: str, node_: dict[str, Any], *pods: dict[str, Any]) -> str:
    """The cards of the last pod; the others come before it, one after the other."""
    world = World(DEVICES_ONLY % policy)
    world.add(node_)
    for one in pods:
        world.add(one)
        world.settle(0.5)
    return world.card_of(pods[-1]["metadata"]["name"])


# -- close cards ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["binpack", "spread", ""])
def test_a_pod_of_two_cards_gets_the_pair_that_nvlink_joins(policy: str) -> None:
    machine = linked("n", cards=4, links={(0, 2): 4, (1, 3): 2, (0, 1): 1})
    assert where(policy, machine, pod("pair", cards=2, mib=1000)) in ("n/0+2", "n/2+0")


def test_without_nvlink_the_cards_of_one_numa_node_are_preferred() -> None:
    assert where("binpack", linked("n", cards=4, numa="0110"), pod("pair", cards=2, mib=1000)) == "n/0+3"
    assert where("binpack", linked("n", cards=4, numa="0101"), pod("first", mib=8000),
                 pod("pair", cards=2, mib=1000)) == "n/1+3"  # fmt: skip


def test_nvlink_counts_more_than_numa() -> None:
    machine = linked("n", cards=4, links={(1, 2): 1}, numa="0011")
    assert where("binpack", machine, pod("pair", cards=2, mib=1000)) == "n/1+2"


def test_three_of_eight_cards_are_three_that_see_each_other() -> None:
    ring = {(5, 6): 2, (6, 7): 2, (5, 7): 2, (0, 1): 4}
    assert where("spread", linked("n", cards=8, links=ring), pod("trio", cards=3, mib=1000)) == "n/5+6+7"


def test_the_policy_goes_before_closeness_and_closeness_chooses_among_equals() -> None:
    """Binpack wants the used card 3; of the empty ones its neighbour by NVLink goes with it."""
    machine = linked("n", cards=4, links={(0, 1): 4, (2, 3): 1})
    small = pod("small", mib=500, annotations={"volcano.sh/vgpu-use-gpuuuid": "GPU-n-3"})
    assert where("binpack", machine, small, pod("pair", cards=2, mib=1000)) == "n/3+2"
    assert where("spread", machine, small, pod("pair", cards=2, mib=1000)) == "n/0+1"


def test_a_node_that_reports_nothing_keeps_upstreams_order() -> None:
    plain = node("n", cards=4, mib=8000)
    assert where("binpack", plain, pod("pair", cards=2, mib=1000)) == "n/0+1"
    assert where("", plain, pod("pair", cards=2, mib=1000)) == "n/3+2"


def test_a_report_of_nonsense_is_a_report_of_nothing() -> None:
    machine = node("n", cards=4, mib=8000)
    machine["metadata"]["annotations"]["pumice.io/card-topology"] = "GPU-n-0,x,GPU-n-9=4:,,=:GPU-n-1,-1,GPU-n-1=:"
    assert where("binpack", machine, pod("pair", cards=2, mib=1000)) == "n/0+1"


# -- closed cards -----------------------------------------------------------------------------------------------


def test_pods_of_one_podgroup_that_spread_never_share_a_card_and_the_one_too_many_says_why() -> None:
    world = World()
    world.add(node("n", cards=2, mib=8000), group("job", minimum=1))
    world.add(*(pod(f"p{i}", mib=1000, group="job", annotations=SPREAD) for i in range(3)))
    world.add(pod("single", mib=1000))
    world.settle()
    cards = [world.card_of(f"p{i}") for i in range(3)]
    assert sorted(cards) == ["", "n/0", "n/1"]
    waiting = f"p{cards.index('')}"
    assert "hami-vgpuDeviceSharing: podgroup-spread 2 of 2 cards" in world.condition(waiting)["message"]
    assert world.card_of("single")  # pods of others may join
    world.delete_pod(f"p{cards.index('n/1')}")
    world.settle()
    assert world.card_of(waiting) == "n/1"


def test_a_pod_without_the_annotation_may_join_its_groups_cards_and_a_later_one_with_it_may_not() -> None:
    world = World()
    world.add(node("n", cards=1, mib=8000), group("job", minimum=1), pod("free", mib=1000, group="job"))
    world.settle()
    world.add(pod("shy", mib=1000, group="job", annotations=SPREAD), pod("other", mib=1000, group="job"))
    world.settle()
    assert (world.card_of("shy"), world.card_of("other")) == ("", "n/0")


RULES = """\
      deviceshare.GPUExclusiveRules:
      - {app: training, team: ml}
      - {workload: inference}
"""
TRAINING, INFERENCE = {"app": "training", "team": "ml"}, {"workload": "inference"}


def ruled() -> World:
    anchor = "      deviceshare.VGPUEnable: true\n"
    assert anchor in ALL_PLUGINS
    world = World(ALL_PLUGINS.replace(anchor, anchor + RULES))
    world.add(node("n", cards=2, mib=8000))
    return world


def test_pods_of_one_exclusivity_rule_get_cards_of_their_own_and_others_join_them() -> None:
    world = ruled()
    world.add(*(pod(f"t{i}", mib=1000, labels=TRAINING) for i in range(3)))
    world.settle()
    assert sorted(world.card_of(f"t{i}") for i in range(3)) == ["", "n/0", "n/1"]
    world.add(pod("i0", mib=1000, labels=INFERENCE), pod("plain", mib=1000), pod("half", mib=1000, labels={"app": "training"}))
    world.settle()
    assert all(world.card_of(name) for name in ("i0", "plain", "half"))


def test_a_pod_that_matches_two_rules_avoids_the_pods_of_both() -> None:
    world = ruled()
    world.add(pod("t", mib=1000, labels=TRAINING))
    world.settle()
    world.add(pod("both", mib=1000, labels=TRAINING | INFERENCE))
    world.settle()
    assert {world.card_of("t"), world.card_of("both")} == {"n/0", "n/1"}
    world.add(pod("i", mib=1000, labels=INFERENCE))
    world.settle()
    assert world.card_of("i") == world.card_of("t")


def test_exclusivity_holds_while_the_watch_is_behind_and_after_a_restart() -> None:
    world = ruled()
    world.deliver = False
    world.add(*(pod(f"t{i}", mib=1000, labels=TRAINING) for i in range(2)))
    world.settle()
    assert {world.card_of("t0"), world.card_of("t1")} == {"n/0", "n/1"}
    again = world.restarted()
    assert fingerprint(again.state.ledger)["cards"] == fingerprint(world.engine.state.ledger)["cards"]
    world.engine = again
    world.add(pod("t2", mib=1000, labels=TRAINING))
    world.settle()
    assert world.card_of("t2") == ""


def test_a_cordoned_card_keeps_its_pods_takes_no_others_and_opens_again() -> None:
    world = World()
    machine = node("n", cards=2, mib=8000)
    world.add(machine, pod("old", mib=1000))
    world.settle()
    assert world.card_of("old") == "n/0"
    machine["metadata"]["annotations"]["pumice.io/cordoned-cards"] = "GPU-n-0"
    world.add(machine, pod("next", mib=1000))
    world.settle()
    assert world.card_of("next") == "n/1"
    machine["metadata"]["annotations"]["pumice.io/cordoned-cards"] = "*"
    world.add(machine, pod("waits", mib=1000))
    world.settle()
    assert world.card_of("waits") == ""
    assert "hami-vgpuDeviceSharing: cordoned 2 of 2 cards" in world.condition("waits")["message"]
    assert world.card_of("old") == "n/0"
    machine["metadata"]["annotations"]["pumice.io/cordoned-cards"] = "1"
    world.add(machine)
    world.settle()
    assert world.card_of("waits") == "n/0"


# -- policies, between nodes and on a node, by argument and by annotation --------------------------------------------


@pytest.mark.parametrize("cluster", ["binpack", "spread"])
@pytest.mark.parametrize("of_node", ["", "binpack", "spread"])
@pytest.mark.parametrize("of_card", ["", "binpack", "spread"])
def test_the_pods_own_policies_win_over_the_clusters_each_at_its_level(cluster: str, of_node: str, of_card: str) -> None:
    """n1 has a used card and an empty one, n2 two empty ones."""
    world = World(DEVICES_ONLY % cluster)
    world.add(node("n1", cards=2, mib=8000), node("n2", cards=2, mib=8000))
    world.add(pod("there", mib=2000, annotations={"volcano.sh/vgpu-use-gpuuuid": "GPU-n1-1"}))
    world.settle()
    notes = {"pumice.io/node-policy": of_node, "pumice.io/card-policy": of_card}
    world.add(pod("asked", mib=2000, annotations={key: value for key, value in notes.items() if value}))
    world.settle()
    between, on_it = of_node or cluster, of_card or cluster
    placed = world.card_of("asked").split("/")[0]
    if between == "binpack" and on_it == "binpack":
        assert world.card_of("asked") == "n1/1"
    elif between == "spread" and on_it == "spread":
        assert world.card_of("asked") == "n2/0"
    elif between == "binpack":  # the card that it would get is empty on either node; the fuller node breaks the tie
        assert world.card_of("asked") == "n1/0"
    else:
        assert placed == "n2"


def test_a_policy_that_is_none_leaves_the_clusters() -> None:
    world = World(DEVICES_ONLY % "binpack")
    world.add(node("n1", cards=2, mib=8000))
    notes = {"pumice.io/node-policy": "Spread", "pumice.io/card-policy": "scatter"}
    world.add(*(pod(name, mib=1000, annotations=notes) for name in ("a", "b")))
    world.settle()
    assert {world.card_of("a"), world.card_of("b")} == {"n1/0"}


@pytest.mark.parametrize("sharing", ["", f"{BINPACK}, deviceshare.ScheduleWeight: 10"])
def test_the_guides_configurations_fill_a_node_before_the_next(sharing: str) -> None:
    """Five shares a card, forty a node."""
    conf = ALL_PLUGINS.replace("      deviceshare.SchedulePolicy: lookahead\n", "")
    switch = "deviceshare.VGPUEnable: true"
    conf = conf.replace(f"arguments:\n      {switch}", f"arguments: {{{switch}, {sharing}}}")
    assert sharing in conf
    world = World(conf)
    world.add(*(node(f"n{i:02}", cards=8, mib=16000, cpu="96", memory="768Gi") for i in range(20)))
    world.add(group("all", minimum=1))
    world.add(*(pod(f"p{i}", mib=3000, cores=20, cpu="1", memory="4Gi", group="all") for i in range(100)))
    world.settle()
    places = set(world.placements().values())
    assert (len({place.partition("/")[0] for place in places}), len(places)) == (3, 20)


@pytest.mark.parametrize(("weight", "where"), [("", "b-full"), ("      deviceshare.ScheduleWeight: 10\n", "a-idle")])
def test_a_pod_without_cards_leaves_nodes_with_idle_ones_to_others_while_the_policy_comes_first(weight: str, where: str) -> None:
    """All else is equal, and the first name wins. With a weight pods without cards are placed as by Volcano."""
    world = World(ALL_PLUGINS.replace("      deviceshare.SchedulePolicy: lookahead\n", f"      {BINPACK}\n{weight}"))
    world.add(*(node(name, cards=2, mib=8000, cpu="8") for name in ("a-idle", "b-full")))
    world.add(pod("cards", cards=2, mib=8000, nodeSelector={"kubernetes.io/hostname": "b-full"}))
    world.settle()
    world.add(pod("first", cpu="6", memory="48Gi"))
    world.settle()
    assert world.node_of("first") == where
    world.add(pod("second", cpu="6", memory="48Gi"))
    world.settle()
    assert world.node_of("second") == ({"a-idle", "b-full"} - {where}).pop(), "it fits nowhere else"
