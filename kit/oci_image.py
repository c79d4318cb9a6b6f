"""Container images without a registry: an OCI layout as a tar file, written with the standard library.

Format: https://github.com/opencontainers/image-spec (image-layout, manifest, config).
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def busybox_image(name: str, destination: Path, *, entrypoint: Sequence[str] = (),
                  files: Mapping[str, bytes] | None = None) -> Path:
    """An image with Debian's static busybox, a link per common applet, and ``files`` (path to content)."""
    applets = ("sh", "env", "sleep", "cat", "ls", "echo", "true", "false", "id", "ps", "grep", "mkdir")
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "tmp", "etc", "usr", "usr/local"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", Path("/bin/busybox").read_bytes(), 0o755)
        for applet in applets:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for path, content in (files or {}).items():
            _add(tar, path, content, 0o755)
    blobs: dict[str, bytes] = {}
    layer_digest = _store(blobs, layer.getvalue())
    config_digest = _store(blobs, _json({
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        "config": {"Env": ["PATH=/bin"], "Entrypoint": list(entrypoint) or None},
    }))  # fmt: skip
    manifest = _json({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _reference("application/vnd.oci.image.config.v1+json", config_digest, blobs),
        "layers": [_reference("application/vnd.oci.image.layer.v1.tar", layer_digest, blobs)],
    })  # fmt: skip
    manifest_digest = _store(blobs, manifest)
    index = _json({"schemaVersion": 2, "manifests": [{
        **_reference("application/vnd.oci.image.manifest.v1+json", manifest_digest, blobs),
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
    }]})  # fmt: skip
    with tarfile.open(destination, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", index)
        for digest, content in blobs.items():
            _add(tar, "blobs/" + digest.replace(":", "/"), content)
    return destination


def _add(tar: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _store(blobs: dict[str, bytes], content: bytes) -> str:
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return digest


def _reference(media_type: str, digest: str, blobs: Mapping[str, bytes]) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest, "size": len(blobs[digest])}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
