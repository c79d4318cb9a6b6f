"""vGPU of NVIDIA cards: HAMi-core shares and dynamic MIG slices, card by card (Volcano pkg/scheduler/api/devices/nvidia/vgpu)."""
