"""The legacy sharing: one card by ``gpu-memory``, or whole cards by ``gpu-number`` (spec deviceshare-nvidia 16)."""
