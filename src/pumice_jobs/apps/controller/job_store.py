"""Jobs as the watches and our own writes tell of them, and the changes that have not been looked at yet.

Pods and groups are held by the object cache of all controllers; of a Job more is known than what was read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec

from pumice.apps.service.watches import object_of
from pumice.effects.object_cache import ObjectCache, is_older
from pumice.ports.cluster import WatchEvent
from pumice.wire import names
from pumice.wire.batch import JOB_API, JOB_KIND, Job, JobPod, JobStatus
from pumice.wire.objects import Meta
from pumice.wire.volcano import PENDING, PodGroup
from pumice_jobs.controllers.job import group as groups
from pumice_jobs.controllers.job.defaults import completed
from pumice_jobs.controllers.job.group import what_it_lacks
from pumice_jobs.controllers.job.phases import FINISHED
from pumice_jobs.controllers.job.reconcile import View, problem_of
from pumice_jobs.controllers.job.requests import (
    POD_EVICTED,
    POD_PENDING,
    UNKNOWN_GROUP,
    Delayed,
    Request,
    events,
    speaks_of,
)
from pumice_jobs.controllers.job.status import begun

Json = dict[str, Any]
CROWD = 50
"""Pods of a Job from which on it is looked at less often than each of them changes."""
PER_POD, LONGEST = 0.0002, 0.2
"""Seconds to wait for further changes, for each of its pods, and at most."""


@dataclass(slots=True)
class Known:
    """One Job. ``job`` has its defaults, and as its status the one that was decided last, which may not be written yet."""

    job: Job
    written: JobStatus
    """The status that the API server has."""
    sent: JobStatus | None = None
    """The status that was written last: an API server that keeps less of it is not written to again and again."""
    group_spec: Json | None = None
    problem: str = ""
    """These two follow from the Job as it is written, and are worked out once."""
    requests: deque[Request] = field(default_factory=deque)
    delayed: list[Delayed] = field(default_factory=list)
    due: float | None = None
    """When a status that is not urgent is written."""
    latest: float = 0.0
    """And when at the latest, whatever else there is to do."""
    reported: dict[str, str] = field(default_factory=dict)
    """The words last said in an event, by reason."""
    failures: int = 0
    """Refusals in a row that time alone does not mend."""
    looked_at: bool = False
    """True when this controller has reconciled it: from then on changes of its pods are events."""
    doubted: bool = False
    """True while something that only an answer told of may have gone without a word."""
    bereft: bool = False
    """True since its PodGroup vanished, or a pod that had not run: the Job may have gone while no watch was heard."""
    at_rest: bool = False
    """True when the rules wanted nothing when they were last asked, and nothing was heard since: only time may bring a write."""

    @property
    def status(self) -> JobStatus:
        return self.job.status

    @property
    def unwritten(self) -> bool:
        return self.status not in (self.written, self.sent)

    def decide(self, status: JobStatus) -> None:
        self.job = msgspec.structs.replace(self.job, status=status)
        self.at_rest = False


@dataclass(slots=True)
class JobStore:
    """The Jobs and their pods, as watched. ``changed`` is told the key of a Job that must be looked at, and how many seconds
    that may wait."""

    changed: Callable[[str, float], None]
    jobs: dict[str, Known] = field(default_factory=dict)
    """By namespace and name."""
    priorities: dict[str, int] = field(default_factory=dict)
    """Values of the priority classes."""
    _keys: dict[str, str] = field(default_factory=dict)
    """Uid of a Job to its key."""
    _pods: ObjectCache[JobPod] = field(default_factory=lambda: ObjectCache(attrgetter("name")))
    _groups: ObjectCache[PodGroup] = field(default_factory=lambda: ObjectCache(attrgetter("name")))
    _untold: dict[str, str] = field(default_factory=dict)
    """Uid of what an answer told of, and no watch yet, to that of its Job."""

    def view(self, known: Known, now: float) -> View:
        if known.group_spec is None:
            known.problem = problem_of(known.job)
            known.group_spec = {} if known.problem else groups.spec(known.job, self.priorities)
        uid, evicted = known.job.metadata.uid, {}
        if known.delayed:
            evicted = {each.request.pod: each.request.since for each in known.delayed if each.request.event == POD_EVICTED}
        return View(known.job, self._pods.owned(uid), self._group_of(uid), known.group_spec, known.problem, now, evicted)

    def pods_of(self, known: Known) -> Mapping[str, JobPod]:
        return self._pods.owned(known.job.metadata.uid)

    def _group_of(self, uid: str) -> PodGroup | None:
        return next(iter(self._groups.owned(uid).values()), None)

    # -- what the watches say -------------------------------------------------------------------------------------

    def on_job(self, event: WatchEvent) -> None:
        job = object_of(Job, event)
        known = self.jobs.get(job.key)
        if event.type == "DELETED":
            if known is not None and known.job.metadata.uid == job.metadata.uid:
                self._forget(known)
            return
        if known is not None and known.looked_at and _is_the_answer(job.metadata, known.job.metadata):
            return
        echo = known is not None and known.looked_at and _is_echo(job, known)
        self.take_job(job)
        if not echo:
            self._heard(job.key)

    def drop_job(self, known: Known) -> None:
        """The API server has it no more, whatever the watch will tell."""
        if self.jobs.get(known.job.key) is known:
            self._forget(known)

    def take_job(self, job: Job) -> None:
        """A Job as it is now: by a watch, or because it was read."""
        job = msgspec.structs.replace(job, status=begun(job))
        known = self.jobs.get(job.key)
        if known is not None and known.job.metadata.uid != job.metadata.uid:
            self._forget(known)
            known = None
        if known is None:
            self.jobs[job.key] = Known(completed(job), job.status)
            self._keys[job.metadata.uid] = job.key
        elif not _is_known(job.metadata, known.job.metadata):
            decided = known.status
            if job.status != known.written:  # somebody else wrote it, or this is the echo of our own hand
                decided, known.sent = job.status, None
            if job.metadata.generation != known.job.metadata.generation:
                known.group_spec, known.failures = None, 0
                known.reported.clear()
            known.job, known.written = completed(msgspec.structs.replace(job, status=decided)), job.status

    def on_pod(self, pod: JobPod, *, gone: bool) -> bool:
        """Return whether it is of a Job."""
        meta = pod.metadata
        self._untold.pop(meta.uid, None)
        before = self._pods.get(meta.uid)
        owner = _owning_job(meta) or (_owning_job(before.metadata) if gone and before is not None else "")
        if not owner:
            return False
        if gone:
            self._pods.drop(meta.uid)
            if before is None:
                return True
        elif not self._pods.put(pod):
            return True
        known, mine = self._job_of(owner), self._pods.owned(owner)
        if known is None:
            return True
        if gone and before is not None and before.status.phase in ("", "Pending"):
            known.bereft = True
        if known.looked_at:
            last = pod if gone and meta.annotations else before  # a list that is told as a difference tells of names only
            known.requests.extend(events(known.job, last if gone else before, None if gone else pod, mine.values()))
        if before is not None and not gone and not known.requests and _reads_alike(before, pod):
            return True
        self._heard(known.job.key, min(LONGEST, len(mine) * PER_POD) if len(mine) > CROWD else 0.0)
        return True

    def on_group(self, group: PodGroup, *, gone: bool) -> None:
        """A PodGroup, of whomever it is."""
        owner, uid = _owning_job(group.metadata), group.metadata.uid
        self._untold.pop(uid, None)
        if gone:
            there = self._groups.drop(uid)
            owner = owner or (_owning_job(there.metadata) if there is not None else "")
            if (known := self._job_of(owner)) is not None:
                if known.job.phase in FINISHED:
                    return  # it went because its Job has ended
                known.bereft = True
        else:
            before = self._group_of(owner)
            if not owner or not self._groups.put(group):
                return
            self._heed(owner, before, group)
            if before is not None and _asks_alike(before, group):
                return
        if key := self._keys.get(owner, ""):
            self._heard(key)

    def listed(self) -> None:
        """A list is complete. What it did not tell of, and no watch did before, may have been made and gone in between."""
        self._untold = {uid: owner for uid, owner in self._untold.items() if owner in self._keys}
        for owner in set(self._untold.values()):
            if (known := self._job_of(owner)) is not None:
                known.doubted = True
                self._heard(known.job.key)

    def untold(self, known: Known) -> tuple[list[JobPod], PodGroup | None]:
        """Return the pods and the group of a Job of which only an answer told."""
        group = self._group_of(known.job.metadata.uid)
        pods = [pod for pod in self.pods_of(known).values() if pod.metadata.uid in self._untold]
        return pods, group if group is not None and group.metadata.uid in self._untold else None

    def _heed(self, owner: str, before: PodGroup | None, group: PodGroup) -> None:
        known = self._job_of(owner)
        was = before.status.phase if before is not None else ""
        if known is not None and known.looked_at and group.status.phase == UNKNOWN_GROUP != was:
            known.requests.append(Request(UNKNOWN_GROUP, version=known.status.version))

    def _job_of(self, uid: str) -> Known | None:
        """The Job of that uid."""
        return self.jobs.get(self._keys.get(uid, ""))

    def _heard(self, key: str, pause: float = 0.0) -> None:
        """Something is new that the Job looks at."""
        if (known := self.jobs.get(key)) is not None:
            known.at_rest = False
        self.changed(key, pause)

    def _forget(self, known: Known) -> None:
        self.jobs.pop(known.job.key, None)
        self._keys.pop(known.job.metadata.uid, None)
        self._groups.drop_owned(known.job.metadata.uid)
        self._pods.drop_owned(known.job.metadata.uid)

    # -- what our writes answered ---------------------------------------------------------------------------------

    def made_pod(self, known: Known, pod: JobPod) -> None:
        mine = self._pods.owned(known.job.metadata.uid)
        if pod.metadata.name in mine or not self._pods.put(pod):
            return
        self._untold[pod.metadata.uid] = known.job.metadata.uid
        if speaks_of(known.job, POD_PENDING):  # the watch will tell nothing new of it
            known.requests.extend(events(known.job, None, pod, self.pods_of(known).values()))
            self._heard(known.job.key)

    def dropped_pod(self, pod: JobPod, now: str) -> None:
        """It is being deleted; the watch says when it is gone."""
        if (found := self._pods.get(pod.metadata.uid)) is not None:
            meta = msgspec.structs.replace(found.metadata, deletion_timestamp=found.metadata.deletion_timestamp or now)
            self._pods.put(msgspec.structs.replace(found, metadata=meta))

    def made_group(self, known: Known, group: PodGroup) -> None:
        there = self._group_of(known.job.metadata.uid)
        if self._groups.put(group) and there is None:
            self._untold[group.metadata.uid] = known.job.metadata.uid

    def dropped_group(self, uid: str) -> None:
        self._groups.drop(uid)


def _owning_job(meta: Meta) -> str:
    """Uid of the Job that controls an object; empty where none does."""
    return next((owner.uid for owner in meta.owner_references
                 if owner.controller and owner.kind == JOB_KIND and owner.api_version == JOB_API), "")  # fmt: skip


def _is_echo(job: Job, known: Known) -> bool:
    """Return whether a Job is as our own hand has written it, or is writing it just now."""
    now, was = job.metadata, known.job.metadata
    alike = (now.uid, now.generation, now.deletion_timestamp) == (was.uid, was.generation, was.deletion_timestamp)
    return alike and begun(job) in (known.written, known.status)


def _reads_alike(before: JobPod, pod: JobPod) -> bool:
    """Return whether nothing is new of a pod that its Job looks at; that it is bound is not."""
    was, now = before.metadata, pod.metadata
    if before.status != pod.status or was.deletion_timestamp != now.deletion_timestamp or was.labels != now.labels:
        return False
    return all(was.annotations.get(key) == now.annotations.get(key) for key in (names.OUT_OF_SYNC, names.JOB_VERSION))


def _asks_alike(before: PodGroup, group: PodGroup) -> bool:
    """Return whether nothing is new of a group that its Job looks at: neither how many pods run, nor that it is scheduled."""
    was, now = before.metadata, group.metadata
    if (was.uid, was.deletion_timestamp, was.labels, before.spec) != (now.uid, now.deletion_timestamp, now.labels, group.spec):
        return False
    if UNKNOWN_GROUP in (before.status.phase, group.status.phase) or what_it_lacks(before) != what_it_lacks(group):
        return False
    return (before.status.phase in ("", PENDING)) == (group.status.phase in ("", PENDING))


def _is_known(meta: Meta, by: Meta) -> bool:
    """Return whether an object is known as it was then, or as it is since: an answer may have told before the watch did."""
    return _is_the_answer(meta, by) or is_older(meta, by)


def _is_the_answer(meta: Meta, by: Meta) -> bool:
    return (meta.uid, meta.resource_version) == (by.uid, by.resource_version)
