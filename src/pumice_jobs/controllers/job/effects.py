"""Effects of the controller of Jobs; ``apps/controller`` performs them, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pumice.effects.vocabulary import Create, Delete, Event, Patch, Requeue, Severity
from pumice.ports.cluster import Resource
from pumice.wire.batch import JOB_API, JOB_KIND, Job, JobPod, JobStatus

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ensure:
    """Make an object of the Job's own unless it is there. ``keys``: the shell puts a fresh key pair into it first."""

    resource: Resource
    body: Json
    keys: bool = False


@dataclass(frozen=True, slots=True)
class Require:
    """An object that somebody else makes; while it is not there, ``problem`` is told and nothing further is done."""

    resource: Resource
    name: str
    reason: str
    problem: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Bring an object of the Job's own in line (merge patch); ``lost`` is made where it is gone."""

    resource: Resource
    name: str
    body: Json
    lost: Ensure


@dataclass(frozen=True, slots=True)
class DropGroup:
    """Delete the PodGroup of a Job. ``in_company``: the Job has ended; the shell may wait for groups of others, and find it by
    the label of its Job."""

    name: str
    uid: str
    in_company: bool = False


@dataclass(frozen=True, slots=True)
class DropPod:
    """Mark the pod as deleted by the controller, and delete it."""

    pod: JobPod


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write a Job's status. ``urgent``: at once; else the shell may wait a moment for what changes next. ``counts``: it only
    counts pods, and nothing follows from that."""

    status: JobStatus
    urgent: bool
    counts: bool = False


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """It is finished for long enough."""


Effect = Create | Patch | Delete | Event | Requeue | Ensure | Require | Follow | DropGroup | DropPod | WriteStatus | DeleteJob
"""``Create`` makes the PodGroup or a pod, ``Patch`` changes the PodGroup, ``Delete`` removes an object of the Job's own."""


def event(job: Job, type_: Severity, reason: str, message: str) -> Event:
    """An Event on the Job. With words that were said last under this reason it is not repeated."""
    meta = job.metadata
    return Event(JOB_KIND, JOB_API, meta.namespace, meta.name, meta.uid, type_, reason, message)
