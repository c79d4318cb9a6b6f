"""pytorch: where the first process listens, how many there are, and which one this is."""

from __future__ import annotations

from typing import ClassVar

from pumice_jobs.controllers.job.plugins.contract import (
    Dresser,
    Flags,
    Json,
    Seat,
    add_env,
    add_port,
    all_containers,
    containers,
    host,
    is_set,
    port_of,
    task_named,
    variable,
)

PORT = 23456
PORT_NAME = "pytorchjob-port"
WAITER = "wait-for-master"
_WAIT = """\
left={seconds}
until nc -z -w 1 {host} {port}; do
  left=$((left - 1))
  if [ "$left" -le 0 ]; then echo "{host}:{port} did not answer within {seconds} s"; exit 1; fi
  sleep 1
done
"""


class Pytorch(Dresser):
    defaults: ClassVar[Flags] = {
        "master": "master", "worker": "worker", "port": str(PORT), "wait-master-enabled": "false",
        "wait-master-timeout": "300", "wait-master-image": "busybox:1.36.1",
    }  # fmt: skip

    def dress(self, pod: Json, seat: Seat, flags: Flags) -> None:
        job, port = seat.job, port_of(flags, "port", PORT)
        master, worker = task_named(job, flags["master"]), task_named(job, flags["worker"])
        if seat.task not in (master, worker):
            return
        is_master = seat.task is master
        size = sum(task.replicas for task in (master, worker) if task is not None)
        variables = [variable("MASTER_PORT", port), variable("WORLD_SIZE", size),
                     variable("RANK", 0 if is_master else seat.index + (master is not None))]  # fmt: skip
        if master is not None:
            variables.insert(0, variable("MASTER_ADDR", host(job, master, 0)))
        add_env(all_containers(pod), *variables)
        add_port(containers(pod), PORT_NAME, port)
        if master is not None and not is_master and is_set(flags, "wait-master-enabled"):
            _wait_for(pod, host(job, master, 0), port, flags)


def _wait_for(pod: Json, address: str, port: int, flags: Flags) -> None:
    text = flags["wait-master-timeout"]
    script = _WAIT.format(host=address, port=port, seconds=int(text) if text.isdecimal() else 300)
    waiter = {"name": WAITER, "image": flags["wait-master-image"], "command": ["sh", "-c", script]}
    pod["spec"]["initContainers"] = [waiter, *(pod["spec"].get("initContainers") or ())]
