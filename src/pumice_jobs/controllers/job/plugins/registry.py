"""All plugins of Jobs, by name, in the order in which they change a pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pumice.wire.batch import Job
from pumice_jobs.controllers.job.effects import Ensure, Follow
from pumice_jobs.controllers.job.plugins.contract import (
    Flags,
    Json,
    Plugin,
    PodPlugin,
    Replica,
    add_env,
    all_containers,
    parsed,
    variable,
)
from pumice_jobs.controllers.job.plugins.frameworks import HcclRank, Mpi, Pytorch, Tensorflow
from pumice_jobs.controllers.job.plugins.ray import Ray
from pumice_jobs.controllers.job.plugins.ssh import Ssh
from pumice_jobs.controllers.job.plugins.svc import Svc

# -- env --------------------------------------------------------------------------------------------------------------

# Each container knows its pod's index.

class Env(PodPlugin):
    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        add_env(all_containers(pod), variable("VK_TASK_INDEX", replica.index), variable("VC_TASK_INDEX", replica.index))


# -- All plugins of Jobs, by name, in the order in which they change a pod --------------------------------------------


PLUGINS: Final[Mapping[str, Plugin]] = {
    "env": Env(), "svc": Svc(), "ssh": Ssh(), "tensorflow": Tensorflow(), "pytorch": Pytorch(), "mpi": Mpi(), "ray": Ray(),
    "hcclrank": HcclRank(),
}  # fmt: skip


def of(job: Job) -> Iterator[tuple[str, Plugin, Flags]]:
    """The plugins that a Job names, each with its flags."""
    if not job.spec.plugins:
        return
    for name, plugin in PLUGINS.items():
        words = job.spec.plugins.get(name)
        if words is not None:
            yield name, plugin, parsed(words, plugin.defaults)


def mark(name: str) -> str:
    """Under which key ``status.controlledResources`` says that a plugin's objects are there."""
    return f"plugin-{name}"


def objects(job: Job, name: str) -> Sequence[Ensure]:
    """Return the objects of a plugin; also of one that the Job does not name any more."""
    plugin = PLUGINS.get(name)
    return plugin.objects(job, parsed(job.spec.plugins.get(name, ()), plugin.defaults)) if plugin else ()


def following(job: Job) -> list[Follow]:
    return [each for _, plugin, flags in of(job) for each in plugin.following(job, flags)]


def on_pod_create(pod: Json, replica: Replica) -> None:
    for _, plugin, flags in of(replica.job):
        plugin.on_pod_create(pod, replica, flags)


def problem(job: Job) -> str:
    return next((text for _, plugin, flags in of(job) if (text := plugin.problem(job, flags))), "")
