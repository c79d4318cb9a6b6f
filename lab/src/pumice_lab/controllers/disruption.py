"""PodDisruptionBudgets: how many pods may be evicted now. Pure; evictions are booked by the API server (pods/eviction).

Sources: Kubernetes "Specifying a Disruption Budget for your Application", and pkg/controller/disruption of its source for what
its pages leave open: which pods count by what their controller wants, and how long an eviction without a deletion is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pumice.effects.vocabulary import Patch, Requeue
from pumice.wire.kinds import DISRUPTION_BUDGETS
from pumice.wire.objects import is_ready
from pumice.wire.times import seconds
from pumice_lab.controllers.common import (
    Action,
    Json,
    View,
    controller_of,
    is_deleting,
    share_of,
    with_condition,
)

BELIEVED = 120.0
"""Seconds for which a pod whose eviction was booked counts as going."""
Scale = Callable[[View], tuple[str, int] | None]


def reconcile(budget: View, pods: Sequence[View], scale: Scale, now: float) -> list[Action]:
    """``pods``: those that it selects; ``scale``: of a pod's owner, who that is in the end and how many it wants."""
    meta, before = budget["metadata"], budget.get("status") or {}
    going = {pod["metadata"]["name"]: at for pod in pods if not is_deleting(pod)
             and (at := (before.get("disruptedPods") or {}).get(pod["metadata"]["name"])) and seconds(at) + BELIEVED > now}
    healthy = sum(is_ready(pod) and not is_deleting(pod) and pod["metadata"]["name"] not in going for pod in pods)
    try:
        expected, desired = _counts(budget.get("spec") or {}, pods, scale)
    except LookupError as problem:
        status: Json = {"disruptionsAllowed": 0, "observedGeneration": meta.get("generation", 0)}
        condition = ("False", "SyncFailed", str(problem.args[0]))
    else:
        allowed = max(0, healthy - desired) if expected else 0
        status = {"currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected, "disruptionsAllowed": allowed,
                  "observedGeneration": meta.get("generation", 0)}  # fmt: skip
        condition = ("True", "SufficientPods", "") if allowed else ("False", "InsufficientPods", "")
    status["conditions"] = with_condition(budget, "DisruptionAllowed", *condition, now)
    forgotten = dict.fromkeys((before.get("disruptedPods") or {}).keys() - going.keys())
    actions: list[Action] = []
    if forgotten or any(before.get(key, 0) != value for key, value in status.items()):
        body = {"status": {**status, **({"disruptedPods": forgotten} if forgotten else {})},
                "metadata": {"resourceVersion": meta["resourceVersion"]}}  # fmt: skip
        actions.append(Patch(DISRUPTION_BUDGETS, meta["namespace"], meta["name"], body, meta["uid"], "status"))
    if going:
        actions.append(Requeue(min(map(seconds, going.values())) + BELIEVED - now + 0.1))
    return actions


def _counts(spec: View, pods: Sequence[View], scale: Scale) -> tuple[int, int]:
    """(pods expected, pods that have to be healthy). Raises LookupError where nobody says how many there should be."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if isinstance(least, int):
        return len(pods), least
    expected = sum(dict(_wanted(pod, scale) for pod in pods if controller_of(pod)).values())
    if least is not None:
        return expected, share_of(least, expected, "0", up=True)
    return expected, max(0, expected - share_of(most, expected, "0", up=True)) if most is not None else 0


def _wanted(pod: View, scale: Scale) -> tuple[str, int]:
    found = scale(pod)
    if found is None:
        owner = controller_of(pod) or {}
        raise LookupError(f"{owner.get('kind')} {owner.get('name')}, which owns pod {pod['metadata']['name']}, has no scale")
    return found
