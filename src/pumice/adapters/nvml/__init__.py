"""Cards through NVIDIA's management library, by nvidia-ml-py only; an emulated machine is met in the same way."""

from pumice.adapters.nvml.cards import NvmlCards
from pumice.adapters.nvml.slices import NvmlSlices

__all__ = ["NvmlCards", "NvmlSlices"]
