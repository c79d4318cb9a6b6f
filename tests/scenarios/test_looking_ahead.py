"""Policies that count what a pod strands: they know the pods that the cluster sees, and leave room for those."""

from __future__ import annotations

import pytest
from kit.engine_world import ALL_PLUGINS, DEVICES_ONLY, World
from kit.objects import node, pod

from pumice.devices import fitting
from pumice.journal.freezing import freeze, thaw
from pumice.scheduler.plugins import stranding
from pumice.scheduler.state import seen_shapes
from pumice.wire import names
from pumice.wire.scheduler_conf import parse_scheduler_conf

AHEAD = DEVICES_ONLY % "lookahead"
ON = "kubernetes.io/hostname"


@pytest.mark.parametrize("policy", ["fgd", "lookahead"])
@pytest.mark.parametrize(("common", "where"), [(6500, "half"), (4500, "more")])
def test_a_pod_goes_where_it_leaves_room_for_those_that_are_seen_most(policy: str, common: int, where: str) -> None:
    """They would run on any of the nodes. Where they need 6,500, those of 2,000 keep off the one card that has as much; where
    they need 4,500, both cards have it, and 7,000 without 2,000 still do."""
    world = World(DEVICES_ONLY % policy)
    world.add(*(node(name, cards=1, mib=10_000, cpu="16") for name in ("half", "more")))
    for number in range(20):  # they came and went
        world.add(pod(f"seen-{number}", mib=common, cpu="1"))
        world.settle()
        world.delete_pod(f"seen-{number}")
    for name, mib, on in (("a", 5000, "half"), ("b", 3000, "more")):
        world.add(pod(name, mib=mib, cpu="1", nodeSelector={ON: on}))
        world.settle()
    world.add(pod("new", mib=2000, cpu="1"))
    world.settle()
    assert world.node_of("new") == where


def test_of_nodes_that_strand_alike_the_first_by_name_is_filled() -> None:
    """Four pods of 2,000 fill a card of 8,000."""
    world = World(AHEAD)
    world.add(*(node(name, cards=2, mib=8000) for name in ("n1", "n2")))
    world.add(*(pod(f"p{i}", mib=2000) for i in range(10)))
    world.settle()
    assert sorted(world.placements().values()) == ["n1/0"] * 4 + ["n1/1"] * 4 + ["n2/0"] * 2


def test_a_pod_without_cards_takes_no_cpu_that_the_cards_of_a_node_will_need() -> None:
    """The node with little cpu is fuller, and a policy that sees no cards would go on with it."""
    world = World(ALL_PLUGINS.replace("binpack\n  - name: predicates", "lookahead\n  - name: predicates"))
    assert "lookahead" in world.conf
    world.add(node("cards", cards=2, mib=8000, cpu="8"), node("plain", cpu="8"))
    world.add(pod("seen", mib=8000, cpu="4"))
    world.settle()
    world.add(pod("other", cpu="4", memory="1Gi"))
    world.settle()
    assert (world.node_of("seen"), world.node_of("other")) == ("cards", "plain")
    world.add(pod("last", cpu="4", memory="60Gi"), pod("more", cpu="4", memory="1Gi"))
    world.settle()
    assert {world.node_of("last"), world.node_of("more")} == {"cards", "plain"}, "what is left is taken all the same"


def test_a_pods_annotation_chooses_it_for_that_pod() -> None:
    world = World(DEVICES_ONLY % "spread")
    world.add(*(node(name, cards=1, mib=10_000) for name in ("n1", "n2")))
    notes = {names.NODE_POLICY: "lookahead", names.CARD_POLICY: "lookahead"}
    world.add(*(pod(name, mib=2000, annotations=notes) for name in "ab"), pod("c", mib=2000))
    world.settle()
    assert [world.node_of(name) for name in "abc"] == ["n1", "n1", "n2"]


