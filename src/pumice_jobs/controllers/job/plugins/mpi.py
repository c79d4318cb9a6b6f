"""mpi: the master knows the workers' names; with svc and ssh it reaches them."""

from __future__ import annotations

from typing import ClassVar

from pumice.wire.batch import Job
from pumice_jobs.controllers.job.plugins.contract import (
    Dresser,
    Flags,
    Json,
    Seat,
    add_env,
    add_port,
    all_containers,
    containers,
    hosts,
    port_of,
    task_named,
    variable,
)

PORT = 22
PORT_NAME = "mpijob-port"


class Mpi(Dresser):
    defaults: ClassVar[Flags] = {"master": "master", "worker": "worker", "port": str(PORT)}

    def dress(self, pod: Json, seat: Seat, flags: Flags) -> None:
        worker = task_named(seat.job, flags["worker"])
        if seat.task.name == flags["master"] and worker is not None:
            add_env(all_containers(pod), variable("MPI_HOST", ",".join(hosts(seat.job, worker))))
        add_port(containers(pod), PORT_NAME, port_of(flags, "port", PORT))

    def problem(self, job: Job, flags: Flags) -> str:
        return "" if task_named(job, flags["master"]) else "The specified mpi master task was not found"
