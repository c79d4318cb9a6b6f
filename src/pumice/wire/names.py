"""Resource names, annotation and label keys, and fixed object names of the wire.

Sources: Volcano pkg/scheduler/api/devices/config, Volcano pkg/scheduler/api/devices/nvidia/vgpu, Volcano
pkg/scheduler/api/devices/util.go, Volcano pkg/scheduler/api/devices/nvidia/gpushare, Volcano installer/helm/chart,
volcano.sh/apis, HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/register.go, HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu.
"""

from typing import Final

DOMAIN: Final = "volcano.sh"
NVIDIA_DOMAIN: Final = "nvidia.com"
OUR_DOMAIN: Final = "pumice.io"
CLAIM_DRIVER: Final = "gpu.pumice.io"
"""The driver of claims for cards, and the domain of its devices' attributes."""
NPU_CLAIM_DRIVER: Final = "npu.pumice.io"
HAMI_CLAIM_DRIVER: Final = "hami-core-gpu.project-hami.io"
"""HAMi's driver of claims, and its class: ours bears its name where HAMi's shape is asked for."""
CLAIM_PARAMETERS: Final = "resource.nvidia.com/v1beta1"
"""Opaque parameters of claims that it reads (NVIDIA k8s-dra-driver-gpu)."""
HAMI_DOMAIN: Final = "hami.io"
SCHEDULING_GROUP: Final = "scheduling.k8s.io"
VOLCANO_GROUP: Final = "scheduling.volcano.sh"
DOMAINS: Final = (DOMAIN, OUR_DOMAIN, NVIDIA_DOMAIN, "huawei.com", HAMI_DOMAIN, SCHEDULING_GROUP)
"""Domains of annotations and labels that say something about devices, groups and queues."""

# Extended resources, NVIDIA (defaults; the device ConfigMap can rename the vGPU ones)
VGPU_NUMBER: Final = "volcano.sh/vgpu-number"
VGPU_MEMORY: Final = "volcano.sh/vgpu-memory"
VGPU_CORES: Final = "volcano.sh/vgpu-cores"
VGPU_MEMORY_PERCENTAGE: Final = "volcano.sh/vgpu-memory-percentage"
GPU_MEMORY: Final = "volcano.sh/gpu-memory"
GPU_NUMBER: Final = "volcano.sh/gpu-number"
WHOLE_GPU: Final = "nvidia.com/gpu"
"""A whole card of NVIDIA's own plugin; a share of one in HAMi's words."""
SAME_ELSEWHERE: Final = {
    WHOLE_GPU: VGPU_NUMBER,
    "nvidia.com/gpumem": VGPU_MEMORY,
    "nvidia.com/gpumem-percentage": VGPU_MEMORY_PERCENTAGE,
    "nvidia.com/gpucores": VGPU_CORES,
}
"""The same in HAMi's words."""
OTHER_SHARING: Final = {
    VGPU_NUMBER: GPU_NUMBER, VGPU_MEMORY: GPU_MEMORY, GPU_NUMBER: VGPU_NUMBER, GPU_MEMORY: VGPU_MEMORY, VGPU_CORES: "",
}  # fmt: skip
"""The nearest resource of the legacy sharing to one of vGPU, and the reverse; a scheduler has one of the two."""

HUAWEI: Final = "huawei.com/"