def test_the_wishes_of_a_pod_decide_between_nodes_that_strand_alike() -> None:
    world = World(ALL_PLUGINS.replace("binpack\n  - name: predicates", "lookahead\n  - name: predicates"))
    world.add(*(node(name, cards=1, mib=8000, labels={"disk": disk}) for name, disk in (("n1", "slow"), ("n2", "fast"))))
    wish = {"weight": 10, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    world.add(pod("wishes", mib=2000, affinity=affinity))
    world.settle()
    assert world.node_of("wishes") == "n2"


def test_after_a_restart_the_pods_that_are_there_are_known() -> None:
    world = World(AHEAD)
    world.add(*(node(f"n{i}", cards=2, mib=8000) for i in range(3)))
    world.add(*(pod(f"p{i}", mib=(3000, 5000)[i % 2]) for i in range(8)))
    world.settle()
    before = world.engine.state.classes.seen.current()
    after = world.restarted().state.classes.seen.current()
    assert set(after.shapes) == set(before.shapes)
    assert after.weight == pytest.approx(before.weight, abs=0.05)


def test_a_pod_of_more_cards_than_any_node_has_waits_and_costs_nothing() -> None:
    world = World(AHEAD)
    world.add(node("n1", cards=2, mib=8000))
    world.add(pod("huge", cards=2_000_000_000, mib=8000), pod("small", mib=8000))
    world.settle()
    assert (world.node_of("huge"), world.node_of("small")) == ("", "n1")


def test_weights_that_are_fitted_go_on_in_an_engine_that_a_journal_has_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_shapes, "ENOUGH", 8)
    world = World(DEVICES_ONLY % "fitted")
    world.add(*(node(f"n{i}", cards=2, mib=8000, cpu="8") for i in range(4)))
    world.add(*(pod(f"p{i}", mib=(3000, 5000, 2000)[i % 3], cpu=str(1 + i % 2)) for i in range(10)))
    world.settle()
    seen = world.engine.state.classes.seen
    assert seen.fits, "weights were fitted"
    kept = thaw(freeze(world.engine))
    monkeypatch.setattr(stranding, "Fitting", lambda *_: pytest.fail("fitted anew"))
    world.add(pod("before", mib=3000))
    world.settle()
    place = world.node_of("before")
    world.delete_pod("before")
    world.engine = kept
    world.add(pod("after", mib=3000))
    world.settle()
    assert world.node_of("after") == place != ""
    assert [fit.weights for fit in kept.state.classes.seen.fits.values()] == [fit.weights for fit in seen.fits.values()]


def test_a_fit_goes_on_over_cycles_and_in_an_engine_that_a_journal_has_kept_to_the_same_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cycles of no length go on by one step each, and place pods all the same."""
    monkeypatch.setattr(seen_shapes, "ENOUGH", 8)
    monkeypatch.setattr(fitting, "PODS", 40)
    found = []
    for budget, kept in ((float("inf"), False), (0.0, False), (0.0, True)):
        world = World(DEVICES_ONLY % "fitted")
        world.add(*(node(f"n{i}", cards=2, mib=8000, cpu="8") for i in range(4)))
        world.add(*(pod(f"p{i}", mib=(3000, 5000, 2000)[i % 3], cpu=str(1 + i % 2)) for i in range(10)))
        world.cycle()
        seen, cycles = world.engine.state.classes.seen, 0
        assert seen.fitting, "begun"
        while seen.fitting:
            assert world.engine.has_work(world.now)
            world.engine.cycle(world.now, budget=budget)
            cycles += 1
            if kept and cycles == 10:
                world.engine = thaw(freeze(world.engine))
                seen = world.engine.state.classes.seen
        found.append([fit.weights for fit in seen.fits.values()])
        assert (cycles == 1) == (budget > 0)
    assert found[0] == found[1] == found[2] != []


def test_a_fit_under_way_ends_with_the_configuration_that_wanted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would go on with it, and the scheduler would never rest."""
    monkeypatch.setattr(seen_shapes, "ENOUGH", 8)
    world = World(DEVICES_ONLY % "fitted")
    world.add(node("n1", cards=2, mib=8000), *(pod(f"p{i}", mib=1000) for i in range(10)))
    world.cycle()
    assert world.engine.state.classes.seen.fitting
    world.engine.configure(parse_scheduler_conf(ALL_PLUGINS))
    world.settle()
    assert not world.engine.has_work(world.now)
