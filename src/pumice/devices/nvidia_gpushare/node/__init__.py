"""Shares of NVIDIA cards without limits: ``volcano.sh/gpu-memory``, or whole ones: ``volcano.sh/gpu-number``."""
