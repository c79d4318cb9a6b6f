"""Container images without a registry: layers and an OCI layout in a tar file, the same bytes for the same content.

Format: https://github.com/opencontainers/image-spec (image-layout.md, manifest.md, config.md, layer.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Layer:
    """A file system's changes. Owners are root and times are one moment, so that only content counts."""

    def __init__(self, moment: int = 0) -> None:
        self._moment = moment
        self._out = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._out, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 (closed in bytes)

    def folder(self, path: str, mode: int = 0o755) -> None:
        self._add(path, tarfile.DIRTYPE, mode)

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        self._add(path, tarfile.REGTYPE, mode, content)

    def link(self, path: str, target: str) -> None:
        self._add(path, tarfile.SYMTYPE, 0o777, target=target)

    def _add(self, path: str, kind: bytes, mode: int, content: bytes = b"", target: str = "") -> None:
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.size, entry.linkname, entry.mtime = kind, mode, len(content), target, self._moment
        self._tar.addfile(entry, io.BytesIO(content))

    def bytes(self) -> bytes:
        self._tar.close()
        return self._out.getvalue()


@dataclass(slots=True)
class Image:
    """Blobs by digest, and the digest of the manifest, by which an image is known."""

    name: str
    manifest: str
    blobs: dict[str, bytes] = field(default_factory=dict)

    def write(self, destination: Path) -> None:
        """As an OCI layout in a tar file: `ctr images import`, `podman load`, `skopeo copy oci-archive:`."""
        tag = self.name.rpartition(":")[2]
        annotations = {"io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": tag}
        found = _reference("application/vnd.oci.image.manifest.v1+json", self.manifest, self.blobs)
        layer = Layer()
        layer.file("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        layer.file("index.json", _json({"schemaVersion": 2, "manifests": [{**found, "annotations": annotations}]}))
        for folder in ("blobs", "blobs/sha256"):
            layer.folder(folder)
        for digest, content in self.blobs.items():
            layer.file("blobs/" + digest.replace(":", "/"), content)
        destination.write_bytes(layer.bytes())


def image(name: str, architecture: str, layers: Sequence[Layer], config: Mapping[str, Any], created: str = "",
          labels: Mapping[str, str] | None = None) -> Image:  # fmt: skip
    """``architecture`` as Go names it (amd64, arm64); ``config`` as config.md has it: Entrypoint, Env, User."""
    blobs: dict[str, bytes] = {}
    plain, packed = [], []
    for layer in layers:
        content = layer.bytes()
        plain.append(_digest(content))
        packed.append(_store(blobs, gzip.compress(content, 6, mtime=0)))
    facts = {"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": plain},
             "config": {**config, **({"Labels": dict(labels)} if labels else {})}}  # fmt: skip
    configured = _store(blobs, _json({**facts, **({"created": created} if created else {})}))
    manifest = _store(blobs, _json({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _reference("application/vnd.oci.image.config.v1+json", configured, blobs),
        "layers": [_reference("application/vnd.oci.image.layer.v1.tar+gzip", one, blobs) for one in packed],
    }))  # fmt: skip
    return Image(name, manifest, blobs)


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _store(blobs: dict[str, bytes], content: bytes) -> str:
    digest = _digest(content)
    blobs[digest] = content
    return digest


def _reference(media_type: str, digest: str, blobs: Mapping[str, bytes]) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest, "size": len(blobs[digest])}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
