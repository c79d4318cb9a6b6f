"""CDI devices as containerd 2 applies them before a container is made (CDI, pkg/cdi/cache.go and container-edits.go; containerd,
pkg/cdi/oci_opt.go). Hooks of a device are not run: containers here have the machine's own linker cache."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from pumice.wire.document import safe_load
from pumice_lab.kubelet.devices.plugin import Allocation
from pumice_lab.runtime.spec import Mount, StartFailed

log = logging.getLogger("pumice.kubelet")
PREFIX = "cdi.k8s.io/"  # of annotations whose values name devices
FAILED = "failed to create containerd container: CDI device injection failed: "


@dataclass(slots=True)
class Edits:
    """The container edits of devices, in their order."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def add(self, document: Mapping[str, Any]) -> None:
        """Raises ValueError, KeyError, TypeError or AttributeError on what is no edit."""
        self.env |= dict(word.split("=", 1) for word in document.get("env") or ())
        for mount in document.get("mounts") or ():
            target = str(mount["containerPath"])
            self.mounts[target] = Mount(str(mount["hostPath"]), target, "ro" in (mount.get("options") or ()))
        self.files += [str(node.get("hostPath") or node["path"]) for node in document.get("deviceNodes") or ()]

    def stat(self) -> None:
        """Raises StartFailed where this machine lacks a device file."""
        for path in self.files:
            if not Path(path).exists():
                text = f'failed to inject devices: failed to stat CDI host device "{path}": no such file or directory'
                raise StartFailed("CreateContainerError", FAILED + text, transient=True)


def requested(answers: Iterable[Allocation]) -> tuple[str, ...]:
    """The devices that answers name, in their field and in annotations, each once."""
    names: list[str] = []
    for answer in answers:
        names += answer.cdi_devices
        names += [name for key, text in answer.annotations if key.startswith(PREFIX) for name in text.split(",")]
    return tuple(dict.fromkeys(names))


def resolve(names: Sequence[str], folders: Iterable[Path]) -> Edits:
    """All that is done to a container for these devices: of each file first what counts for all of its devices. A device of a
    later folder counts before one of an earlier; one that a folder has twice does not count. Raises StartFailed."""
    edits = Edits()
    if not names:
        return edits
    devices: dict[str, tuple[int, Path, Mapping[str, Any], Mapping[str, Any]]] = {}
    twice: set[str] = set()
    for priority, path, name, common, own in _devices(folders):
        if name in devices and devices[name][0] == priority:
            twice.add(name)
        devices[name] = (priority, path, common, own)
    if unknown := [name for name in names if name not in devices or name in twice]:
        raise StartFailed("CreateContainerError", f"{FAILED}unresolvable CDI devices {', '.join(unknown)}", transient=True)
    seen: set[Path] = set()
    for _, path, common, own in (devices[name] for name in names):
        if path not in seen:
            seen.add(path)
            edits.add(common)
        edits.add(own)
    return edits


def _devices(folders: Iterable[Path]) -> Iterator[tuple[int, Path, str, Mapping[str, Any], Mapping[str, Any]]]:
    """Every device with the priority of its folder, its file, its name, and what it does. A file that cannot be read spoils its
    own devices alone."""
    for priority, folder in enumerate(folders):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.suffix not in (".json", ".yaml"):
                continue
            try:
                common, found = _read(path.read_bytes())
            except (OSError, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                log.warning("CDI registry refresh failed: failed to load CDI Spec %s: %s", path, error)
                continue
            for name, own in found:
                yield priority, path, name, common, own


@lru_cache(maxsize=64)
def _read(text: bytes) -> tuple[Mapping[str, Any], list[tuple[str, Mapping[str, Any]]]]:
    """The edits of a file that are common to its devices, and each device's own by its whole name: each container reads all files
    of a folder, most of which it has read before. Raises YAMLError, or as ``Edits.add``."""
    document = safe_load(text)
    common = document.get("containerEdits") or {}
    found = [(f"{document['kind']}={device['name']}", device["containerEdits"]) for device in document["devices"]]
    for edits in (common, *(own for _, own in found)):
        Edits().add(edits)
    return common, found
