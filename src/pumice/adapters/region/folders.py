"""The folders of a node's containers, ``<pod UID>_<container>``, each with a region once a card is used."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from pumice.ports.region import BadRegion

MANY = 64
"""Files of one folder that are looked at; a container may have filled its folder with anything."""


class ContainerFolders:
    """Where the regions of one node's containers lie. Nothing is kept between calls."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def containers(self) -> dict[tuple[str, str], Path]:
        found: dict[tuple[str, str], Path] = {}
        try:
            entries = list(os.scandir(self.directory))
        except FileNotFoundError:
            return found
        for entry in entries:
            uid, separator, container = entry.name.partition("_")  # names in Kubernetes hold no underscore
            if separator and uid and container and entry.is_dir(follow_symlinks=False):
                found[uid, container] = Path(entry.path)
        return found

    def sweep(self, alive: Collection[str], now: float, grace: float = 300.0) -> list[Path]:
        """Remove folders of pods that are gone, once nothing has changed in them for ``grace`` seconds."""
        removed = []
        for (uid, _), path in self.containers().items():
            try:
                if uid in alive or now - path.lstat().st_mtime < grace:
                    continue
                shutil.rmtree(path)
            except OSError:
                continue
            removed.append(path)
        return removed

    def region(self, directory: Path) -> Path | None:
        """The file of the region in one directory: the newest, if there are several. Raises BadRegion."""
        try:
            with os.scandir(directory) as entries:
                files = [
                    (entry.stat(follow_symlinks=False).st_mtime, entry.path)
                    for entry in islice(entries, MANY)
                    if ".cache" in entry.name and "libvgpu.so" not in entry.name and entry.is_file(follow_symlinks=False)
                ]
        except OSError as error:
            raise BadRegion(f"{directory}: {error.strerror}", early=True) from error
        return Path(max(files)[1]) if files else None
