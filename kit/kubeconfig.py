"""A kubeconfig for programs of others that a test runs."""

from __future__ import annotations

from pathlib import Path

import yaml

from kit.control_plane import Api


def write_kubeconfig(path: Path, api: Api) -> Path:
    path.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": api.url, "certificate-authority": str(api.ca)}}],
        "users": [{"name": "u", "user": {"token": api.token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }))  # fmt: skip
    return path
