"""Upstream's defects in the life of a booking, from allocation to restart, shown to be absent: one test per number.

The worked examples beside this file show most of them in numbers.
"""

from __future__ import annotations

import pytest
from kit.device_world import card, fingerprint, limits, pod_of, vgpu_node
from tests.golden.defect_world import VGPU, binds, bound, conf, engine, ledger, mig_node, pending, two_cards, used

from pumice.devices.registry import settings_from
from pumice.effects.vocabulary import Bind
from pumice.model.refusal import Refusal
from pumice.scheduler.state.ledger import PlacementState
from pumice.wire import names
from pumice.wire.node_lock import LockView, may_release, may_take, parse_lock, render_lock


def test_d15_a_binding_carries_only_the_keys_of_this_feature() -> None:
    made = engine(two_cards())
    made.state.pods.put(pending("p", limits(1, 100), annotations={"mine": "1"}))
    bind = next(e for e in made.cycle(10.0).effects if isinstance(e, Bind))
    six = {names.VGPU_NODE, names.VGPU_TIME, names.VGPU_IDS, names.DEVICES_TO_ALLOCATE, names.BIND_PHASE, names.BIND_TIME}
    assert set(bind.annotations) == six


def test_d21_every_container_of_a_replayed_pod_is_charged() -> None:
    made = ledger(two_cards())
    made.replay(bound("p", "GPU-aaa,NVIDIA,4096,25:;GPU-aaa,NVIDIA,2048,10:"), "n1")
    assert made.used("n1")[0] == (2, 6144, 35)


def test_d27_pods_without_cards_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    made = engine(two_cards())
    plain = pod_of("plain", {"cpu": 1}, node="n1")
    plain.status.phase = "Running"
    made.state.pods.put(plain)
    made.cycle(10.0)
    assert (caplog.records, made.state.problems) == ([], {})


def test_d28_a_terminating_pod_keeps_its_card() -> None:
    made = engine(two_cards())
    going = bound("old", "GPU-aaa,NVIDIA,16384,0:")
    going.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    made.state.pods.put(going)
    made.state.pods.put(pending("p", limits(1)))
    assert binds(made) == {"p": "GPU-bbb,NVIDIA,16384,0:"}


def test_d29_a_failed_allocation_charges_nothing() -> None:
    made = engine(mig_node())
    made.state.pods.put(pending("p", limits(1, 3000, 10), limits(1, 40000, 10)))
    assert binds(made) == {}
    assert used(made) == [(0, 0, 0)]


def test_d30_a_pod_whose_binding_is_on_its_way_holds_its_cards() -> None:
    made = engine(two_cards())
    made.state.pods.put(pending("a", limits(1)))
    assert binds(made) == {"a": "GPU-aaa,NVIDIA,16384,0:"}
    made.state.pods.put(pending("b", limits(1)))
    assert binds(made, 11.0) == {"b": "GPU-bbb,NVIDIA,16384,0:"}
    assert made.state.ledger.placements["uid-a"].state is PlacementState.ASSUMED


def test_d31_a_refused_binding_gives_everything_back() -> None:
    made = engine(two_cards())
    made.state.pods.put(pending("a", limits(1, 3000, 20)))
    binds(made)
    made.bind_failed("uid-a", 11.0)
    assert used(made) == [(0, 0, 0), (0, 0, 0)]


def test_d32_taking_an_eviction_back_restores_and_nothing_else() -> None:
    made = engine(two_cards())
    made.state.pods.put(bound("old", "GPU-aaa,NVIDIA,8000,50:"))
    before = fingerprint(made.state.ledger)
    receipt = made.state.ledger.terminate("uid-old")
    assert receipt is not None
    made.state.ledger.undo(receipt)
    assert fingerprint(made.state.ledger) == before
    assert used(made)[0] == (1, 8000, 50)


def test_d33_a_promise_on_what_is_being_released_writes_nothing() -> None:
    made = engine(vgpu_node("n1", card("GPU-aaa")))
    going = bound("old", "GPU-aaa,NVIDIA,16384,0:")
    going.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    made.state.pods.put(going)
    made.state.pods.put(pending("p", limits(1)))
    assert binds(made) == {}
    assert made.state.ledger.pipelined == {}


def test_d35_an_unreadable_lock_expires_and_nobody_removes_a_lock_that_is_not_theirs() -> None:
    now = 1_000_000.0
    assert not may_take(LockView("rubbish", now - 10), now, now)
    assert may_take(LockView("rubbish", now - 301), now, now)
    assert may_take(LockView(render_lock(now - 1200), now), now, now)
    assert not may_take(LockView(render_lock(now - 299), now), now, now)
    assert not may_take(LockView(render_lock(now + 1200), now), now, now)
    assert parse_lock("2026-08-20T10:07:21+08:00_pod-a") == parse_lock("2026-08-20T02:07:21Z")
    assert may_release(render_lock(now), render_lock(now))
    assert not may_release(render_lock(now + 5), render_lock(now))


def test_d36_two_pods_of_a_gang_on_one_node_are_decided_in_one_cycle() -> None:
    made = engine(two_cards(), text=conf({**VGPU, "deviceshare.NodeLockEnable": True}))
    for name in ("a", "b"):
        made.state.pods.put(pending(name, limits(1, 1000)))
    assert sorted(binds(made)) == ["a", "b"]


def test_d38_exclusivity_respects_pods_in_flight_and_looks_at_the_same_rule_only() -> None:
    rules = {**VGPU, "deviceshare.GPUExclusiveRules": [{"app": "a"}, {"app": "b"}]}
    text = conf(VGPU) + "\n      deviceshare.GPUExclusiveRules: [{app: a}, {app: b}]"
    assert not isinstance(settings_from(rules), Refusal)
    made = engine(two_cards(), text=text)
    for name, label in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "b"), ("5", "a")):
        made.state.pods.put(pending(name, limits(1, 1000), labels={"app": label}))
    cards = {name: ids.split(",")[0] for name, ids in binds(made).items()}
    assert {cards["1"], cards["2"]} == {"GPU-aaa", "GPU-bbb"} == {cards["3"], cards["4"]}
    assert "5" not in cards


def test_d46_annotations_of_a_pod_that_is_not_on_the_node_are_ignored() -> None:
    made = ledger(two_cards())
    stale = bound("p", "GPU-aaa,NVIDIA,8000,0:", written_for="n9")
    stale.status.phase = "Pending"
    assert made.replay(stale, "n1") is None
    waiting = pending("q", limits(1, 1000), annotations={names.VGPU_IDS: "GPU-aaa,NVIDIA,8000,0:"})
    assert made.replay(waiting, "n1") is None
