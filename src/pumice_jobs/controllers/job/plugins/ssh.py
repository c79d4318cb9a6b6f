"""ssh: one key pair a Job, so that its pods may log in to each other."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import ClassVar

from pumice.wire.batch import Job
from pumice.wire.kinds import SECRETS
from pumice_jobs.controllers.job.effects import Ensure
from pumice_jobs.controllers.job.plugins.contract import (
    Flags,
    Json,
    PodPlugin,
    Replica,
    add_volume,
    all_containers,
    beside,
    host,
    hosts,
    pod_name,
    port_of,
)

PRIVATE, PUBLIC, AUTHORIZED, CONFIG = "id_rsa", "id_rsa.pub", "authorized_keys", "config"
HOME = "/root/.ssh"
PORT = 22


class Ssh(PodPlugin):
    defaults: ClassVar[Flags] = {"ssh-key-file-path": HOME, "ssh-private-key": "", "ssh-public-key": "", "ssh-port": str(PORT)}

    def objects(self, job: Job, flags: Flags) -> Sequence[Ensure]:
        secret = beside(job, SECRETS, _secret(job), data={CONFIG: _encoded(_config(job, port_of(flags, "ssh-port", PORT)))})
        given = bool(flags["ssh-private-key"] and flags["ssh-public-key"])
        if given:
            with_keys(secret, flags["ssh-private-key"], flags["ssh-public-key"])
        return [Ensure(SECRETS, secret, keys=not given)]

    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        name, path = _secret(replica.job), flags["ssh-key-file-path"]
        items = [{"key": key, "path": f".ssh/{key}"} for key in (PRIVATE, PUBLIC, AUTHORIZED, CONFIG)]
        secret = {"secretName": name, "items": items, "defaultMode": 0o600 if path == HOME else 0o644}
        mount = {"name": name, "mountPath": path, "subPath": ".ssh"}
        add_volume(pod, {"name": name, "secret": secret}, mount, all_containers(pod))


def with_keys(secret: Json, private: str, public: str) -> None:
    """Put a key pair, PEM and OpenSSH line, into the Secret."""
    secret["data"] |= {PRIVATE: _encoded(private), PUBLIC: _encoded(public), AUTHORIZED: _encoded(public)}


def _secret(job: Job) -> str:
    return f"{job.metadata.name}-ssh"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _config(job: Job, port: int) -> str:
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task in job.spec.tasks:
        for index in range(len(hosts(job, task))):
            full = host(job, task, index)
            short = full.partition(".")[0] or pod_name(job, task, index)
            lines += [f"Host {short}", f"  HostName {full}", f"  Port {port}"]
    return "\n".join(lines) + "\n"
