"""Admission of PodGroups."""

from __future__ import annotations

from pumice.wire.names import DEFAULT_QUEUE, QUEUE_NAME
from pumice.wire.volcano import OPEN
from pumice_jobs.admission.jobs import state_of
from pumice_jobs.admission.review import Answer, Patch, Request, Settings, View, put
from pumice_jobs.controllers.job.validation import TWO_TIERS, both_tiers


def mutate(request: Request, view: View, settings: Settings) -> Answer:
    """A group that names no queue goes to that of its namespace."""
    if (request.object.get("spec") or {}).get("queue", DEFAULT_QUEUE) != DEFAULT_QUEUE:
        return Answer()
    namespace = view.namespace(request.namespace) or {}
    queue = (namespace.get("metadata", {}).get("annotations") or {}).get(QUEUE_NAME)
    patch = Patch()
    if queue:
        put(patch, "/spec/queue", queue)
    return Answer(patch=patch)


def validate(request: Request, view: View, settings: Settings) -> Answer:
    spec = request.object.get("spec") or {}
    name = spec.get("queue") or DEFAULT_QUEUE
    queue = view.queue(name)
    if queue is None:
        return Answer(f'unable to find queue: queue.scheduling.volcano.sh "{name}" not found')
    if (state := state_of(queue)) != OPEN:
        return Answer(f"can only submit PodGroup to queue with state `Open`, queue `{name}` status is `{state}`.")
    topologies = [spec.get("networkTopology"), *(policy.get("networkTopology") for policy in spec.get("subGroupPolicy") or ())]
    return Answer(f"{TWO_TIERS}." if any(both_tiers(topology) for topology in topologies) else "")
