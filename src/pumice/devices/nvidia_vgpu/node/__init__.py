"""Shares of NVIDIA cards with limits: ``volcano.sh/vgpu-number``, ``vgpu-memory`` and ``vgpu-cores``."""
