"""nodeorder scores nodes as the real kube-scheduler does, on the stored set of generated clusters."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.golden.score_clusters import ScoreCase, generate

from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf

GOLDEN = Path(__file__).parent / "node_scores.json.gz"
WEIGHTS = {
    "NodeResourcesFit": ("leastrequested.weight", 1), "NodeResourcesBalancedAllocation": ("balancedresource.weight", 1),
    "ImageLocality": ("imagelocality.weight", 1),
    "TaintToleration": ("tainttoleration.weight", 3), "NodeAffinity": ("nodeaffinity.weight", 2),
    "InterPodAffinity": ("podaffinity.weight", 2), "PodTopologySpread": ("podtopologyspread.weight", 2),
}  # fmt: skip
"""Plugin of kube-scheduler to our argument and its weight there."""
KEYS = [key for key, _ in WEIGHTS.values()]


@cache
def recorded() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(GOLDEN.read_bytes()))["cases"]
    return found


def scores(case: ScoreCase, plugin: str) -> dict[str, int]:
    """Our scores of the incoming pod by that part of nodeorder alone."""
    wanted, weight = WEIGHTS[plugin]
    arguments = ", ".join(f"{key}: {weight if key == wanted else 0}" for key in KEYS)
    text = f'actions: "allocate"\ntiers:\n- plugins:\n  - name: nodeorder\n    arguments: {{{arguments}}}\n'
    engine = Engine(parse_scheduler_conf(text))
    engine.state.bookings.put_namespace("default", {})
    for node in case.nodes:
        engine.state.bookings.put_node(convert(Node, node))
    for obj in case.selecting:
        engine.state.classes.workloads.put(obj["kind"], "default", obj["metadata"]["name"], obj["spec"].get("selector"))
    for index, pod in enumerate(case.bound):
        engine.state.pods.put(convert(Pod, {**pod, "metadata": {**pod["metadata"], "uid": f"uid-{index}"}}))
    cls, table = engine.state.classes.of(convert(Pod, case.incoming)), engine.state.ledger.table
    each = engine.framework.scores(engine.state, cls, None)
    together = engine.framework.relative(engine.state, cls, table.live)
    return {
        table.name(int(row)): int((0 if each is None else each[row]) + (0 if together is None else together[row]))
        for row in table.live_rows()
    }


@pytest.mark.parametrize("plugin", WEIGHTS)
def test_each_part_of_nodeorder_scores_as_the_real_scheduler(plugin: str) -> None:
    wrong, scored = {}, 0
    for entry in recorded():
        ours, theirs = scores(generate(entry["seed"]), plugin), entry["scores"].get(plugin)
        differ = len(set((theirs or {}).values())) > 1
        scored += differ
        if ours != theirs if differ else len(set(ours.values())) > 1:  # what all nodes get alike decides nothing
            wrong[entry["seed"]] = (ours, theirs)
    assert not wrong, f"{len(wrong)} of {len(recorded())} differ (ours, theirs): {dict(list(wrong.items())[:3])}"
    assert scored >= 20, "in too few clusters the nodes differ at all"
