"""Undo by receipt restores the books bit for bit, whatever was done in between and in whatever order (spec 23.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.engine_world import ALL_PLUGINS, World
from kit.objects import node, pod
from kit.slot_family import NODE_CARDS, RESOURCE, SlotFamily

from pumice.engine.state.ledger import Holding, Receipt
from pumice.wire.objects import Pod, convert

VGPU_SHAPES: list[dict[str, Any]] = [
    {"mib": 3000}, {"mib": 5000, "cores": 60}, {"cards": 2, "mib": 2000}, {"cards": 1}, {"cpu": "3"},
]  # fmt: skip
SLOT_SHAPES: list[dict[str, Any]] = [{"limits": {RESOURCE: size}} for size in ("1", "2", "4")]


def world_of(slots: bool) -> World:
    world = World(ALL_PLUGINS, families=[SlotFamily()] if slots else None)
    for name in ("n1", "n2"):
        made = node(name, cpu="8", extra={RESOURCE: "14"}) if slots else node(name, cards=2, mib=8000, shares=3, cpu="8")
        if slots:
            made["metadata"]["annotations"][NODE_CARDS] = "2"
        world.add(made)
    return world


def picture(world: World) -> Any:
    """Everything that decisions look at, arrays included; numbers of states may differ, what they stand for may not."""
    ledger = world.engine.state.ledger
    cards = {}
    for name, book in ledger.books.items():
        for where, row in ledger.table.row_of.items():
            state = book.state_of(row)
            cards[name, where] = [getattr(book.columns, column)[state].tolist()
                                  for column in ("memory", "cores", "shares", "flags", "state")]  # fmt: skip
    return ledger.fingerprint(), cards


@settings(deadline=None)
@given(
    slots=st.booleans(),
    before=st.lists(st.integers(0, 4), max_size=4),
    trial=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_a_trial_that_is_taken_back_leaves_no_trace(slots: bool, before: list[int], trial: list[int], order: Any) -> None:
    world = world_of(slots)
    shapes = SLOT_SHAPES if slots else VGPU_SHAPES
    world.add(*(pod(f"b{i}", **shapes[pick % len(shapes)]) for i, pick in enumerate(before)))
    world.settle(1)
    was = picture(world)
    engine = world.engine
    receipts: list[Receipt] = []
    for number, pick in enumerate(trial):
        incoming = convert(Pod, pod(f"t{number}", **shapes[pick % len(shapes)]))
        cls = engine.state.classes.of(incoming)
        choice = engine.placer.choose(cls)
        if choice is not None:
            features = engine.state.classes.kind(incoming).features
            receipts.append(engine.state.ledger.reserve(
                Holding(incoming.metadata.uid, choice.node, cls.request, choice.grants, features=features)))  # fmt: skip
    order.shuffle(receipts)
    for receipt in receipts:
        engine.state.ledger.undo(receipt)
    assert picture(world) == was
    assert not engine.state.ledger.table.pipelined.any()


@settings(deadline=None)
@given(picks=st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_what_the_filter_passes_on_an_unchanged_node_is_what_is_booked(picks: list[int]) -> None:
    """Filter and allocate agree (spec 23.5), and no counter is ever negative (23.6)."""
    world = world_of(slots=False)
    for number, pick in enumerate(picks):
        incoming = pod(f"p{number}", **VGPU_SHAPES[pick])
        world.add(incoming)
        task = world.engine.state.tasks[incoming["metadata"]["uid"]]
        expected = world.engine.placer.choose(task.cls)
        world.cycle()
        holding = world.engine.state.ledger.holdings.get(task.uid)
        if expected is None:
            assert holding is None
        elif holding is not None:
            assert (holding.node, holding.grants) == (expected.node, expected.grants)
        for book in world.engine.state.ledger.books.values():
            for name in ("memory", "cores", "shares"):
                assert np.all(getattr(book.columns, name) >= 0)
