"""Names of HAMi's that differ from Volcano's and ours, and names that only one of them has.

HAMi: docs/config.md, charts/hami (scheduler/device-configmap.yaml, scheduler/webhook.yaml) and pkg/device/nvidia/device.go of
Project-HAMi/HAMi; for chips Volcano pkg/scheduler/api/devices/config/vnpu.go, Volcano pkg/scheduler/api/devices/ascend/hami.
Volcano's and ours: Volcano pkg/scheduler/api/devices/config, Volcano pkg/scheduler/api/devices/nvidia/vgpu.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pumice.wire import names


class To(StrEnum):
    """The target of a translation: ours are Volcano's and more."""

    PUMICE = "pumice"
    VOLCANO = "volcano"
    HAMI = "hami"
    CLAIMS = "claims"
    """No other words, but another way to ask: by ResourceClaimTemplates of our driver's class."""


PRIORITY: Final = f"{names.NVIDIA_DOMAIN}/priority"
NUMA_BIND: Final = f"{names.NVIDIA_DOMAIN}/numa-bind"
USE_UUID: Final = f"{names.NVIDIA_DOMAIN}/use-gpuuuid"
NOUSE_UUID: Final = f"{names.NVIDIA_DOMAIN}/nouse-gpuuuid"
CHIPS: Final = f"{names.HUAWEI}Ascend"
"""Chips have the same names everywhere."""

RESOURCES: Final[Mapping[str, str]] = names.SAME_ELSEWHERE
ANNOTATIONS: Final[Mapping[str, str]] = {
    USE_UUID: names.USE_GPU_UUID,
    NOUSE_UUID: names.NOUSE_GPU_UUID,
    f"{names.NVIDIA_DOMAIN}/vgpu-mode": names.VGPU_MODE,
    f"{names.HAMI_DOMAIN}/node-scheduler-policy": names.NODE_POLICY,
    f"{names.HAMI_DOMAIN}/gpu-scheduler-policy": names.CARD_POLICY,
}
VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    names.VGPU_MODE: ("hami-core", "mig"), names.NODE_POLICY: ("binpack", "spread"), names.CARD_POLICY: ("binpack", "spread"),
}  # fmt: skip
"""Words that mean the same on both sides; other values stay where they are."""

UNITS: Final[Mapping[str, str]] = {
    names.VGPU_NUMBER: "how many cards; a share of each",
    names.VGPU_MEMORY: "MiB of each card in both, times the factor of the device ConfigMap",
    names.VGPU_MEMORY_PERCENTAGE: "per cent of each card's memory in both",
    names.VGPU_CORES: "per cent of each card's time in both",
    names.USE_GPU_UUID: "the same list; a card that is in both lists is denied here",
    names.NOUSE_GPU_UUID: "the same list; HAMi looks at it only without a list of cards to use",
    names.VGPU_MODE: "the same values",
    names.NODE_POLICY: "the same values",
    names.CARD_POLICY: "the same values",
}

CONFIG_KEYS: Final[Mapping[str, str]] = {"memoryFactor": "gpuMemoryFactor"}
"""Of section ``nvidia`` of the device ConfigMap."""

FIRST: Final = "no resource says whose kernels come first; the variable asks for it, and a PriorityClass above 0 grants it"
NOT_FIRST: Final = "whose kernels come behind is who does not ask to come first"
LOST: Final[Mapping[str, str]] = {
    PRIORITY: "nobody offers it, and a pod that asks for it never starts; write CUDA_TASK_PRIORITY=0 into the container's "
    "environment to come first, and give the pod a PriorityClass above 0, which grants it",
    NUMA_BIND: "no pod is kept to the cards of one NUMA node by an annotation",
    f"{names.HAMI_DOMAIN}/gpu-scheduler-policy": "only binpack and spread are known; the cluster's policy counts",
    f"{names.HAMI_DOMAIN}/node-scheduler-policy": "only binpack and spread are known; the cluster's policy counts",
    f"{names.NVIDIA_DOMAIN}/vgpu-mode": "only hami-core and mig are known; the pod may go to nodes of any mode",
}
LOST_KEYS: Final[Mapping[str, str]] = {
    "preConfiguredDeviceMemory": "the driver is asked; a node's own entry preconfigureddevicememory is read",
    "enableNumaTopology": "a node's own entry enablenumatopology is read",
    "gpuCorePolicy": "no container is given it; write GPU_CORE_UTILIZATION_POLICY into its environment",
    "libCudaLogLevel": "a node's own entry libcudaloglevel is read",
    "runtimeClassName": "no pod is given it; write it into the pods, or make it the nodes' default runtime",
    "migProfileAllowlist": "cards in MIG mode are cut by knownMigGeometries, else by NVIDIA's own tables",
    "resourcePriorityName": "no resource says whose kernels come first on a card",
    "overwriteEnv": "containers that ask for nothing keep NVIDIA_VISIBLE_DEVICES; apply tenant-void.yml",
}
"""Keys of the device ConfigMap's section of cards."""
_ONLY_PUMICE: Final[Mapping[str, str]] = dict.fromkeys(("migPlacements", "bursts"), "only Pumice reads it")
LOST_KEYS_AT_VOLCANO: Final[Mapping[str, str]] = {**LOST_KEYS, **_ONLY_PUMICE}
LOST_KEYS_AT_HAMI: Final[Mapping[str, str]] = {
    **_ONLY_PUMICE, "knownMigGeometries": "HAMi of today cuts cards by migProfileAllowlist",
}  # fmt: skip
KUBE_SCHEDULER_CONF: Final = "KubeSchedulerConfiguration"
"""The kind of the document by which kube-scheduler asks HAMi's extender."""
WRITTEN: Final = tuple(f"{names.HAMI_DOMAIN}/{word}" for word in (
    "vgpu-node", "vgpu-time", "vgpu-devices-to-allocate", "vgpu-devices-allocated", "bind-phase", "bind-time"))  # fmt: skip
"""By HAMi's scheduler on running pods."""
OTHER_VENDORS: Final = ("cambricon.com", "hygon.com", "iluvatar.ai", "metax-tech.com", "enflame.com", "mthreads.com",
                        "kunlunxin.com", "aws.amazon.com", "amd.com", "vastaitech.com", "birentech.com")  # fmt: skip
LOST_AT_HAMI: Final[Mapping[str, str]] = {
    names.PODGROUP_POLICY: "pods of one group may share a card",
    names.GPU_MEMORY: "HAMi knows no legacy sharing; write the amount as vGPU memory",
    names.GPU_NUMBER: "HAMi knows no legacy sharing; write the number as vGPUs",
    names.QUEUE_NAME: "HAMi knows no queues",
    names.GROUP_NAME: "HAMi knows no gangs: the pods start one by one",
    names.GROUP_NAME_VOLCANO: "HAMi knows no gangs: the pods start one by one",
}
DEVICE_MAPS: Final = "scheduler-device"
"""The end of the name of HAMi's device ConfigMap, before which the release's name stands."""
NODE_MAPS: Final = "device-plugin"
"""The same of the ConfigMap of its nodes."""
HAMI_NODE_MAP: Final = f"hami-{NODE_MAPS}"
