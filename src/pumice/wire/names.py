"""Resource names, annotation and label keys, and fixed object names of the wire.

Sources: spec deviceshare-nvidia 2, 4, 5, 12, 16; volcano-core 23, 24; nvidia-device-plugin 8, 10.
"""

from typing import Final

# Extended resources, NVIDIA (defaults; the device ConfigMap can rename the vGPU ones)
VGPU_NUMBER: Final = "volcano.sh/vgpu-number"
VGPU_MEMORY: Final = "volcano.sh/vgpu-memory"
VGPU_CORES: Final = "volcano.sh/vgpu-cores"
VGPU_MEMORY_PERCENTAGE: Final = "volcano.sh/vgpu-memory-percentage"
GPU_MEMORY: Final = "volcano.sh/gpu-memory"
GPU_NUMBER: Final = "volcano.sh/gpu-number"
SAME_ELSEWHERE: Final = {
    "nvidia.com/gpu": VGPU_NUMBER,
    "nvidia.com/gpumem": VGPU_MEMORY,
    "nvidia.com/gpumem-percentage": VGPU_MEMORY_PERCENTAGE,
    "nvidia.com/gpucores": VGPU_CORES,
}
"""What the HAMi project calls the same."""
OTHER_SHARING: Final = {
    VGPU_NUMBER: GPU_NUMBER, VGPU_MEMORY: GPU_MEMORY, GPU_NUMBER: VGPU_NUMBER, GPU_MEMORY: VGPU_MEMORY, VGPU_CORES: "",
}  # fmt: skip
"""The nearest resource of the legacy sharing to one of vGPU, and the reverse; a scheduler has one of the two."""

# On the node
NODE_VGPU_REGISTER: Final = "volcano.sh/node-vgpu-register"
NODE_VGPU_HANDSHAKE: Final = "volcano.sh/node-vgpu-handshake"
NODE_GPU_UNHEALTHY_IDS: Final = "volcano.sh/gpu-unhealthy-ids"
NODE_LOCK_VGPU: Final = "hamivgpu"
NODE_LOCK_GPUSHARE: Final = "gpu"
CORDONED_CARDS: Final = "pumice.io/cordoned-cards"
CARD_TOPOLOGY: Final = "pumice.io/card-topology"
HANDED_OUT: Final = "pumice.io/vgpu-handed-out"

# On the pod, by the user
VGPU_MODE: Final = "volcano.sh/vgpu-mode"
USE_GPU_TYPE: Final = "nvidia.com/use-gputype"
NOUSE_GPU_TYPE: Final = "nvidia.com/nouse-gputype"
USE_GPU_UUID: Final = "volcano.sh/vgpu-use-gpuuuid"
NOUSE_GPU_UUID: Final = "volcano.sh/vgpu-nouse-gpuuuid"
PODGROUP_POLICY: Final = "volcano.sh/vgpu-podgroup-policy"
NODE_POLICY: Final = "pumice.io/node-policy"
CARD_POLICY: Final = "pumice.io/card-policy"

# On the pod, by the scheduler and the node plugin
VGPU_NODE: Final = "volcano.sh/vgpu-node"
VGPU_TIME: Final = "volcano.sh/vgpu-time"
VGPU_IDS: Final = "volcano.sh/vgpu-ids-new"
DEVICES_TO_ALLOCATE: Final = "volcano.sh/devices-to-allocate"
BIND_PHASE: Final = "volcano.sh/bind-phase"
BIND_TIME: Final = "volcano.sh/bind-time"
GPU_INDEX: Final = "volcano.sh/gpu-index"
PREDICATE_TIME: Final = "volcano.sh/predicate-time"
MIRROR: Final = "kubernetes.io/config.mirror"
"""On the API server's picture of a static pod, which the kubelet runs from a file: no scheduler and no plugin serves it."""

# Groups and queues
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
GROUP_NAME_VOLCANO: Final = "scheduling.volcano.sh/group-name"
GROUP_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
DEFAULT_QUEUE: Final = "default"
ROOT_QUEUE: Final = "root"

# Fixed names of installed objects
SCHEDULER_NAME: Final = "volcano"
SYSTEM_NAMESPACE: Final = "volcano-system"
SCHEDULER_CONFIGMAP: Final = "volcano-scheduler-configmap"
SCHEDULER_CONF_KEY: Final = "volcano-scheduler.conf"
DEVICE_CONFIGMAP: Final = "volcano-vgpu-device-config"
DEVICE_CONFIG_NAMESPACE: Final = "kube-system"
DEVICE_CONFIG_KEY: Final = "device-config.yaml"
