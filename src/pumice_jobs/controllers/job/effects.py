"""What the controller of Jobs wants done, as values; ``apps/controller`` does it, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pumice.effects.vocabulary import Requeue
from pumice.ports.cluster import Resource
from pumice.wire.batch import JobPod, JobStatus

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
class Remove:
    """Delete an object of the Job's own, if it is there."""

    resource: Resource
    name: str


@dataclass(frozen=True, slots=True)
class MakeGroup:
    body: Json


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    name: str
    uid: str
    body: Json


@dataclass(frozen=True, slots=True)
class DropGroup:
    """``in_company``: the Job has ended; the shell may wait for groups of others, and find it by the label of its Job."""

    name: str
    uid: str
    in_company: bool = False


@dataclass(frozen=True, slots=True)
class MakePod:
    task: str
    body: Json


@dataclass(frozen=True, slots=True)
class DropPod:
    """Mark the pod as deleted by the controller, and delete it."""

    pod: JobPod


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """``urgent``: at once; else the shell may wait a moment for what changes next. ``counts``: it only counts pods, and nothing
    follows from that."""

    status: JobStatus
    urgent: bool
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Tell:
    """An event on the Job. Events with words that were said last under this reason are not repeated."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """It is finished for long enough."""


Effect = (
    Ensure | Require | Follow | Remove | MakeGroup | ChangeGroup | DropGroup | MakePod | DropPod | WriteStatus | Tell
    | DeleteJob | Requeue
)  # fmt: skip
