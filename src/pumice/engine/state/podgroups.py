"""What a PodGroup object says, taken over by its job."""

from __future__ import annotations

from pumice.engine.state.interning import NOTHING
from pumice.engine.state.jobs import Job
from pumice.engine.state.resources import vector
from pumice.wire.volcano import PENDING, PodGroup, seconds


def read_group(job: Job, group: PodGroup, priority: int) -> None:
    """Take over what a PodGroup object says; the phase in memory may be ahead of the object."""
    spec = group.spec
    job.group = group
    job.sort_key = None
    job.uid = group.metadata.uid
    created = seconds(group.metadata.creation_timestamp)
    if created != job.created:
        job.created, job.waits_since = created, None
    job.min_available = max(0, spec.min_member)
    job.role_minimum = dict(spec.min_task_member)
    job.min_resources = None if spec.min_resources is None else vector(spec.min_resources)
    job.priority = priority
    job.conditions = {c.type: c for c in group.status.conditions}
    ahead = job.phase not in ("", PENDING) and group.status.phase in ("", PENDING)
    if not ahead:
        job.phase = group.status.phase
    job.weigh()


def drop_group(job: Job) -> None:
    """Its PodGroup is gone: nothing is promised to the pods that are left, and none of them is started."""
    job.group = None
    job.sort_key = None
    job.min_resources, job.phase, job.conditions, job.announced = None, "", NOTHING, ("", "")
    job.whole, job.waits_since = False, None
    job.settle()
    job.weigh()