# On the node
NODE_VGPU_REGISTER: Final = "volcano.sh/node-vgpu-register"
NODE_VGPU_HANDSHAKE: Final = "volcano.sh/node-vgpu-handshake"
NODE_GPU_UNHEALTHY_IDS: Final = "volcano.sh/gpu-unhealthy-ids"
NODE_NPU_REGISTER: Final = "hami.io/node-register-"
"""And the common word of the model behind it (Volcano pkg/scheduler/api/devices/ascend/hami)."""
NODE_LOCK_VGPU: Final = "hamivgpu"
NODE_LOCK_GPUSHARE: Final = "gpu"
NODE_LOCK_HAMI: Final = "hami.io/mutex.lock"
NODE_NPU_HANDSHAKE: Final = "hami.io/node-handshake-"
NODE_NPU_SOFT: Final = "hami-vnpu-core"
"""True if the node shares its NPUs by the intercepting library instead of templates (Volcano
pkg/scheduler/api/devices/ascend/hami)."""
CORDONED_CARDS: Final = "pumice.io/cordoned-cards"
HELD_FOR_MOVES: Final = "pumice.io/held-for-moves"
"""The goal for which ``pumice defrag apply`` holds places on the node."""
HELD_PLACES: Final = "pumice.io/held-places"
"""Which cards take nobody but whom, until when (``wire.held_places``)."""
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
BURST_MEMORY: Final = f"{OUR_DOMAIN}/burst-memory"
BURST_CORES: Final = f"{OUR_DOMAIN}/burst-cores"
VNPU_MODE: Final = "huawei.com/vnpu-mode"
MOVE: Final = f"{OUR_DOMAIN}/move"
"""False if the pod is not to be moved to another place."""
CLAIMS: Final = f"{OUR_DOMAIN}/claims"
"""On nodes and namespaces, ``on``: its cards are given by claim; its pods' shares are written as claims."""
SHARE_CLAIMS: Final = f"{OUR_DOMAIN}/share-claims"
"""On a pod whose shares were written as claims: as a label, and as an annotation what each asks, by its template's name."""
CHECKPOINTED_AT: Final = f"{OUR_DOMAIN}/checkpointed-at"
"""When the pod's work was last saved, in RFC 3339."""

# On the pod, by the scheduler and the node plugin
VGPU_NODE: Final = "volcano.sh/vgpu-node"
VGPU_TIME: Final = "volcano.sh/vgpu-time"
VGPU_IDS: Final = "volcano.sh/vgpu-ids-new"
DEVICES_TO_ALLOCATE: Final = "volcano.sh/devices-to-allocate"
BIND_PHASE: Final = "volcano.sh/bind-phase"
BIND_TIME: Final = "volcano.sh/bind-time"
GPU_ASSIGNED: Final = "volcano.sh/gpu-assigned"
GPU_INDEX: Final = "volcano.sh/gpu-index"
PREDICATE_TIME: Final = "volcano.sh/predicate-time"
SLICE_GONE: Final = "pumice.io/slice-gone"
"""Ours: what became of a pod's MIG slice, where the node's plugin has the pod ended for that."""
DEVICES_REFUSED: Final = "pumice.io/devices-refused"
"""Ours: why a pod was ended by the node's plugin before a container of it started."""

# In the answer to Allocate, which nobody sees but the kubelet, the runtime, and the plugin again in the kubelet's record
ANSWERED_FOR: Final = "pumice.io/answered-for"
"""Pod UID, container, and the answer's number, with slashes between."""

# On the pod or its owner, for the group and the order of tasks
TASK_SPEC: Final = "volcano.sh/task-spec"
TASK_PRIORITY: Final = "volcano.sh/task-priority"
PREEMPTABLE: Final = "volcano.sh/preemptable"
COOLDOWN_TIME: Final = "volcano.sh/cooldown-time"
REVOCABLE_ZONE: Final = "volcano.sh/revocable-zone"
TASK_TOPOLOGY_AFFINITY: Final = "volcano.sh/task-topology-affinity"
TASK_TOPOLOGY_ANTI_AFFINITY: Final = "volcano.sh/task-topology-anti-affinity"
TASK_TOPOLOGY_ORDER: Final = "volcano.sh/task-topology-task-order"
RESOURCE_STRATEGY_TYPE: Final = "volcano.sh/resource-strategy-scoring-type"
RESOURCE_STRATEGY_WEIGHT: Final = "volcano.sh/resource-strategy-weight"
JDB_MIN_AVAILABLE: Final = "volcano.sh/jdb-min-available"
JDB_MAX_UNAVAILABLE: Final = "volcano.sh/jdb-max-unavailable"
RESOURCE_GROUP: Final = "volcano.sh/resource-group"

