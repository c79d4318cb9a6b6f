"""ray: starts the head and the workers of a Ray cluster, and gives the head a Service.

Names of the flags, of the containers and the Service's kind: Volcano's "Ray Plugin User Guide".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pumice.wire.batch import Job
from pumice.wire.kinds import SERVICES
from pumice.wire.names import JOB_NAME, JOB_NAMESPACE, TASK_SPEC
from pumice_jobs.controllers.job.effects import Ensure
from pumice_jobs.controllers.job.plugins.contract import (
    Flags,
    Json,
    PodPlugin,
    Replica,
    add_port,
    beside,
    containers,
    host,
    port_of,
    task_named,
)

PORTS = (("gcs", "port", 6379), ("dashboard", "dashboardPort", 8265), ("client", "clientServerPort", 10001))
"""Name of the port, flag, default."""


class Ray(PodPlugin):
    defaults: ClassVar[Flags] = {
        "head": "head", "worker": "worker", "headContainer": "head", "workerContainer": "worker",
        **{flag: str(number) for _, flag, number in PORTS},
    }  # fmt: skip

    def objects(self, job: Job, flags: Flags) -> Sequence[Ensure]:
        chosen = {JOB_NAME: job.metadata.name, JOB_NAMESPACE: job.metadata.namespace, TASK_SPEC: flags["head"]}
        open_ports = [{"name": name, "port": number, "targetPort": number} for name, number in _ports(flags)]
        spec = {"selector": chosen, "ports": open_ports}
        return [Ensure(SERVICES, beside(job, SERVICES, f"{job.metadata.name}-head-svc", spec=spec))]

    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        numbers = dict(_ports(flags))
        head = task_named(replica.job, flags["head"])
        if replica.task is head:
            main = _main(pod, flags["headContainer"])
            _start(main, f"ray start --head --block --dashboard-host=0.0.0.0 --port={numbers['gcs']}"
                         f" --dashboard-port={numbers['dashboard']} --ray-client-server-port={numbers['client']}")  # fmt: skip
            for name, number in numbers.items():
                add_port([main], name, number)
        elif replica.task.name == flags["worker"] and head is not None:
            address = f"{host(replica.job, head, 0)}:{numbers['gcs']}"
            _start(_main(pod, flags["workerContainer"]), f"ray start --block --address={address}")


def _ports(flags: Flags) -> list[tuple[str, int]]:
    return [(name, port_of(flags, flag, default)) for name, flag, default in PORTS]


def _main(pod: Json, name: str) -> Json:
    """The container of this name, else the first."""
    there = containers(pod)
    return next((each for each in there if each.get("name") == name), there[0] if there else {})


def _start(container: Json, line: str) -> None:
    container["command"], container["args"] = ["sh", "-c"], [line]
