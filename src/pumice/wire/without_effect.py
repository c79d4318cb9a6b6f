"""The one table of settings that are read and have no effect yet (docs/reference/without-effect.md).

The parsers of scheduler.conf and of the device ConfigMap warn of it with its line (so ``pumice lint`` finds it and ``--strict``
refuses it), the engine refuses the pods that demand it, the scheduler and the controller write events on the objects, and
docs/reference/without-effect.md is rendered from it. Whoever builds a thing deletes its rows here; nothing else needs to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final

from pumice.ports.cluster import Resource
from pumice.wire import names
from pumice.wire.objects import Pod
from pumice.wire.volcano import Queue

NUMA_POLICY: Final = names.TOPOLOGY_POLICY


class What(StrEnum):
    """The subject of a row."""

    ACTION = "action"
    PLUGIN = "plugin"
    ARGUMENT = "argument"
    KEY = "key"
    DEVICES = "device setting"
    FLAG = "flag"
    GATE = "feature gate"
    POD = "pod"
    QUEUE = "Queue"
    KIND = "kind"


class Shown(StrEnum):
    """The ways in which people are told."""

    WARNING = "warning with its line, finding of `pumice lint`, refused under `--strict`"
    FLAG = "warning at the start, refused under `--strict`"
    WAITS = "the pod waits, and its condition says so; finding of `pumice lint`"
    EVENT = "event on the object; finding of `pumice lint`"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing. ``consequence`` is a clause that follows "it has no effect yet:". """

    what: What
    name: str
    consequence: str
    reported: Shown
    asks: Callable[[Any], bool] = lambda value: True
    """True if an object (a value of a switch, argument, flag or gate) asks for it."""
    path: tuple[str, ...] = ()
    """Where it stands in the object."""
    resource: Resource | None = None

    @property
    def text(self) -> str:
        return f"{self.what.value} {self.name} has no effect yet: {self.consequence}"

    @property
    def field_text(self) -> str:
        """For the object itself, on which the field stands."""
        return f"{self.name} has no effect yet: {self.consequence}"


def _true(value: Any) -> bool:
    return value is True or str(value) in ("1", "t", "T", "TRUE", "true", "True")


def _false(value: Any) -> bool:
    return not _true(value)


def _theirs(configurations: Any) -> bool:
    """Return whether some action is given an argument that nothing reads."""
    return any(
        not str(key).startswith("pumice.") and not (entry.get("name") == names.INIT_PARAMS and key in names.PARAMS_READ)
        for entry in (configurations if isinstance(configurations, list) else ())
        for key in (entry.get("arguments") or () if isinstance(entry, dict) else ())
    )


def _plugins(rows: Mapping[str, str]) -> Iterator[Row]:
    return (Row(What.PLUGIN, name, text, Shown.WARNING) for name, text in rows.items())


