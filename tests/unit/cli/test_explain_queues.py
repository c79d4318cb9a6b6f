"""``pumice explain queue`` and ``pumice explain podgroup`` say what is deserved, used, borrowed and waited for, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.engine_world import World
from kit.objects import group, hyper_node, node, pod, queue
from kit.room_worlds import GPU, capacity, cluster, departments, gpus
from kit.scheduler_confs import conf
from rich.console import Console

from pumice.cli import main as cli
from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of, save
from pumice.cli.explain_workloads import queues_table
from pumice.scheduler.explaining.queues import queue_views
from pumice.wire.names import USE_GPU_TYPE


@pytest.fixture
def world() -> World:
    """Team a has six of eight cards, two of them borrowed by its department; b waits for a gang of four, c for one card."""
    made = cluster(*departments(), *(gpus(f"a{i}", "a", 3) for i in range(2)), conf=capacity("gang"))
    made.add(group("g", minimum=4, queue="b"), *(gpus(f"g{i}", "b", group="g") for i in range(4)), gpus("c0", "c", 3))
    made.settle()
    return made


@pytest.fixture
def case(world: World, tmp_path: Path) -> Path:
    path = tmp_path / "case.json"
    objects = {"nodes": world.nodes, "queues": world.queues, "podGroups": world.groups, "pods": world.pods}
    lists = {kind: list(found.values()) for kind, found in objects.items()}
    path.write_text(save(ClusterSnapshot(now=world.now, scheduler_conf=world.conf, objects=lists)))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out + captured.err


def test_a_queue_is_shown_with_all_below_it_and_what_it_borrows(world: World) -> None:
    views = {view.name: view for view in queue_views(world.engine, world.now)}
    assert [name for name in views if name != "default"] == ["root", "x", "a", "b", "y", "c"]
    x, a = views["x"], views["a"]
    assert (x.used, x.deserved, x.borrowed, x.waiting[GPU]) == ({GPU: 6000}, {GPU: 4000}, {GPU: 2000}, 4000)
    assert (a.used, a.borrowed, a.running, a.pending) == ({GPU: 6000}, {GPU: 4000}, 2, 0)
    assert (views["b"].used, views["b"].borrowed, views["b"].pending) == ({}, {}, 4)
    assert (x.depth, a.depth) == (1, 2)


def test_explain_queue_says_the_numbers_and_who_waits_why(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "explain", "queue", "x", "--from", case)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "x: Open, weight 1, 2 pods have a place, 4 wait"
    assert lines[1].split() == ["RESOURCE", "GUARANTEE", "DESERVED", "CAPABILITY", "USED", "BORROWED", "WAITING"]
    assert lines[2].split() == [GPU, "4", "6", "2", "4"]
    assert "default/g (4 pods): 0/1 nodes are unavailable" in out


def test_a_queue_that_has_less_than_it_deserves_is_told_who_borrows_what_it_waits_for(
    world: World, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {view.name: view.held_up_by for view in queue_views(world.engine, world.now)}
    assert held["b"] == ((GPU, "a", 4000),), "not its department, which borrows the same"
    assert [held[name] for name in ("a", "x")] == [(), ()], "they have what they deserve"
    assert held["y"] == held["c"] == ((GPU, "a", 4000),)
    _, out = run(capsys, "explain", "queue", "b", "--from", case)
    assert f"It has less than it deserves; who borrows what it waits for:\n  a: 4 {GPU}\n" in out
    _, out = run(capsys, "explain", "queue", "b", "--from", case, "-o", "json")
    assert json.loads(out)["held_up_by"] == [{"resource": GPU, "queue": "a", "amount": "4"}]


def test_explain_queue_in_json_has_amounts_as_kubernetes_writes_them(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = run(capsys, "explain", "q/a", "--from", case, "-o", "json")
    found = json.loads(out)
    assert (found["used"], found["borrowed"], found["deserved"], found["parent"]) == ({GPU: "6"}, {GPU: "4"}, {GPU: "2"}, "x")


def test_explain_podgroup_says_what_it_lacks_and_why_each_member_waits(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "explain", "podgroup", "g", "--from", case)
    assert code == 0
    assert "default/g in queue b (Inqueue): waits, 4 of 4 members lack a place" in out
    assert "g2, g3: 0/1 nodes are unavailable" in out
    _, out = run(capsys, "explain", "pg/g", "--from", case, "-o", "json")
    assert json.loads(out)["minimum"] == 4


def test_what_keeps_a_whole_gang_back_is_said_once_of_it_and_once_of_its_members(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = group("g", minimum=2, topology={"mode": "hard", "highestTierAllowed": 1})
    members = [pod(f"g{number}", cpu="6", group="g") for number in range(2)]
    objects = {"nodes": [node("n1", cpu="8"), node("n2", cpu="8")], "hyperNodes": [hyper_node("s1", 1, "n1")],
               "podGroups": [wanted], "pods": members}  # fmt: skip
    path = tmp_path / "case.json"
    path.write_text(save(ClusterSnapshot(scheduler_conf=conf("gang", "predicates"), objects=objects)))
    _, out = run(capsys, "explain", "podgroup", "g", "--from", path)
    why = "no HyperNode of tier 1 or below takes 2 pods"
    said = [line.split(":")[0] for line in out.splitlines() if why in line]
    assert said == ["default/g in queue default (Inqueue)", "  g0, g1"]


def test_a_remark_on_a_queue_is_shown(world: World, case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(case.read_text())
    for item in document["objects"]["queues"]:
        if item["metadata"]["name"] == "x":
            item["spec"]["deserved"] = {GPU: "1"}
    case.write_text(json.dumps(document))
    _, out = run(capsys, "explain", "queue", "x", "--from", case)
    assert f"its children together deserve more than it is given: {GPU} 4, and it 1" in out


@pytest.mark.parametrize(("words", "said"), [
    (("queue", "z"), "no queue z; there are: "),
    (("podgroup", "h"), "no PodGroup default/h"),
    (("node", "n1"), "cannot explain 'node'"),
    (("queue",), "cannot explain 'queue'; write: pumice explain queue NAME"),
])  # fmt: skip
def test_what_is_not_there_is_one_line_and_exit_code_2(
    case: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    code, out = run(capsys, "explain", *words, "--from", case)
    assert code == 2
    assert said in out
    assert len(out.strip().splitlines()) == 1


def test_without_a_plugin_that_knows_shares_nothing_is_deserved_or_borrowed(case: Path) -> None:
    document = json.loads(case.read_text())
    del document["kind"], document["version"]
    engine = engine_of(ClusterSnapshot(**{**document, "scheduler_conf": conf("gang", actions="allocate")}))
    assert all(not view.deserved and not view.borrowed for view in queue_views(engine, 1.0))


def test_queues_are_shown_by_type_of_card_too() -> None:
    """The cards that queues hold, and the types for their pending pods; a queue shows with it what is below it."""
    world = World()
    models = ("A100", "A100", "T4")
    register = "".join(f"GPU-n1-{i},10,40000,NVIDIA-NVIDIA {model},true,hami-core:" for i, model in enumerate(models))
    world.add(node("n1", cards=3, mib=40000, register=register), queue("a"))
    world.add(*(pod(f"p{i}", queue="a", mib=20000, annotations={USE_GPU_TYPE: "A100"}) for i in range(3)))
    world.add(pod("one", queue="a", mib=30000, annotations={USE_GPU_TYPE: "T4"}))
    world.settle()
    world.add(pod("any", queue="a", mib=40000), pod("tesla", queue="a", mib=40000, annotations={USE_GPU_TYPE: "T4"}))
    world.settle()
    (a,) = [view for view in queue_views(world.engine, world.now) if view.name == "a"]
    assert [(use.type, use.total, use.used, use.shares, use.waiting) for use in a.cards] == [
        ("NVIDIA-NVIDIA A100", 2, 1.5, 3, 1), ("NVIDIA-NVIDIA T4", 1, 0.75, 1, 2)]  # fmt: skip
    shown = Console(width=200)
    with shown.capture() as text:
        shown.print(queues_table([a]))
    assert [line.split() for line in text.get().splitlines()][-2:] == [
        ["A100", "1.5", "of", "2", "cards", "1", "pod"], ["T4", "0.75", "of", "1", "cards", "2", "pods"],
    ]  # fmt: skip
