"""vGPU of NVIDIA cards: HAMi-core shares and dynamic MIG slices, card by card (spec deviceshare-nvidia)."""
