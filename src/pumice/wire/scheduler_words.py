"""The words of ``volcano-scheduler.conf``: its keys, actions, switches, plugins and their arguments (spec volcano-core 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TOP: Final = ("actions", "tiers", "configurations", "metrics")
ACTIONS: Final = frozenset(
    {"enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim"}
)

SWITCHES: Final = (
    "JobOrder", "Hierarchy", "JobReady", "JobPipelined", "TaskOrder", "Preemptable", "Reclaimable", "Preemptive",
    "QueueOrder", "ClusterOrder", "Predicate", "BestNode", "NodeOrder", "TargetJob", "ReservedNodes", "JobEnqueued",
    "Victim", "JobStarving", "Overused", "Allocatable", "HyperNodeOrder", "SubJobReady", "SubJobPipelined",
    "SubJobOrder", "HyperNodeGradient",
)  # fmt: skip
OFF_BY_DEFAULT: Final = frozenset({"Hierarchy", "ClusterOrder"})

# Argument names per plugin; a trailing * stands for any suffix. Empty: the plugin takes none.
PLUGIN_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "priority": (),
    "gang": ("pumice.gangReservation",),
    "conformance": (),
    "drf": (),
    "predicates": (
        "predicate.NodeAffinityEnable", "predicate.NodePortsEnable", "predicate.TaintTolerationEnable",
        "predicate.PodAffinityEnable", "predicate.NodeVolumeLimitsEnable", "predicate.VolumeZoneEnable",
        "predicate.PodTopologySpreadEnable", "predicate.VolumeBindingEnable",
        "predicate.DynamicResourceAllocationEnable", "predicate.CacheEnable", "predicate.GPUSharingEnable",
        "predicate.GPUNumberEnable", "predicate.VGPUEnable", "volumebinding.bindTimeoutSeconds",
        "volumebinding.weight", "volumebinding.shape", "dynamicresources.filterTimeoutSeconds",
    ),
    "proportion": (),
    "nodeorder": (
        "leastrequested.weight", "mostrequested.weight", "balancedresource.weight", "nodeaffinity.weight",
        "podaffinity.weight", "tainttoleration.weight", "imagelocality.weight", "podtopologyspread.weight",
        "pumice.hardPodAffinityWeight",
    ),
    "binpack": ("binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources", "binpack.resources.*"),
    "overcommit": ("overcommit-factor",),
    "deviceshare": (
        "deviceshare.VGPUEnable", "deviceshare.GPUSharingEnable", "deviceshare.GPUNumberEnable",
        "deviceshare.NodeLockEnable", "deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight",
        "deviceshare.KnownGeometriesCMName", "deviceshare.KnownGeometriesCMNamespace",
        "deviceshare.KnowGeometriesCMName", "deviceshare.KnowGeometriesCMNamespace", "deviceshare.GPUExclusiveRules",
        "deviceshare.AscendMindClusterVNPUEnable", "deviceshare.AscendHAMiVNPUEnable", "pumice.*",
    ),
    "capacity": ("ancestorReclaimLevel",), "sla": ("sla-waiting-time",), "resourcequota": (), "usage": ("*",),
    "tdm": ("tdm.revocable-zone.*", "tdm.evict.period"),
    "task-topology": ("task-topology.weight",), "numaaware": ("*",), "cdp": (), "pdb": (), "rescheduling": ("*",),
    "extender": ("*",), "nodegroup": ("strict", "enablePreferredOrder"),
    "resource-strategy-fit": ("resourceStrategyFitWeight", "resources", "sra", "proportional"),
    "network-topology-aware": (
        "weight", "hypernode.binpack.cpu", "hypernode.binpack.memory", "hypernode.binpack.resources",
        "hypernode.binpack.resources.*", "hypernode.binpack.normal-pod.enable", "hypernode.binpack.normal-pod.fading",
        "hypernode.gradient.evict.max-hypernodes",
    ),
}  # fmt: skip
