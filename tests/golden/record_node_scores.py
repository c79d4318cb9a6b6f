"""Ask the real kube-scheduler how it scores nodes, and store the answers as the golden set of nodeorder.

    KUBEBUILDER_ASSETS=$(make -s kube) .venv/bin/python -m tests.golden.record_node_scores --cases 150

The scores of each plugin, weighted, stand in its log at verbosity 10.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.golden.record_filter_verdicts import SETTLE_SECONDS, control_plane
from tests.golden.score_clusters import ScoreCase, generate

from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import ApiError
from pumice.wire import kinds
from pumice.wire.kinds import NODES, PODS

GOLDEN = Path(__file__).parent / "node_scores.json.gz"
SCORED = re.compile(r'"Plugin scored node for pod" pod="default/incoming" plugin="(\w+)" node="(\w+)" score=(-?\d+)')

SELECTING = {
    "Service": kinds.SERVICES, "ReplicationController": kinds.REPLICATION_CONTROLLERS,
    "ReplicaSet": kinds.REPLICA_SETS, "StatefulSet": kinds.STATEFUL_SETS,
}  # fmt: skip
Scores = dict[str, dict[str, int]]
"""Plugin to node to score."""


async def ask(kube: KubeClient, log: Path, case: ScoreCase) -> Scores:
    """What was logged of the incoming pod; the cluster is empty again afterwards."""
    try:
        await asyncio.gather(*(kube.create(NODES, node) for node in case.nodes))
        await asyncio.gather(*(kube.create(PODS, pod) for pod in case.bound))
        await asyncio.gather(*(kube.create(SELECTING[obj["kind"]], obj) for obj in case.selecting))
        await asyncio.sleep(SETTLE_SECONDS)
        began = log.stat().st_size
        await kube.create(PODS, case.incoming)
        for _ in range(400):
            if (await kube.get(PODS, "incoming", "default"))["spec"].get("nodeName"):
                break
            await asyncio.sleep(0.02)
        found: Scores = {}
        with log.open("rb") as lines:
            lines.seek(began)
            for plugin, node, score in SCORED.findall(lines.read().decode()):
                found.setdefault(plugin, {})[node] = int(score)
        return found
    finally:
        for pod in [case.incoming, *case.bound]:
            with contextlib.suppress(ApiError):
                await kube.delete(PODS, pod["metadata"]["name"], "default", grace=0)
        for obj in case.selecting:
            with contextlib.suppress(ApiError):
                kind, name = SELECTING[obj["kind"]], obj["metadata"]["name"]
                await kube.delete(kind, name, "default")
                await kube.patch(kind, name, {"metadata": {"finalizers": None}}, "default")  # no collector runs
        await asyncio.gather(*(kube.delete(NODES, node["metadata"]["name"]) for node in case.nodes))
        await asyncio.sleep(SETTLE_SECONDS)


async def record(cases: int) -> list[dict[str, Any]]:
    recorded = []
    with tempfile.TemporaryDirectory() as folder:
        async with control_plane(Path(folder), None, verbosity=10) as kube:
            log = Path(folder) / "scheduler.log"
            for seed in range(cases):
                case = generate(seed)
                first, second = await ask(kube, log, case), await ask(kube, log, case)
                if first and first == second:
                    recorded.append({"seed": seed, "scores": first})
                else:
                    print(f"case {seed}: the two answers differ, left out", flush=True)
    return recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--output", type=Path, default=GOLDEN)
    options = parser.parse_args()
    recorded = asyncio.run(record(options.cases))
    document = {"recorded_from": f"kube-scheduler of {os.environ['KUBEBUILDER_ASSETS'].rsplit('/', 1)[-1]}",
                "generator": "tests/golden/score_clusters.py", "cases": recorded}  # fmt: skip
    options.output.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))
    print(f"{len(recorded)} cases recorded")


if __name__ == "__main__":
    main()
