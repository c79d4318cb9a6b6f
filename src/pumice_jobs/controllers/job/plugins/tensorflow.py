"""tensorflow: TF_CONFIG, from which each process knows all others and its own place."""

from __future__ import annotations

import json
from typing import ClassVar

from pumice_jobs.controllers.job.phases import replicas
from pumice_jobs.controllers.job.plugins.contract import (
    Dresser,
    Flags,
    Json,
    Seat,
    add_env,
    containers,
    hosts,
    port_of,
    roles,
    variable,
)

ROLES = ("ps", "worker", "chief", "evaluator")
PORT = 2222


class Tensorflow(Dresser):
    defaults: ClassVar[Flags] = {**{role: role for role in ROLES}, "port": str(PORT)}

    def dress(self, pod: Json, seat: Seat, flags: Flags) -> None:
        job, port = seat.job, port_of(flags, "port", PORT)
        if len(job.spec.tasks) == 1 and replicas(job) == 1:
            return
        playing = list(roles(job, flags, *ROLES))
        cluster = {role: [f"{host}:{port}" for host in hosts(job, task)] for role, task in playing}
        mine = next((role for role, task in playing if task.name == seat.task.name), "")
        if mine:
            text = json.dumps({"cluster": cluster, "task": {"type": mine, "index": seat.index}}, separators=(",", ":"))
            add_env(containers(pod), variable("TF_CONFIG", text))
