"""mpi: the master knows the workers' names; with svc and ssh it reaches them."""

from __future__ import annotations

import json
from typing import ClassVar

from pumice.wire.batch import Job
from pumice_jobs.controllers.job.phases import replicas
from pumice_jobs.controllers.job.plugins.contract import (
    Flags,
    Json,
    PodPlugin,
    Replica,
    add_env,
    add_port,
    all_containers,
    containers,
    host,
    hosts,
    hosts_size,
    is_set,
    port_of,
    roles,
    task_named,
    variable,
)

MOST = 128 * 1024
"""Bytes of one variable (MAX_ARG_STRLEN of Linux)."""


def _fits(plugin: str, size: int) -> str:
    """Return the problem of a plugin that puts so many bytes of names into a variable; empty where it is none."""
    return f"plugin {plugin}: the names of all pods take {size} bytes, and a variable {MOST}" if size > MOST else ""


MPI_PORT = 22
MPI_PORT_NAME = "mpijob-port"


class Mpi(PodPlugin):
    defaults: ClassVar[Flags] = {"master": "master", "worker": "worker", "port": str(MPI_PORT)}

    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        worker = task_named(replica.job, flags["worker"])
        if replica.task.name == flags["master"] and worker is not None:
            add_env(all_containers(pod), variable("MPI_HOST", ",".join(hosts(replica.job, worker))))
        add_port(containers(pod), MPI_PORT_NAME, port_of(flags, "port", MPI_PORT))

    def problem(self, job: Job, flags: Flags) -> str:
        worker = task_named(job, flags["worker"])
        if task_named(job, flags["master"]) is None:
            return "The specified mpi master task was not found"
        return _fits("mpi", hosts_size(job, worker)) if worker is not None else ""


# -- tensorflow: TF_CONFIG, from which each process knows all others and its own place -------------------------------

ROLES = ("ps", "worker", "chief", "evaluator")
TENSORFLOW_PORT = 2222


class Tensorflow(PodPlugin):
    defaults: ClassVar[Flags] = {**{role: role for role in ROLES}, "port": str(TENSORFLOW_PORT)}

    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        job, port = replica.job, port_of(flags, "port", TENSORFLOW_PORT)
        if len(job.spec.tasks) == 1 and replicas(job) == 1:
            return
        playing = list(roles(job, flags, *ROLES))
        cluster = {role: [f"{host}:{port}" for host in hosts(job, task)] for role, task in playing}
        mine = next((role for role, task in playing if task.name == replica.task.name), "")
        if mine:
            text = json.dumps({"cluster": cluster, "task": {"type": mine, "index": replica.index}}, separators=(",", ":"))
            add_env(containers(pod), variable("TF_CONFIG", text))

    def problem(self, job: Job, flags: Flags) -> str:
        return _fits("tensorflow", sum(hosts_size(job, task) for _, task in roles(job, flags, *ROLES)))


# -- pytorch: where the first process listens, how many there are, and which one this is -----------------------------

PYTORCH_PORT = 23456
PYTORCH_PORT_NAME = "pytorchjob-port"
WAITER = "wait-for-master"
_WAIT = """\
left={seconds}
until nc -z -w 1 {host} {port}; do
  left=$((left - 1))
  if [ "$left" -le 0 ]; then echo "{host}:{port} did not answer within {seconds} s"; exit 1; fi
  sleep 1
done
"""


class Pytorch(PodPlugin):
    defaults: ClassVar[Flags] = {
        "master": "master", "worker": "worker", "port": str(PYTORCH_PORT), "wait-master-enabled": "false",
        "wait-master-timeout": "300", "wait-master-image": "busybox:1.36.1",
    }  # fmt: skip

    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        job, port = replica.job, port_of(flags, "port", PYTORCH_PORT)
        master, worker = task_named(job, flags["master"]), task_named(job, flags["worker"])
        if replica.task not in (master, worker):
            return
        is_master = replica.task is master
        size = sum(task.replicas for task in (master, worker) if task is not None)
        variables = [variable("MASTER_PORT", port), variable("WORLD_SIZE", size),
                     variable("RANK", 0 if is_master else replica.index + (master is not None))]  # fmt: skip
        if master is not None:
            variables.insert(0, variable("MASTER_ADDR", host(job, master, 0)))
        add_env(all_containers(pod), *variables)
        add_port(containers(pod), PYTORCH_PORT_NAME, port)
        if master is not None and not is_master and is_set(flags, "wait-master-enabled"):
            _wait_for(pod, host(job, master, 0), port, flags)


def _wait_for(pod: Json, address: str, port: int, flags: Flags) -> None:
    text = flags["wait-master-timeout"]
    script = _WAIT.format(host=address, port=port, seconds=int(text) if text.isdecimal() else 300)
    waiter = {"name": WAITER, "image": flags["wait-master-image"], "command": ["sh", "-c", script]}
    pod["spec"]["initContainers"] = [waiter, *(pod["spec"].get("initContainers") or ())]


# -- hcclrank: the rank of a pod in Huawei's collective communication ------------------------------------------------

RANK = "hccl/rankIndex"


class HcclRank(PodPlugin):
    defaults: ClassVar[Flags] = {"master": "master", "worker": "worker"}

    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        master = task_named(replica.job, flags["master"])
        if replica.task.name == flags["master"]:
            rank = replica.index
        elif replica.task.name == flags["worker"]:
            rank = replica.index + (master.replicas if master is not None else 0)
        else:
            return
        pod["metadata"]["annotations"].setdefault(RANK, str(rank))
