"""Volcano's Job and what its controller reads of the pods it made (volcano.sh/apis batch/v1alpha1).

A pod template stays the bytes that it came as: it is decoded for each pod that is made of it, and costs no memory as a tree.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from pumice.ports.cluster import Resource
from pumice.wire.objects import Meta
from pumice.wire.volcano import FLOW, JOBS

JOB_API: Final = f"{JOBS.group}/{JOBS.version}"
JOB_KIND: Final = "Job"

CRON_JOBS: Final = Resource(JOBS.group, "v1alpha1", "cronjobs")
JOB_TEMPLATES: Final = Resource(FLOW, "v1alpha1", "jobtemplates")
FLOW_API: Final = f"{FLOW}/v1alpha1"

PENDING: Final = "Pending"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
ABORTING: Final = "Aborting"
ABORTED: Final = "Aborted"
COMPLETING: Final = "Completing"
COMPLETED: Final = "Completed"
TERMINATING: Final = "Terminating"
TERMINATED: Final = "Terminated"
FAILED: Final = "Failed"

NOTHING: Final = msgspec.Raw(b"{}")


class Policy(Struct, rename="camel", gc=False):
    """The action that follows an event; ``timeout`` is a Go duration after which, if it still holds."""

    action: str = ""
    event: str = ""
    events: list[str] = []
    exit_code: int | None = None
    timeout: str = ""


class DependsOn(Struct, rename="camel", gc=False):
    name: list[str] = []
    iteration: str = ""


class PartitionPolicy(Struct, rename="camel", gc=False):
    total_partitions: int = 0
    partition_size: int = 0
    min_partitions: int = 0
    network_topology: dict[str, Any] | None = None


class Task(Struct, rename="camel", gc=False):
    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    template: msgspec.Raw = NOTHING
    policies: list[Policy] = []
    max_retry: int = 0
    depends_on: DependsOn | None = None
    topology_policy: str = ""
    partition_policy: PartitionPolicy | None = None


class Volume(Struct, rename="camel", gc=False):
    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None


class JobSpec(Struct, rename="camel", gc=False):
    scheduler_name: str = ""
    min_available: int = 0
    tasks: list[Task] = []
    volumes: list[Volume] = []
    policies: list[Policy] = []
    plugins: dict[str, list[str]] = {}
    queue: str = ""
    max_retry: int = 0
    ttl_seconds_after_finished: int | None = None
    priority_class_name: str = ""
    min_success: int | None = None
    network_topology: dict[str, Any] | None = None


class JobState(Struct, rename="camel", gc=False, omit_defaults=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class JobCondition(Struct, rename="camel", gc=False, omit_defaults=True):
    status: str = ""
    last_transition_time: str = ""


class TaskState(Struct, rename="camel", gc=False):
    phase: dict[str, int] = {}


class JobStatus(Struct, rename="camel", gc=False, omit_defaults=True):
    state: JobState = msgspec.field(default_factory=JobState)
    min_available: int = 0
    task_status_count: dict[str, TaskState] = {}
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    version: int = 0
    retry_count: int = 0
    running_duration: str = ""
    controlled_resources: dict[str, str] = {}
    conditions: list[JobCondition] = []


class Job(Struct, rename="camel", gc=False):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def phase(self) -> str:
        return self.status.state.phase


class WrittenJob(Struct, rename="camel", gc=False):
    """The fields that its controller reads of the answer to a status write."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class Terminated(Struct, rename="camel", gc=False):
    exit_code: int = 0
    started_at: str | None = None
    finished_at: str | None = None


class Started(Struct, rename="camel", gc=False):
    started_at: str | None = None


class ContainerState(Struct, rename="camel", gc=False):
    running: Started | None = None
    terminated: Terminated | None = None


class Container(Struct, rename="camel", gc=False):
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodStatus(Struct, rename="camel", gc=False):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    container_statuses: list[Container] = []
    init_container_statuses: list[Container] = []


class JobPod(Struct, rename="camel", gc=False):
    """A pod as the controller of its Job sees it."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def terminating(self) -> bool:
        return bool(self.metadata.deletion_timestamp)


class LabelledPod(Struct, rename="camel", gc=False):
    """A pod that says it is of a Job, and its spec as it came, for whom it is another's."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: msgspec.Raw = NOTHING
    status: PodStatus = msgspec.field(default_factory=PodStatus)
