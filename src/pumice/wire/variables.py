"""Environment variables: NVIDIA's, the limiting library's (upstream's names), the legacy plugin's and our own.

Sources: HAMi-core src (environment), nvidia-device-plugin 2 and 8, deviceshare-nvidia 16.
"""

from typing import Final

# CUDA and NVIDIA's container runtime
CUDA_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
NVIDIA_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
NVIDIA_DRIVER_CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
NVIDIA_GDRCOPY: Final = "NVIDIA_GDRCOPY"
NVIDIA_GDS: Final = "NVIDIA_GDS"
NVIDIA_MOFED: Final = "NVIDIA_MOFED"
NVIDIA_NVSWITCH: Final = "NVIDIA_NVSWITCH"
NVIDIA_IMEX_CHANNELS: Final = "NVIDIA_IMEX_CHANNELS"

MPS_PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
MPS_LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
MPS_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

# The limiting library
MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"
"""The limit of every card; with ``_0``, ``_1`` ... that of one."""
SM_LIMIT: Final = "CUDA_DEVICE_SM_LIMIT"
SHARED_CACHE: Final = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
OVERSUBSCRIBE: Final = "CUDA_OVERSUBSCRIBE"
DISABLE_CONTROL: Final = "CUDA_DISABLE_CONTROL"
TASK_PRIORITY: Final = "CUDA_TASK_PRIORITY"
CORE_POLICY: Final = "GPU_CORE_UTILIZATION_POLICY"
LIBRARY_LOG_LEVEL: Final = "LIBCUDA_LOG_LEVEL"
SHARED_CARDS: Final = "PUMICE_VGPU_CARDS"
LOCK_DIRECTORY: Final = "PUMICE_VGPU_LOCK_DIRECTORY"

# Ascend: its container runtime, and soft shares (HAMi ascend-device-plugin, MindCluster ascend-docker-runtime)
ASCEND_VISIBLE_DEVICES: Final = "ASCEND_VISIBLE_DEVICES"
ASCEND_VNPU_SPECS: Final = "ASCEND_VNPU_SPECS"
"""The template of the slice that the runtime makes for a container."""
ASCEND_RUNTIME_OPTIONS: Final = "ASCEND_RUNTIME_OPTIONS"
ASCEND_WORKERS: Final = (
    "MS_LOCAL_WORKER", "MS_WORKER_NUM", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "CM_WORKER_SIZE", "CM_LOCAL_WORKER",
)  # fmt: skip
ASCEND_RANK: Final = "LOCAL_RANK"
"""Number of chips of a container, and their ranks, as frameworks for training read them (MindCluster ascend-device-plugin)."""
VNPU_ASSETS_PATH: Final = "HAMI_VNPU_ASSETS_PATH"
"""Where a plugin finds HAMi's library of soft shares (HAMi ascend-device-plugin)."""
NPU_MEM_QUOTA: Final = "NPU_MEM_QUOTA"
NPU_PRIORITY: Final = "NPU_PRIORITY"
NPU_GLOBAL_SHM_PATH: Final = "NPU_GLOBAL_SHM_PATH"
NPU_LOCAL_SHM_PATH: Final = "NPU_LOCAL_SHM_PATH"

# The legacy plugin's answer
GPU_ALLOCATED: Final = "VOLCANO_GPU_ALLOCATED"
GPU_MEMORY_TOTAL: Final = "VOLCANO_GPU_MEMORY_TOTAL"

# Options of the node plugins, by upstream's names
DEV_ROOT: Final = "NVIDIA_DEV_ROOT"
DRIVER_ROOT: Final = "NVIDIA_DRIVER_ROOT"
DEVICE_LIST_STRATEGY: Final = "DEVICE_LIST_STRATEGY"
CDI_HOOK_PATHS: Final = ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH")
GPU_STRATEGY: Final = "GPU_STRATEGY"
GPU_MEMORY_FACTOR: Final = "GPU_MEMORY_FACTOR"

# Ours
MACHINE: Final = "PUMICE_MACHINE"
"""Directory of the emulated machine that a program meets."""
DCMI: Final = "PUMICE_DCMI"
NVML: Final = "PUMICE_NVML"
BIND_ADDRESS: Final = "PUMICE_BIND_ADDRESS"
"""Where daemons listen that were told a port and no address."""
SHARE: Final = "PUMICE_SHARE"
WEB_URL: Final = "PUMICE_WEB_URL"
"""The address of `pumice web`, which commands name below their answers."""
RUN_DIR: Final = "PUMICE_RUN_DIR"
LOG: Final = "PUMICE_LOG"
LOCK_DIR: Final = "PUMICE_LOCK_DIR"
LIBVGPU: Final = "PUMICE_LIBVGPU"


def memory_limit_of(place: int) -> str:
    """The variable with the limit of the container's card at that place."""
    return f"{MEMORY_LIMIT}_{place}"
