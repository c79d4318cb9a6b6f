"""svc: the pods find each other by name, and know each other's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

from pumice.wire.batch import Job, Task
from pumice.wire.kinds import CONFIGMAPS, NETWORK_POLICIES, SERVICES
from pumice.wire.names import JOB_NAME, JOB_NAMESPACE
from pumice_jobs.controllers.job.effects import Ensure, Follow
from pumice_jobs.controllers.job.plugins.contract import (
    Flags,
    Json,
    PodPlugin,
    Replica,
    add_env,
    add_volume,
    all_containers,
    beside,
    hosts,
    hosts_size,
    is_set,
)

MOUNT = "/etc/volcano"
MOST = 1024 * 1024
"""Bytes of a ConfigMap's data."""


class Svc(PodPlugin):
    defaults: ClassVar[Flags] = {
        "publish-not-ready-addresses": "false", "disable-network-policy": "false", "inject-hosts-env": "true",
    }  # fmt: skip

    def objects(self, job: Job, flags: Flags) -> Sequence[Ensure]:
        name, chosen = job.metadata.name, _selector(job)
        service = {"clusterIP": "None", "selector": chosen,
                   "publishNotReadyAddresses": is_set(flags, "publish-not-ready-addresses")}  # fmt: skip
        made = [
            _pods_names(job),
            Ensure(SERVICES, beside(job, SERVICES, name, spec=service)),
        ]
        if not is_set(flags, "disable-network-policy"):
            own = {"matchLabels": chosen}
            policy = {"podSelector": own, "ingress": [{"from": [{"podSelector": own}]}], "policyTypes": ["Ingress"]}
            made.append(Ensure(NETWORK_POLICIES, beside(job, NETWORK_POLICIES, name, spec=policy)))
        return made

    def following(self, job: Job, flags: Flags) -> Sequence[Follow]:
        return [Follow(CONFIGMAPS, _config_map(job), {"data": _data(job)}, lost=_pods_names(job))]

    def problem(self, job: Job, flags: Flags) -> str:
        size = 2 * sum(hosts_size(job, task) for task in job.spec.tasks)
        return f"plugin svc: the names of all pods take {size} bytes, and a ConfigMap {MOST}" if size > MOST else ""

    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        job, every = replica.job, all_containers(pod)
        pod["spec"].setdefault("hostname", pod["metadata"]["name"])
        pod["spec"].setdefault("subdomain", job.metadata.name)
        name = _config_map(job)
        if is_set(flags, "inject-hosts-env"):
            keys = chain.from_iterable((_hosts_key(task), _count_key(task)) for task in job.spec.tasks)
            add_env(every, *({"name": key, "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}} for key in keys))
        volume = {"name": name, "configMap": {"name": name}}
        add_volume(pod, volume, {"name": name, "mountPath": MOUNT}, every)


def _pods_names(job: Job) -> Ensure:
    return Ensure(CONFIGMAPS, beside(job, CONFIGMAPS, _config_map(job), data=_data(job)))


def _selector(job: Job) -> dict[str, str]:
    return {JOB_NAME: job.metadata.name, JOB_NAMESPACE: job.metadata.namespace}


def _config_map(job: Job) -> str:
    return f"{job.metadata.name}-svc"


def _data(job: Job) -> dict[str, str]:
    found = {}
    for task in job.spec.tasks:
        names = hosts(job, task)
        found[f"{task.name.replace('-', '_')}.host"] = "\n".join(names)
        found[_hosts_key(task)] = ",".join(names)
        found[_count_key(task)] = str(len(names))
    return found


def _hosts_key(task: Task) -> str:
    return f"VC_{task.name.replace('-', '_').upper()}_HOSTS"


def _count_key(task: Task) -> str:
    return f"VC_{task.name.replace('-', '_').upper()}_NUM"
