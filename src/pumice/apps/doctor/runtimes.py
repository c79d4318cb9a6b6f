"""The container runtimes' configurations: does one know NVIDIA's runtime, and is that the default?

Docker: dockerd's daemon.json. containerd: the CRI plugin's table, whose name changed with version 3 of its configuration
(containerd docs/cri/config.md). CRI-O: crio.conf(5). All of them are what ``nvidia-ctk runtime configure`` writes.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pumice.devices.nvidia_vgpu.node.doctor import Runtime

DOCKER: Final = Path("etc/docker/daemon.json")
CONTAINERD: Final = (Path("etc/containerd/config.toml"), Path("etc/containerd/conf.d"))
CRIO: Final = (Path("etc/crio/crio.conf"), Path("etc/crio/crio.conf.d"))
_TABLES: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")


def runtimes(root: Path) -> Iterator[Runtime]:
    """Those that have a configuration below ``root``, the host's."""
    if (path := root / DOCKER).is_file():
        yield _docker(path)
    for program, places, read in (("containerd", CONTAINERD, _containerd), ("crio", CRIO, _crio)):
        if files := list(_files(root, places)):
            yield _merged(program, files, read)


def _files(root: Path, places: Iterable[Path]) -> Iterator[Path]:
    """The file itself, and those of its folder in the order in which they count."""
    for place in places:
        path = root / place
        if path.is_file():
            yield path
        elif path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.suffix in (".toml", ".conf"))


def _docker(path: Path) -> Runtime:
    try:
        document = json.loads(path.read_text("utf-8"))
        known, default = document.get("runtimes") or {}, document.get("default-runtime") or ""
        return Runtime("docker", str(path), "nvidia" in known, str(default))
    except (OSError, ValueError, AttributeError) as error:
        return Runtime("docker", str(path), False, "", f"cannot be read: {error}")


def _merged(program: str, files: list[Path], read: Callable[[dict[str, Any]], tuple[bool, str]]) -> Runtime:
    knows, default, cdi = False, "", True
    for path in files:
        try:
            document = tomllib.loads(path.read_text("utf-8"))
            here, named = read(document)
            cdi = _heeds_cdi(document, cdi)
        except (OSError, ValueError, AttributeError, TypeError) as error:
            return Runtime(program, str(path), False, "", f"cannot be read: {error}")
        knows, default = knows or here, named or default
    return Runtime(program, str(files[0]), knows, default, cdi=cdi)


def _heeds_cdi(document: dict[str, Any], before: bool) -> bool:
    """containerd: off until version 3 of its configuration unless switched on (docs/cri/config.md); CRI-O always does."""
    plugins = document.get("plugins")
    if plugins is None:
        return before
    said = [table["enable_cdi"] for name in _TABLES if "enable_cdi" in (table := plugins.get(name) or {})]
    return bool(said[-1]) if said else int(document.get("version", 1)) >= 3


def _containerd(document: dict[str, Any]) -> tuple[bool, str]:
    plugins = document.get("plugins") or {}
    tables = [(plugins.get(name) or {}).get("containerd") or {} for name in _TABLES]
    return any("nvidia" in (table.get("runtimes") or {}) for table in tables), next(
        (table["default_runtime_name"] for table in tables if table.get("default_runtime_name")), ""
    )


def _crio(document: dict[str, Any]) -> tuple[bool, str]:
    runtime = (document.get("crio") or {}).get("runtime") or {}
    return "nvidia" in (runtime.get("runtimes") or {}), runtime.get("default_runtime") or ""
