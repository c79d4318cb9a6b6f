"""The legacy sharing: one card by ``gpu-memory``, or whole cards by ``gpu-number`` (spec deviceshare-nvidia 16)."""

from pumice.families.nvidia_gpushare.family import NvidiaGpushare

__all__ = ["NvidiaGpushare"]
