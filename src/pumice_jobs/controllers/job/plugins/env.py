"""env: each container knows its pod's index."""

from __future__ import annotations

from pumice_jobs.controllers.job.plugins.contract import Dresser, Flags, Json, Seat, add_env, all_containers, variable


class Env(Dresser):
    def dress(self, pod: Json, seat: Seat, flags: Flags) -> None:
        add_env(all_containers(pod), variable("VK_TASK_INDEX", seat.index), variable("VC_TASK_INDEX", seat.index))
