"""What a container may have whom upstream's device plugin has served, by its environment."""

from __future__ import annotations

from typing import Any

MEMORY, CORES = "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
MARK = "PLANE_PLUGIN"
"""The variable by which a container is known that this plugin has served."""


def allowed(seen: Any) -> list[tuple[str, int, int]]:
    """Return cards, each with the MiB and per cent that the library reads there."""
    cards = [card for card in seen.env.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if card]
    limits = [int(seen.env[f"CUDA_DEVICE_MEMORY_LIMIT_{at}"].removesuffix("m")) for at in range(len(cards))]
    return sorted((card, memory, int(seen.env["CUDA_DEVICE_SM_LIMIT"])) for card, memory in zip(cards, limits, strict=True))
