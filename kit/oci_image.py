"""Small images for tests, without a registry: Debian's static busybox and what a test puts beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.image import oci

APPLETS = ("sh", "env", "sleep", "cat", "ls", "echo", "true", "false", "id", "ps", "grep", "mkdir")


def busybox_image(name: str, destination: Path, *, entrypoint: Sequence[str] = (),
                  files: Mapping[str, bytes] | None = None) -> Path:
    """An image with Debian's static busybox, a link per common applet, and ``files`` (path to content)."""
    layer = oci.Layer()
    for folder in ("bin", "tmp", "etc", "usr", "usr/local"):
        layer.folder(folder)
    layer.file("bin/busybox", Path("/bin/busybox").read_bytes(), 0o755)
    for applet in APPLETS:
        layer.link(f"bin/{applet}", "busybox")
    for path, content in (files or {}).items():
        layer.file(path, content, 0o755)
    oci.image(name, "amd64", [layer], {"Env": ["PATH=/bin"], "Entrypoint": list(entrypoint) or None}).write(destination)
    return destination
