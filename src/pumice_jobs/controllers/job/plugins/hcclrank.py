"""hcclrank: the rank of a pod in Huawei's collective communication."""

from __future__ import annotations

from typing import ClassVar

from pumice_jobs.controllers.job.plugins.contract import Dresser, Flags, Json, Seat, task_named

RANK = "hccl/rankIndex"


class HcclRank(Dresser):
    defaults: ClassVar[Flags] = {"master": "master", "worker": "worker"}

    def dress(self, pod: Json, seat: Seat, flags: Flags) -> None:
        master = task_named(seat.job, flags["master"])
        if seat.task.name == flags["master"]:
            rank = seat.index
        elif seat.task.name == flags["worker"]:
            rank = seat.index + (master.replicas if master is not None else 0)
        else:
            return
        pod["metadata"]["annotations"].setdefault(RANK, str(rank))