# On the pods of a Job, by its controller (Volcano pkg/controllers/job, volcano.sh/apis)
TASK_INDEX: Final = "volcano.sh/task-index"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
JOB_QUEUE: Final = "volcano.sh/queue-name"
JOB_VERSION: Final = "volcano.sh/job-version"
JOB_RETRIES: Final = "volcano.sh/job-retry-count"
JOB_TYPE: Final = "volcano.sh/job-type"
JOB_UID: Final = f"{OUR_DOMAIN}/job-uid"
PREDECESSOR_GONE: Final = f"{OUR_DOMAIN}/predecessor-gone"
"""When the pod that had this one's name was gone, where an action waits for that."""
TEMPLATE_UID: Final = "volcano.sh/template-uid"
PARTITION: Final = "volcano.sh/partition-id"
OF_TEMPLATE: Final = "volcano.sh/createdByJobTemplate"
OF_FLOW: Final = "volcano.sh/createdByJobFlow"
CRON_TIME: Final = "volcano.sh/cronjob-scheduled-timestamp"
"""Of a CronJob's Job: its time, in RFC 3339 and the CronJob's zone."""
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
"""The controller itself deletes the pod: that it goes is no event of the Job."""
TOPOLOGY_POLICY: Final = "volcano.sh/numa-topology-policy"

# Groups and queues
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
GROUP_NAME_VOLCANO: Final = "scheduling.volcano.sh/group-name"
GROUP_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
NAMESPACE_QUEUES: Final = f"{OUR_DOMAIN}/queues"
"""On a namespace: the queues that its pods, gangs and Jobs may name, with commas between."""
QUEUE_GATE: Final = "scheduling.volcano.sh/queue-allocation-gate"
"""A scheduling gate that the pod's queue opens, and the annotation that asks for it."""
DEFAULT_QUEUE: Final = "default"
ROOT_QUEUE: Final = "root"

# Fixed names of installed objects
SCHEDULER_NAME: Final = "volcano"
KUBE_SCHEDULER: Final = "default-scheduler"
"""Kubernetes' own, which the API server writes into every pod that names none."""
CONTROLLER_NAME: Final = "vc-controller-manager"
ADMISSION_SERVICE: Final = "volcano-admission-service"
SYSTEM_NAMESPACE: Final = "volcano-system"
SCHEDULER_CONFIGMAP: Final = "volcano-scheduler-configmap"
SCHEDULER_CONF_KEY: Final = "volcano-scheduler.conf"
LAST_GOOD: Final = "-last-good"
"""Behind the name of the scheduler's ConfigMap: the one in which it keeps the last text that it could use."""
SCHEDULER_NAMES_KEY: Final = "scheduler-names"
"""In that one: the names under which pods ask for the scheduler that wrote it, with a blank between two."""
INIT_PARAMS: Final = "init-params"
PARAMS_READ: Final = ("presetVirtualDevice", "useClusterInfoManager", "self-maintain-available-card")
"""Entry of ``configurations`` for the plugin of MindCluster's scheduler, and what is read of it (Volcano
pkg/scheduler/api/devices/ascend/mindcluster)."""
NPU_CONFIGMAP: Final = "hami-scheduler-device"
"""Chips and templates of NPUs, in kube-system (Volcano pkg/scheduler/api/devices/config/vnpu.go)."""
DEVICE_CONFIGMAP: Final = "volcano-vgpu-device-config"
NODE_CONFIGMAP: Final = "volcano-vgpu-node-config"
NODE_CONFIG_KEY: Final = "config.json"
NPU_NODE_CONFIGMAP: Final = "hami-device-node-config"
NPU_NODE_CONFIG_KEY: Final = "node-config.yaml"
DEVICE_CONFIG_NAMESPACE: Final = "kube-system"
DEVICE_CONFIG_KEY: Final = "device-config.yaml"
CARDS_SECTION: Final = "nvidia"
CHIPS_SECTION: Final = "vnpus"

# -- defaults of vsub's flags (upstream pkg/cli/vsub) --
VSUB_NAMESPACE: Final = "VOLCANO_DEFAULT_JOB_NAMESPACE"
VSUB_IMAGE: Final = "VOLCANO_DEFAULT_IMAGE"
VSUB_SCHEDULER: Final = "VOLCANO_SCHEDULER_NAME"
