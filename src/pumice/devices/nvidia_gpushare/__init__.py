"""The legacy sharing: one card by ``gpu-memory``, or whole cards by ``gpu-number`` (Volcano
pkg/scheduler/api/devices/nvidia/gpushare)."""
