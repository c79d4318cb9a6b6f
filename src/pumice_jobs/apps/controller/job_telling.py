"""Reports about a Job: its status, and Events on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Event
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import volcano
from pumice.wire.batch import Job, WrittenJob
from pumice_jobs.apps.controller.job_refusals import refused
from pumice_jobs.apps.controller.job_store import JobStore, Known
from pumice_jobs.controllers.job.status import begun

Json = dict[str, Any]


@dataclass(slots=True)
class Telling:
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

    async def tell(self, known: Known, told: Event, *, again: bool = False) -> None:
        """An event on the Job, unless it was the last one of its reason. That one is lost changes nothing."""
        if not again and known.told.get(told.reason) == told.message:
            return
        known.told[told.reason] = told.message
        await self.recorder.try_to_write(told)


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
