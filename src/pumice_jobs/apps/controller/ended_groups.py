"""PodGroups of Jobs that have ended: nobody waits for them to go, so those of many Jobs go by one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pumice.effects.work_queue import WorkQueue
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import names, volcano
from pumice_jobs.apps.controller.job_effects import lasting
from pumice_jobs.apps.controller.job_store import JobStore, Known
from pumice_jobs.controllers.job.effects import DropGroup

KIND = "groups of ended jobs"
COMPANY, LONGER = 2.0, 10.0
"""Seconds for which a group waits for others, and longer while there are groups and pods to make."""
AT_MOST = 256
"""Groups that one request names; each takes 37 bytes of its address."""

Waiting = dict[str, tuple[Known, DropGroup]]
"""By the Job's uid."""


@dataclass(slots=True)
class EndedGroups:
    """The PodGroups whose pods have ended. ``drop`` deletes one group by its name."""

    cluster: Cluster
    work: WorkQueue
    store: JobStore
    drop: Callable[[Known, DropGroup], Awaitable[None]]
    _waiting: dict[str, Waiting] = field(default_factory=dict)
    """By namespace."""

    def add(self, known: Known, group: DropGroup) -> None:
        meta = known.job.metadata
        waiting = self._waiting.setdefault(meta.namespace, {})
        if not waiting:
            self.work.add_later(KIND, meta.namespace, COMPANY, put_off=LONGER)
        waiting[meta.uid] = (known, group)

    async def reconcile(self, namespace: str) -> None:
        """Delete what waits in a namespace. What fails waits on, and keeps none of the others."""
        waiting, failed = self._waiting.get(namespace, {}), list[ApiError]()
        found = list(waiting.items())
        for start in range(0, len(found), AT_MOST):
            some = dict(found[start : start + AT_MOST])
            gone = await self._delete_together(namespace, some)
            for uid, (known, group) in some.items():
                try:
                    if group.uid in gone:
                        self.store.dropped_group(group.uid)
                    else:
                        await self.drop(known, group)
                    del waiting[uid]
                except ApiError as error:
                    failed.append(error)
        if failed:
            raise failed[0]
        if waiting:
            self.work.add_later(KIND, namespace, COMPANY, put_off=LONGER)
        else:
            self._waiting.pop(namespace, None)

    async def _delete_together(self, namespace: str, some: Waiting) -> set[str]:
        """The uids of the groups that went; none where the server will not, or would have to for a single one."""
        if len(some) == 1:
            return set()
        selector = f"{names.JOB_UID} in ({','.join(some)})"
        try:
            answer = await self.cluster.delete_collection(volcano.POD_GROUPS, namespace, label_selector=selector)
        except ApiError as error:
            if lasting(error):  # no right to it, or an address that is too long for what stands in between
                return set()
            raise
        return {item["metadata"]["uid"] for item in answer.get("items") or ()}
