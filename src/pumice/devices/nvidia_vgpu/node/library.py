"""Which files ``libvgpu.so`` needs in the hook directory, and which of them have to be written.

Running containers have the library mapped: it is replaced by a rename, never rewritten (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from pumice.devices.nvidia_vgpu.node.answer import LIBRARY
from pumice.effects.vocabulary import InstallFile

NAMES: Final = ("libvgpu.so", "ld.so.preload")


def files(library: bytes) -> dict[str, tuple[bytes, int]]:
    """Name to content and mode. The preload file holds the library's path as the container sees it."""
    return {"libvgpu.so": (library, 0o755), "ld.so.preload": (LIBRARY.encode(), 0o644)}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def install(hook: str, library: bytes, present: Mapping[str, str]) -> list[InstallFile]:
    """The files to write. ``present`` maps the names that exist in the hook directory to their digests."""
    return [
        InstallFile(f"{hook}/{name}", content, mode)
        for name, (content, mode) in files(library).items()
        if present.get(name) != digest(content)
    ]
