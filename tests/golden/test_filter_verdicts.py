"""Our predicates pass exactly the nodes that the real kube-scheduler passes, on the stored set of generated clusters."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
from kit.scheduler_confs import conf
from tests.golden.cluster_generator import CLASSES, NAMESPACES, WITH_CAPACITIES, WITH_SIDECARS, Case, generate

from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf

GOLDEN = Path(__file__).parent / "filter_verdicts.json.gz"
CONF = conf("predicates", actions="allocate")


def passing_nodes(case: Case) -> list[str]:
    """The nodes on which our filters let the incoming pod go."""
    engine = Engine(parse_scheduler_conf(CONF))
    for name, labels in NAMESPACES.items():
        engine.state.bookings.put_namespace(name, {"kubernetes.io/metadata.name": name, **labels})
    for obj in [*CLASSES, *case.storage]:
        engine.state.volumes.put(obj["kind"], obj)
    for node in case.nodes:
        engine.state.bookings.put_node(convert(Node, node))
    for index, pod in enumerate([*case.bound, case.incoming]):
        named = {**pod, "metadata": {**pod["metadata"], "uid": f"uid-{index}"}}
        if pod is case.incoming:
            named["spec"] = {**pod["spec"], "schedulerName": "volcano"}
        engine.state.pods.put(convert(Pod, named))
    task = engine.state.tasks[f"uid-{len(case.bound)}"]
    fits = engine.placer.evaluation.fits(task.cls, None)
    return sorted(engine.state.ledger.table.name(int(row)) for row in np.flatnonzero(fits))


def test_every_stored_verdict_of_the_real_scheduler_is_ours_too() -> None:
    recorded = json.loads(gzip.decompress(GOLDEN.read_bytes()))["cases"]
    assert len(recorded) >= 600
    seeds = [entry["seed"] for entry in recorded]
    assert sum(WITH_CAPACITIES <= seed < WITH_SIDECARS for seed in seeds) >= 100
    assert sum(seed >= WITH_SIDECARS for seed in seeds) >= 100
    wrong = {}
    for entry in recorded:
        ours = passing_nodes(generate(entry["seed"]))
        if ours != entry["passed"]:
            wrong[entry["seed"]] = (ours, entry["passed"])
    assert not wrong, f"{len(wrong)} of {len(recorded)} differ (ours, theirs): {dict(list(wrong.items())[:5])}"
