"""vGPU of NVIDIA cards: HAMi-core shares and dynamic MIG slices, card by card (spec deviceshare-nvidia)."""

from pumice.families.nvidia_vgpu.family import NvidiaVgpu

__all__ = ["NvidiaVgpu"]
