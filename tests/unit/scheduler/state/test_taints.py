"""Taints of nodes, and what they leave behind."""

from __future__ import annotations

from kit.objects import node, pod
from kit.scheduler_confs import conf

from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf


def test_taints_that_change_without_end_leave_nothing_behind() -> None:
    """Autoscalers write times into taints."""
    engine = Engine(parse_scheduler_conf(conf("predicates", "nodeorder")))
    engine.state.bookings.put_node(convert(Node, node("other")))
    tolerant = pod("t", cpu="1", tolerations=[{"key": "since", "operator": "Exists", "effect": "NoSchedule"}])
    classes = [engine.state.classes.of(convert(Pod, obj)) for obj in (pod("p", cpu="1"), tolerant)]
    for number in range(300):
        effect = ("NoSchedule", "PreferNoSchedule")[number % 2]
        taints = [{"key": "since", "value": str(number), "effect": effect}] if number % 5 else []
        engine.state.bookings.put_node(convert(Node, node("n", taints=taints)))
        row = engine.state.ledger.table.row_of["n"]
        hard = bool(taints) and effect == "NoSchedule"
        assert [bool(engine.placer.evaluation.fits(cls, None)[row]) for cls in classes] == [not hard, True]
        assert [engine.state.has_preferences(cls) for cls in classes] == [bool(taints) and not hard] * 2
    assert len(engine.state.ledger.table.taint_sets) <= 3
