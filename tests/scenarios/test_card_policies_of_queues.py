"""A queue's annotations choose the card policy of those of its pods that name none."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.engine_world import DEVICES_ONLY, World
from kit.objects import group, node, pod, queue
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.cli.main import main
from pumice.devices.lint import lint_files
from pumice.scheduler.explaining.queues import queue_view
from pumice.wire import names
from pumice.wire.volcano import QUEUES

SPREAD = {names.NODE_POLICY: "spread", names.CARD_POLICY: "spread"}
BINPACK = dict.fromkeys(SPREAD, "binpack")


def two_nodes(**of_queues: dict[str, str]) -> World:
    """A cluster by binpack, with a queue for each name."""
    world = World(DEVICES_ONLY % "binpack")
    world.add(*(queue(name, annotations=notes) for name, notes in of_queues.items()))
    world.add(*(node(name, cards=2, mib=8000) for name in ("n1", "n2")))
    return world


def in_queue(name: str, of: str, **notes: str) -> dict[str, object]:
    return pod(name, mib=1000, annotations={names.QUEUE_NAME: of, **notes})


def cards(world: World, *pods: str) -> list[str]:
    world.settle()
    return [world.card_of(name) for name in pods]


def test_pods_of_a_queue_go_by_its_policy_and_those_of_others_by_the_clusters() -> None:
    world = two_nodes(wide=SPREAD, plain={})
    world.add(*(in_queue(name, "wide") for name in ("a", "b", "c", "d")))
    assert sorted(cards(world, "a", "b", "c", "d")) == ["n1/0", "n1/1", "n2/0", "n2/1"]
    world.add(*(in_queue(name, "plain") for name in ("e", "f")), pod("g", mib=1000))
    assert len(set(cards(world, "e", "f", "g"))) == 1


def test_a_pods_own_policy_wins_over_its_queues_and_one_that_is_none_does_not() -> None:
    world = two_nodes(wide=SPREAD)
    world.add(in_queue("a", "wide", **BINPACK), in_queue("b", "wide", **BINPACK))
    first, second = cards(world, "a", "b")
    assert first == second
    world.add(in_queue("c", "wide", **dict.fromkeys(SPREAD, "scatter")))
    assert cards(world, "c")[0].split("/")[0] != first.split("/")[0]


def test_between_nodes_and_on_a_node_a_queue_may_say_each_alone() -> None:
    world = two_nodes(wide={names.CARD_POLICY: "spread"})
    world.add(*(in_queue(name, "wide") for name in ("a", "b")))
    assert {card.split("/")[0] for card in cards(world, "a", "b")} == {"n1"}
    assert world.card_of("a") != world.card_of("b")


def test_a_gang_goes_by_the_policy_of_the_queue_that_its_podgroup_names_whichever_comes_first() -> None:
    for late in (False, True):
        world = two_nodes(wide=SPREAD)
        members = [pod(f"m{i}", mib=1000, group="gang") for i in range(4)]
        gang = group("gang", minimum=4, queue="wide")
        world.add(*((*members, gang) if late else (gang, *members)))
        assert sorted(cards(world, *(f"m{i}" for i in range(4)))) == ["n1/0", "n1/1", "n2/0", "n2/1"], late


def test_pods_that_wait_follow_their_queue_when_it_names_another_policy_or_none() -> None:
    for before, after, cards_used in (({}, SPREAD, 4), (SPREAD, BINPACK, 1), (SPREAD, {}, 1)):
        world = World(DEVICES_ONLY % "binpack")
        world.add(queue("q", annotations=before), *(in_queue(name, "q") for name in ("a", "b", "c", "d")))
        world.settle()
        world.add(queue("q", annotations=after), *(node(name, cards=2, mib=8000) for name in ("n1", "n2")))
        assert len(set(cards(world, "a", "b", "c", "d"))) == cards_used, (before, after)


def test_once_the_queue_is_gone_its_pods_go_by_the_clusters_policy() -> None:
    world = World(DEVICES_ONLY % "binpack")
    world.add(queue("q", annotations=SPREAD), group("g", minimum=2, queue="q"), *(pod(n, mib=1000, group="g") for n in "ab"))
    world.settle()
    world.remove("Queue", "q")
    world.settle()
    world.add(queue("q"), *(node(name, cards=2, mib=8000) for name in ("n1", "n2")))
    assert len(set(cards(world, "a", "b"))) == 1


def test_after_a_restart_the_same_policy_holds() -> None:
    world = two_nodes(wide=SPREAD)
    world.add(in_queue("a", "wide"))
    world.settle()
    world.engine = world.restarted()
    world.add(in_queue("b", "wide"))
    assert {card.split("/")[0] for card in cards(world, "a", "b")} == {"n1", "n2"}


def test_the_queues_policy_is_told_and_one_that_is_none_with_the_nearest() -> None:
    world = two_nodes(wide={names.NODE_POLICY: "spread"}, wrong={names.CARD_POLICY: "bin-pack"})
    world.add(in_queue("a", "wrong"), in_queue("b", "wrong"))
    assert len(set(cards(world, "a", "b"))) == 1, "the cluster's policy is left"
    told = {name: queue_view(world.engine, name, world.now).remarks for name in ("wide", "wrong", "default")}
    assert told["wide"] == ("card policy of pods that name none: between nodes spread",)
    assert told["default"] == ()
    (text,) = told["wrong"]
    assert text.startswith(f"{names.CARD_POLICY}: 'bin-pack' is no card policy; did you mean 'binpack'? (one of binpack, spread")
    world.add(queue("wrong", annotations={names.CARD_POLICY: "binpack"}))
    world.settle()
    assert "Queue wrong" not in world.engine.state.problems


@pytest.mark.parametrize(("note", "text"), [
    (f"{names.CARD_POLICY}: Spread", f"{names.CARD_POLICY}: 'Spread' is no card policy; did you mean 'spread'?"),
    ("pumice.io/card-polcy: spread", f"nobody reads the annotation pumice.io/card-polcy; did you mean '{names.CARD_POLICY}'?"),
    (f"{names.NODE_POLICY}: spread", ""),
])  # fmt: skip
def test_lint_reads_the_queues_annotations(note: str, text: str) -> None:
    obj = f"apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata:\n  name: q\n  annotations:\n    {note}\n"
    found = [str(finding) for finding in lint_files({"q.yaml": obj})]
    assert [one.startswith(f"q.yaml:6: warning: {text}") for one in found] == [True] * bool(text), found


def test_a_journal_of_it_is_played_again_bit_for_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2), node("n2", cards=2), settings=Settings(journal=tmp_path)) as running:
            await running.cluster.create(QUEUES, queue("wide", annotations=SPREAD))
            await running.clock.sleep(1)
            for name in "ab":
                await create(running.cluster, in_queue(name, "wide"))
            await running.bind_all("a", "b")
            pods = await running.cluster.pods()
            assert {pods[name]["spec"]["nodeName"] for name in "ab"} == {"n1", "n2"}

    run_virtually(story())
    with pytest.raises(SystemExit) as end:
        main(["replay", str(tmp_path)])
    assert end.value.code in (0, None), capsys.readouterr()
