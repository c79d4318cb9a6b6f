"""Cards through NVIDIA's management library, by nvidia-ml-py only; an emulated machine is met in the same way. Their slices,
which `pumice run` has no need of, are in ``slices``."""

from pumice.adapters.nvml.cards import NvmlCards

__all__ = ["NvmlCards"]
