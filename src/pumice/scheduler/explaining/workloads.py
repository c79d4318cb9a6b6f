"""Why the pods of a Job, a Deployment or whatever else makes pods run or wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.explain import own_gates
from pumice.scheduler.explaining.groups import GroupView, group_view
from pumice.scheduler.state.waiting import Waiting
from pumice.wire.names import KUBE_SCHEDULER
from pumice.wire.objects import Pod


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """The pods that one object has made. ``waiting``: reasons, to the names of the pods that wait for them."""

    kind: str
    name: str
    pods: int
    ended: int
    nodes: Mapping[str, int]
    """Pods by node."""
    waiting: Mapping[str, tuple[str, ...]]
    groups: tuple[GroupView, ...]
    """Its PodGroups, also those that have no pods yet."""

    @property
    def summary(self) -> str:
        """How many of its pods have a place."""
        placed, ended = sum(self.nodes.values()), f", {self.ended} have ended" if self.ended else ""
        return f"{placed} of {self.pods - self.ended} pods have a place{ended}" if self.pods else "it has no pods"


def explain_workload(
    engine: Engine, kind: str, name: str, pods: Sequence[Pod], groups: Sequence[str], now: float
) -> WorkloadView:
    """Return the view of these pods and PodGroups (by key) after a cycle. The engine should not be used further."""
    engine.cycle(now)
    nodes, waiting, ended = dict[str, int](), dict[str, list[str]](), 0
    for pod in sorted(pods, key=lambda pod: pod.key):
        task = engine.state.tasks.get(pod.metadata.uid)
        node = task.node if task is not None else pod.spec.node_name
        if pod.status.phase in ("Succeeded", "Failed"):
            ended += 1
        elif node:
            nodes[node] = nodes.get(node, 0) + 1
        elif task is not None and task.job is not None:
            waiting.setdefault(Waiting(task.job).of(task).text, []).append(pod.metadata.name)
        else:
            why = "; ".join(own_gates(engine, pod)) or f"its schedulerName is {pod.spec.scheduler_name or KUBE_SCHEDULER!r}"
            waiting.setdefault(why, []).append(pod.metadata.name)
    known = {task.job.key for pod in pods if (task := engine.state.tasks.get(pod.metadata.uid)) is not None and task.job}
    jobs = [engine.state.jobs[key] for key in dict.fromkeys((*groups, *sorted(known))) if key in engine.state.jobs]
    return WorkloadView(
        kind, name, len(pods), ended, dict(sorted(nodes.items())), {why: tuple(names) for why, names in waiting.items()},
        tuple(group_view(engine, job, now) for job in jobs if job.group is not None),
    )  # fmt: skip