ROWS: Final[tuple[Row, ...]] = (
    *_plugins({
        "usage": "nodes take pods by what is requested there, however loaded they are",
        "numaaware": "pods are placed without regard to NUMA nodes; those that demand one wait",
        "rescheduling": "no pod is moved from crowded or idle nodes",
        "extender": "nobody is called: what the extender would filter, score or reclaim is not asked",
    }),
    Row(What.ARGUMENT, "predicate.DynamicResourceAllocationEnable", "claims get devices wherever resource.k8s.io/v1 is served",
        Shown.WARNING, _false),
    Row(What.ARGUMENT, "dynamicresources.filterTimeoutSeconds", "a search for devices is given up after 1,000,000 steps",
        Shown.WARNING),
    Row(What.ARGUMENT, "hypernode.gradient.evict.max-hypernodes", "room is looked for in 16 HyperNodes of each tier",
        Shown.WARNING),
    Row(What.KEY, "metrics", "nothing asks a source of usage", Shown.WARNING, bool),
    Row(What.KEY, "configurations", "of an action's arguments only those that begin with pumice. are read, of init-params three",
        Shown.WARNING, _theirs),

    Row(What.DEVICES, "nvidia.resourcePriorityName", "no resource says whose kernels come first on a card", Shown.WARNING, bool),
    Row(What.DEVICES, "nvidia.overwriteEnv", "containers that ask for nothing keep NVIDIA_VISIBLE_DEVICES", Shown.WARNING, bool),
    Row(What.DEVICES, "vnpus.overwriteEnv", "containers that ask for nothing keep ASCEND_VISIBLE_DEVICES", Shown.WARNING, bool),
    Row(What.DEVICES, "vnpus.runtimeClassName", "no pod is given it; write it in the pods, or make it the node's default runtime",
        Shown.WARNING, bool),

    Row(What.FLAG, "plugins-dir", "no plugin is loaded from it", Shown.FLAG, bool),
    Row(What.FLAG, "lock-object-namespace", "write --leader-elect-resource-namespace", Shown.FLAG, bool),
    Row(What.FLAG, "tls-cert-file", "the pages are served without TLS", Shown.FLAG, bool),
    Row(What.FLAG, "controllers", "which controllers run cannot be chosen", Shown.FLAG, lambda value: value != "*"),
    Row(What.FLAG, "csi-storage", "volumes are always accounted", Shown.FLAG, _false),
    Row(What.FLAG, "priority-class", "priority classes always count", Shown.FLAG, _false),
    Row(What.GATE, "WorkLoadSupport", "pods of workloads get their PodGroups all the same", Shown.FLAG, _false),
    Row(What.GATE, "VolcanoJobSupport", "Volcano's Jobs are looked after all the same", Shown.FLAG, _false),
    Row(What.GATE, "PodDisruptionBudgetsSupport", "PodDisruptionBudgets are read all the same", Shown.FLAG, _false),
    Row(What.GATE, "QueueCommandSync", "Commands on queues are followed all the same", Shown.FLAG, _false),
    Row(What.GATE, "PriorityClass", "priority classes always count", Shown.FLAG, _false),
    Row(What.GATE, "ResourceTopology", "no Numatopology is read", Shown.FLAG, _true),
    Row(What.GATE, "CronVolcanoJobSupport", "CronJobs of Volcano are looked after all the same", Shown.FLAG, _false),
    Row(What.GATE, "CSIStorage", "volumes are always accounted", Shown.FLAG, _false),
    Row(What.GATE, "SchedulingGatesQueueAdmission", "queues open the gates of pods that ask for it all the same", Shown.FLAG,
        _false),

    Row(What.POD, NUMA_POLICY, "no NUMA node is looked at, and the pod demands one", Shown.WAITS,
        lambda pod: pod.metadata.annotations.get(NUMA_POLICY) in ("restricted", "single-numa-node"),
        ("metadata", "annotations", NUMA_POLICY)),
    Row(What.POD, NUMA_POLICY, "no NUMA node is looked at, though the pod prefers one", Shown.EVENT,
        lambda pod: pod.metadata.annotations.get(NUMA_POLICY) == "best-effort", ("metadata", "annotations", NUMA_POLICY)),
    Row(What.QUEUE, "spec.extendClusters", "no job is sent to another cluster", Shown.EVENT,
        lambda queue: bool(queue.spec.extend_clusters), ("spec", "extendClusters")),

    Row(What.KIND, "Numatopology", "pods are placed without regard to NUMA nodes", Shown.EVENT,
        resource=Resource("nodeinfo.volcano.sh", "v1alpha1", "numatopologies", namespaced=False)),
    Row(What.KIND, "ColocationConfiguration", "nodes offer nothing beyond what they say, and nothing is isolated", Shown.EVENT,
        resource=Resource("config.volcano.sh", "v1alpha1", "colocationconfigurations")),
)  # fmt: skip


@cache
def rows(what: What) -> Mapping[str, Row]:
    """The rows about one sort of thing, by name."""
    return {row.name: row for row in ROWS if row.what is what}


_PODS: Final = tuple(row for row in ROWS if row.what is What.POD)  # two values of one annotation are two rows
_POD_NOTES: Final = frozenset(row.path[-1] for row in _PODS if row.path[:2] == ("metadata", "annotations"))
_QUEUES: Final = tuple(rows(What.QUEUE).values())


def asked_by_pod(pod: Pod) -> tuple[Row, ...]:
    """The settings of a pod that have no effect."""
    if _POD_NOTES.isdisjoint(pod.metadata.annotations):
        return ()
    return tuple([row for row in _PODS if row.asks(pod)])


def asked_by_queue(queue: Queue) -> tuple[Row, ...]:
    return tuple([row for row in _QUEUES if row.asks(queue)])


def page() -> str:
    """The table of docs/reference/without-effect.md."""
    lines = ["| what | name | consequence | how it is told |", "|---|---|---|---|"]
    for row in ROWS:
        lines.append(f"| {row.what.value} | `{row.name}` | {row.consequence} | {row.reported.value} |")
    return "\n".join(lines) + "\n"
