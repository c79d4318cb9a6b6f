"""Templates of claims for pods whose shares were written as claims: made where they are missing, with their owners."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pumice.apps.service.watches import object_of
from pumice.effects.performer import Performer
from pumice.effects.vocabulary import Create, Event
from pumice.effects.work_queue import WorkQueue
from pumice.ports.cluster import ApiError, Cluster, WatchEvent
from pumice.wire.kinds import RESOURCE_CLAIM_TEMPLATES
from pumice.wire.objects import Meta
from pumice_jobs.apps.controller.job_effects import lasting
from pumice_jobs.controllers import share_claims
from pumice_jobs.controllers.share_claims import SharingPod

log = logging.getLogger("pumice.controller")

KIND = "templates of shares"
REASON = "NoClaimTemplate"
AGAIN = 60.0
"""Seconds after which a pod that still waits for its claims is looked at again."""


@dataclass(slots=True)
class ShareClaims:
    """The controller of ResourceClaims for shares. ``pods`` are those with claims that nobody has made yet, by uid."""

    cluster: Cluster
    performer: Performer
    work: WorkQueue
    pods: dict[str, SharingPod] = field(default_factory=dict)

    def on_pod(self, event: WatchEvent) -> None:
        pod = object_of(SharingPod, event)
        uid = pod.metadata.uid
        try:
            waits = event.type != "DELETED" and bool(share_claims.missing(pod))
        except ValueError as error:
            waits = False
            log.info("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
        if event.type == "DELETED":
            self.performer.recorder.forget(uid)
        if not waits:
            self.pods.pop(uid, None)
            return
        known = self.pods.get(uid)
        self.pods[uid] = pod
        if known is None:
            self.work.add(KIND, uid)

    async def reconcile(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is None:
            return
        for name, share in share_claims.missing(pod).items():
            try:
                problem = await self._make(share_claims.wanted(pod.metadata, name, share))
            except ApiError as error:
                if not lasting(error):
                    raise
                problem = f"ResourceClaimTemplate {name} cannot be made: {error.message}"
            if problem:
                await self._tell(pod.metadata, problem)
        self.work.add_later(KIND, uid, AGAIN)

    async def _make(self, create: Create) -> str:
        """Have the template there, with the pod's workload among its owners; else why not. Raises ApiError."""
        try:
            await self.performer.create(create)
        except ApiError as error:
            if error.code != 409:
                raise
        else:
            return ""
        meta = create.obj["metadata"]
        found = await self.cluster.get(RESOURCE_CLAIM_TEMPLATES, meta["name"], meta["namespace"])
        step = share_claims.shared(found, create)
        if isinstance(step, str):
            return step
        if step is not None:
            await self.performer.patch(step)
        return ""

    async def _tell(self, meta: Meta, problem: str) -> None:
        await self.performer.recorder.write_if_new(Event.on_pod(meta, "Warning", REASON, problem))
