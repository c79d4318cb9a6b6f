"""How a container is told which cards it has: the words of ``--device-list-strategy`` (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu, NVIDIA k8s-device-plugin internal/cdi)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pumice.model.errors import BadInput

CDI_ANNOTATIONS: Final = "cdi-annotations"
CDI_FIELD: Final = "cdi-cri"
STRATEGIES: Final = ("envvar", "volume-mounts", CDI_ANNOTATIONS, CDI_FIELD)
"""The last two name devices of a file that the plugin writes."""


def strategies(given: Iterable[str]) -> tuple[str, ...]:
    """Words that may hold several, separated by commas. Raises BadInput."""
    words = tuple(word.strip() for text in given for word in text.split(",") if word.strip())
    if unknown := next((word for word in words if word not in STRATEGIES), ""):
        raise BadInput(f"--device-list-strategy {unknown!r}: use {', '.join(STRATEGIES)}")
    return words or STRATEGIES[:1]
