"""The examples of Jobs on a cluster of this machine, as a new user would try them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_cluster import local_cluster

from pumice.ports.cluster import Json
from pumice.wire import volcano
from pumice.wire.batch import CRON_JOBS, JOB_TEMPLATES
from pumice.wire.kinds import PODS

EXAMPLES = Path(__file__).parents[2] / "examples/jobs"
EXPECTED = ("gang", "all-reduce", "mpi", "tensorflow", "quota", "pipeline-report")
KINDS = {"Job": volcano.JOBS, "CronJob": CRON_JOBS, "JobFlow": volcano.JOB_FLOWS, "JobTemplate": JOB_TEMPLATES,
         "Queue": volcano.QUEUES}  # fmt: skip


def test_every_example_runs_to_its_end(tmp_path: Path) -> None:
    objects = [obj for path in sorted(EXAMPLES.glob("*.yaml")) for obj in yaml.safe_load_all(path.read_text())]
    with local_cluster(tmp_path / "d") as cluster:

        async def submit(kube: Any) -> None:
            for obj in objects:
                if obj["kind"] == "CronJob":
                    obj["spec"]["schedule"] = "* * * * *"
                await kube.create(KINDS[obj["kind"]], obj, "" if obj["kind"] == "Queue" else "default")

        async def ended(kube: Any) -> dict[str, str]:
            found: list[Json] = (await kube.list(volcano.JOBS, "default"))["items"]
            phases = {job["metadata"]["name"]: job.get("status", {}).get("state", {}).get("phase", "") for job in found}
            nights = [phase for name, phase in phases.items() if name.startswith("nightly-")]
            through = [phases.get(name) == "Completed" for name in EXPECTED]
            return phases if all(through) and "Completed" in nights else {}

        cluster.ask(submit)
        phases = cluster.wait(ended, 150)
        assert phases["mindx-dls"] == "Pending", "there is no such card"

        async def look(kube: Any) -> tuple[Json, Json]:
            return await kube.get(volcano.JOB_FLOWS, "pipeline", "default"), await kube.list(PODS, "default")

        flow, pods = cluster.ask(look)
        assert flow["status"]["state"]["phase"] == "Succeed"
        alive = {pod["metadata"]["name"] for pod in pods["items"] if pod["status"]["phase"] == "Running"}
        assert not {name for name in alive if not name.startswith("nightly")}
        for rank, name in enumerate(("all-reduce-master-0", "all-reduce-worker-0")):
            (log,) = cluster.data.root.glob(f"nodes/*/logs/default_{name}_*/process/*.log")
            assert f"rank {rank} of 2: the sum is 3" in log.read_text()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_begins_by_saying_what_it_shows(path: Path) -> None:
    assert path.read_text().startswith("# ")
