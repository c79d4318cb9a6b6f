"""Performs the effects of Jobs on the API server, and records its answers in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec

from pumice.effects.performer import Performer
from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Create, Delete, Event, Patch
from pumice.metrics.text import Histogram
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Resource
from pumice.wire import kinds, volcano
from pumice.wire.batch import Job, JobPod, WrittenJob
from pumice.wire.names import OUT_OF_SYNC
from pumice.wire.objects import convert
from pumice.wire.times import seconds, stamp
from pumice.wire.volcano import PodGroup
from pumice_jobs.apps.controller.job_store import JobStore, Known
from pumice_jobs.controllers.job.effects import DeleteJob, DropGroup, DropPod, Effect, Ensure, Follow, Require, event
from pumice_jobs.controllers.job.group import owner
from pumice_jobs.controllers.job.phases import FINISHED
from pumice_jobs.controllers.job.plugins.ssh import with_keys
from pumice_jobs.controllers.job.status import begun

Json = dict[str, Any]
AT_ONCE = 64
"""Pods of one Job that are made or deleted at the same time."""


@dataclass(slots=True)
class Effects:
    cluster: Cluster
    performer: Performer
    clock: Clock
    store: JobStore
    reporting: Reporting
    keys: Callable[[], tuple[str, str]]
    latency: Histogram

    async def perform(self, known: Known, wanted: Sequence[Effect]) -> None:
        """One after the other, but pods at once."""
        for (_, of_pods), group in groupby(wanted, lambda effect: (type(effect), _is_of_pods(effect))):
            if of_pods:
                await self._pods(known, list(group))
            else:
                for effect in group:
                    await self._one(known, effect)

    async def _one(self, known: Known, effect: Effect) -> None:
        namespace = known.job.metadata.namespace
        match effect:
            case Ensure():
                await self._ensure(known, effect)
            case Require():
                await self._require(known, effect)
            case Follow():
                await self._follow(known, effect)
            case Delete():
                await self.performer.delete(effect)
            case Create():
                await self._make_group(known, effect)
            case Patch():
                group = await self.cluster.patch_as(effect.resource, effect.name, effect.body, namespace, PodGroup)
                self.store.made_group(known, group)
            case DropGroup():
                await self.drop_group(known, effect)
            case Event():
                await self.reporting.report(known, effect)
            case DeleteJob():
                await self._delete_job(known)

    # -- objects beside the pods ----------------------------------------------------------------------------------

    async def _ensure(self, known: Known, effect: Ensure) -> None:
        namespace, name = known.job.metadata.namespace, effect.body["metadata"]["name"]
        body = {**effect.body, "metadata": {**effect.body["metadata"], "ownerReferences": [owner(known.job)]}}
        if effect.keys:
            with_keys(body, *await asyncio.to_thread(self.keys))
        try:
            await self.cluster.create(effect.resource, body, namespace)
        except ApiError as error:
            if error.code != 409:
                await self.reporting.report(known, _not_made(known.job, effect.resource, error.message))
                raise refused(error) from error
            await self._check_owner(known, effect.resource, name)

    async def _check_owner(self, known: Known, kind: Resource, name: str) -> None:
        """Check that what is there under the name is of this Job: what a forerunner left goes with it, and then ours is made."""
        found = await self.cluster.get(kind, name, known.job.metadata.namespace)
        if not _is_of(known.job, found):
            reported = _not_made(known.job, kind, f"{kind.plural} {name} exists and is not of this job")
            await self.reporting.report(known, reported)
            raise ApiError(409, "Conflict", reported.message)

    async def _require(self, known: Known, effect: Require) -> None:
        try:
            await self.cluster.get(effect.resource, effect.name, known.job.metadata.namespace)
        except ApiError as error:
            if error.code == 404:
                await self.reporting.report(known, event(known.job, "Warning", effect.reason, effect.problem))
            raise

    async def _follow(self, known: Known, effect: Follow) -> None:
        try:
            await self.cluster.patch(effect.resource, effect.name, effect.body, known.job.metadata.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            await self._ensure(known, effect.lost)

    async def _make_group(self, known: Known, effect: Create) -> None:
        namespace = known.job.metadata.namespace
        try:
            group = await self.cluster.create_as(volcano.POD_GROUPS, effect.obj, namespace, PodGroup)
        except ApiError as error:
            if error.code != 409:
                reported = event(known.job, "Warning", "PodGroupError", f"Failed to create PodGroup, err: {error.message}")
                await self.reporting.report(known, reported)
                raise refused(error, GroupNotTaken) from error
            group = convert(PodGroup, await self.cluster.get(volcano.POD_GROUPS, effect.obj["metadata"]["name"], namespace))
        self.store.made_group(known, group)

    async def drop_group(self, known: Known, effect: DropGroup) -> None:
        try:
            await self.cluster.delete(volcano.POD_GROUPS, effect.name, known.job.metadata.namespace, uid=effect.uid)
        except ApiError as error:
            if not await self._is_gone(error, volcano.POD_GROUPS, effect.name, known.job.metadata.namespace, effect.uid):
                raise
        self.store.dropped_group(effect.uid)

    async def _delete_job(self, known: Known) -> None:
        """Read it once more: somebody may have started it again."""
        meta = known.job.metadata
        try:
            found = await self.cluster.get(volcano.JOBS, meta.name, meta.namespace)
            phase = ((found.get("status") or {}).get("state") or {}).get("phase")
            if found["metadata"]["uid"] == meta.uid and phase in FINISHED:
                await self.cluster.delete(volcano.JOBS, meta.name, meta.namespace, uid=meta.uid, propagation="Foreground")
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    # -- pods -----------------------------------------------------------------------------------------------------

    async def _pods(self, known: Known, wanted: Sequence[Effect]) -> None:
        """Many at once. All are tried; then the first error counts, and an event names them all."""
        problems: list[ApiError] = []
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(effect: Effect) -> None:
            async with gate:
                try:
                    await (self._make_pod(known, effect) if isinstance(effect, Create) else self._drop_pod(known, effect))
                except ApiError as error:
                    problems.append(error)

        if not self.store.pods_of(known) and not known.status.version:
            created = seconds(known.job.metadata.creation_timestamp)
            self.latency.observe(max(0.0, self.clock.now() - created) * 1000)
        await asyncio.gather(*map(one, wanted))
        if problems:
            making = isinstance(wanted[0], Create)
            reason, doing = ("FailedCreate", "creating") if making else ("FailedDelete", "deleting")
            texts = sorted({error.message for error in problems})
            await self.reporting.report(known, event(known.job, "Warning", reason, f"Error {doing} pods: [{', '.join(texts)}]"))
            worst = next((error for error in problems if lasting(error)), problems[0])
            raise refused(worst) from worst

    async def _make_pod(self, known: Known, effect: Create) -> None:
        namespace, name = known.job.metadata.namespace, effect.obj["metadata"]["name"]
        try:
            pod = await self.cluster.create_as(kinds.PODS, effect.obj, namespace, JobPod)
        except ApiError as error:
            if error.code != 409:
                raise
            answer = await self.cluster.get(kinds.PODS, name, namespace)
            if not _is_of(known.job, answer):
                raise ApiError(409, "Conflict", f"pod {name} exists and is not of this job") from error
            pod = convert(JobPod, answer)
        self.store.made_pod(known, pod)

    async def _drop_pod(self, known: Known, effect: Effect) -> None:
        """Mark it first, so that whoever sees it go knows by whose hand."""
        assert isinstance(effect, DropPod)
        meta = effect.pod.metadata
        try:
            if OUT_OF_SYNC not in meta.annotations:
                body = {"metadata": {"uid": meta.uid, "annotations": {OUT_OF_SYNC: "true"}}}
                await self.cluster.patch(kinds.PODS, meta.name, body, meta.namespace)
            await self.cluster.delete(kinds.PODS, meta.name, meta.namespace, uid=meta.uid)
        except ApiError as error:
            if not await self._is_gone(error, kinds.PODS, meta.name, meta.namespace, meta.uid):
                raise
        self.store.dropped_pod(effect.pod, stamp(self.clock.now()))

    async def make_sure(self, known: Known) -> None:
        """Ask for what only an answer told of: it may have gone while no watch was heard."""
        pods, group = self.store.untold(known)
        namespace = known.job.metadata.namespace
        for pod in pods:
            if not await self._is_there(kinds.PODS, pod.metadata.name, namespace, pod.metadata.uid):
                self.store.on_pod(pod, gone=True)
        if group is not None and not await self._is_there(
            volcano.POD_GROUPS, group.metadata.name, namespace, group.metadata.uid
        ):  # fmt: skip
            self.store.on_group(group, gone=True)
        known.doubted = False

    async def _is_gone(self, error: ApiError, kind: Resource, name: str, namespace: str, uid: str) -> bool:
        """Return whether a refusal means that there is no such object any more: none, or another one of its name."""
        return error.code in (404, 409, 422) and not await self._is_there(kind, name, namespace, uid)

    async def _is_there(self, kind: Resource, name: str, namespace: str, uid: str) -> bool:
        try:
            found = await self.cluster.get(kind, name, namespace)
        except ApiError as refusal:
            if refusal.code == 404:
                return False
            raise
        return bool(found["metadata"]["uid"] == uid)


def _is_of_pods(effect: Effect) -> bool:
    return isinstance(effect, DropPod) or (isinstance(effect, Create) and effect.resource == kinds.PODS)


def _not_made(job: Job, kind: Resource, cause: str) -> Event:
    """Return why an object beside the pods is not there."""
    if kind == kinds.PERSISTENT_VOLUME_CLAIMS:
        return event(job, "Warning", "PVCError", f"Failed to create PVC, err: {cause}")
    return event(job, "Warning", "PluginError", f"Execute plugin when job add failed, err: {cause}")


def _is_of(job: Job, found: Json) -> bool:
    return any(each.get("uid") == job.metadata.uid for each in found["metadata"].get("ownerReferences") or ())


# -- Reports about a Job: its status, and Events on it ---------------------------------------------------------------



@dataclass(slots=True)
class Reporting:
    cluster: Cluster
    recorder: EventRecorder
    store: JobStore

    async def write_status(self, known: Known) -> None:
        """Write what was decided, upon what is there. Where somebody wrote meanwhile, the Job is read again and the error is
        raised: what was decided may not hold any more."""
        meta, decided = known.job.metadata, known.status
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": difference(msgspec.to_builtins(known.written), msgspec.to_builtins(decided)),
        }
        try:
            answer = await self.cluster.patch_as(volcano.JOBS, meta.name, body, meta.namespace, WrittenJob, subresource="status")
        except ApiError as error:
            if error.code == 409:
                await self._read_again(known)
            raise refused(error) from error
        known.sent = decided
        known.written = begun(answer)
        if known.job.metadata.generation == answer.metadata.generation:
            known.job = msgspec.structs.replace(known.job, metadata=answer.metadata)

    async def _read_again(self, known: Known) -> None:
        meta = known.job.metadata
        found = await self.cluster.get(volcano.JOBS, meta.name, meta.namespace)
        if found["metadata"]["uid"] == meta.uid:
            known.sent = None
            known.decide(known.written)  # what was not written is decided anew
            self.store.take_job(msgspec.json.decode(msgspec.json.encode(found), type=Job, strict=False))

    async def report(self, known: Known, reported: Event, *, again: bool = False) -> None:
        """An event on the Job, unless it was the last one of its reason. That one is lost changes nothing."""
        if not again and known.reported.get(reported.reason) == reported.message:
            return
        known.reported[reported.reason] = reported.message
        await self.recorder.try_to_write(reported)


def difference(before: Json, after: Json) -> Json:
    """The merge patch from one object to the other."""
    found: Json = {key: None for key in before if key not in after}
    for key, value in after.items():
        was = before.get(key)
        if isinstance(was, dict) and isinstance(value, dict):
            if changed := difference(was, value):
                found[key] = changed
        elif value != was:
            found[key] = value
    return found


# -- Answers of the API server that waiting alone does not change ----------------------------------------------------


class NotTaken(ApiError):
    """An answer that will not change by waiting alone: the object is invalid, or forbidden."""

    action = "SyncJob"


class GroupNotTaken(NotTaken):
    """That answer to its PodGroup."""


def lasting(error: ApiError) -> bool:
    """Return whether an error is such an answer; conflicts, outages and overload are not."""
    return 400 <= error.code < 500 and error.code not in (401, 404, 408, 409, 410, 429)


def refused(error: ApiError, kind: type[NotTaken] = NotTaken) -> ApiError:
    """The error as such an answer, where it is one."""
    if not lasting(error):
        return error
    return kind(error.code, error.reason, error.message, error.retry_after)
