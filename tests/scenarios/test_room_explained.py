"""Victims of a preemption are shown before: ``pumice explain --preempt`` plays the trial and discards it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.device_world import fingerprint
from kit.engine_world import World
from kit.objects import group, node, pod
from kit.room_worlds import BUNDLES, WHOLE_GANGS, full, gang

from pumice.cli.cluster_snapshot import ClusterSnapshot, save
from pumice.cli.main import main
from pumice.model.errors import BadInput
from pumice.scheduler.explaining.explain import explain_known
from pumice.scheduler.explaining.what_if import explain_preemption
from pumice.wire.times import stamp


def said(world: World, name: str) -> list[str]:
    found = explain_preemption(world.engine, "default", name, world.now)
    return [f"{n.node} {n.pod} {n.holds}: {n.stays or 'goes'}" for n in found.neighbours]


def test_who_would_go_and_why_the_others_stay() -> None:
    world = World(WHOLE_GANGS)
    elastic = [group("x", minimum=1), *(pod(f"x-w-{i}", group="x", mib=40960) for i in range(2))]
    full(world, node("n7", cards=3, mib=40960), *elastic)
    full(world, *gang("b", 2, cards=1))
    world.add(pod("late", mib=40960, priority=50))
    found = said(world, "late")
    assert len([line for line in found if line.endswith("40 GiB: goes")]) == 1
    stay = [line.partition(": ")[2] for line in found if "default/b-w" in line]
    assert stay == ["8000 MiB: gang b would fall under its minimum 2"] * 2
    assert not world.evictions


def test_where_nobody_can_make_room_everybodys_reason_is_told() -> None:
    world = full(World(BUNDLES), node("n1", cards=1, mib=8000), pod("same", mib=8000, priority=5))
    world.add(pod("late", mib=8000, priority=5))
    found = explain_preemption(world.engine, "default", "late", world.now)
    assert found.summary == "preempt and reclaim can make no room for it"
    assert [n.stays for n in found.neighbours] == ["its priority 5 is not lower than 5"]


def test_a_pod_whose_cooldown_time_is_over_is_told_to_go() -> None:
    world = World(BUNDLES.replace("  - name: conformance\n", "  - name: conformance\n  - name: cdp\n"))
    rested = pod("low", mib=8000, priority=1, annotations={"volcano.sh/cooldown-time": "60s"})
    full(world, node("n1", cards=1, mib=8000), rested)
    rested["status"]["startTime"] = stamp(world.now - 61)
    world.add(rested, pod("late", mib=8000, priority=5))
    assert said(world, "late") == ["n1 default/low card 0: 8000 MiB: goes"]


def test_the_books_are_as_before_and_a_pod_that_has_a_place_is_told_so() -> None:
    world = full(World(BUNDLES), node("n1", cards=1, mib=8000), pod("low", mib=8000, priority=1))
    assert explain_preemption(world.engine, "default", "low", world.now).summary == "is Running: no room is made for it"
    world.add(pod("late", mib=8000, priority=5))
    before = fingerprint(world.engine.state.ledger)
    assert explain_preemption(world.engine, "default", "late", world.now).leaving[0].pod == "default/low"
    assert fingerprint(world.engine.state.ledger) == before
    with pytest.raises(BadInput, match="no pod default/none"):
        explain_preemption(world.engine, "default", "none", world.now)


def test_a_pod_that_waits_for_others_to_leave_is_told_so() -> None:
    world = full(World(BUNDLES), node("n1", cards=1, mib=8000), pod("low", mib=8000, priority=1))
    world.grace = True
    world.add(pod("late", mib=8000, priority=5))
    world.settle(2)
    found = explain_known(world.engine, "default", "late")
    assert found is not None
    assert found.summary == "is promised a place on n1, free once these are gone: default/low"
    assert explain_preemption(world.engine, "default", "late", world.now).summary == "waits on n1 for pods that leave"


def test_the_command_says_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = full(World(BUNDLES), node("n1", cards=1, mib=8192), pod("low", mib=8192, priority=1))
    world.add(pod("late", mib=8192, priority=5))
    objects = {"nodes": list(world.nodes.values()), "pods": list(world.pods.values()), "queues": list(world.queues.values())}
    file = tmp_path / "case.yaml"
    file.write_text(save(ClusterSnapshot(now=world.now, scheduler_conf=BUNDLES, objects=objects)))
    with pytest.raises(SystemExit) as stopped:
        main(["explain", "--preempt", "pod", "late", "--from", str(file)])
    assert not stopped.value.code
    text = capsys.readouterr().out
    assert "default/late: 1 pod would go, and n1 would take it (action preempt)" in text
    assert "n1: evict default/low (priority 1, card 0: 8 GiB)" in text
