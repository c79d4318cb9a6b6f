"""The folder of the files of CDI devices that are shares: one for each answer, never written twice."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from pumice.apps.node.files import install_files
from pumice.effects.vocabulary import InstallFile
from pumice.wire import cdi

_NAME = re.compile(re.escape(cdi.share_file_name("N")).replace("N", "([0-9a-f]+)"))


class ShareFiles:
    """Those of one resource: other plugins have theirs in the same folder, where the runtime looks for CDI devices. It is told of
    a new file only where that is renamed within the folder (CDI, pkg/cdi/cache.go: Rename, Remove and Write wake it, Create does
    not). ``first``: digits that all numbers of the resource begin with."""

    def __init__(self, folder: Path, resource: str) -> None:
        self.folder, self.first = folder, hashlib.sha256(resource.encode()).hexdigest()[:8]

    def has(self, number: str) -> bool:
        return self._path(number).exists()

    def write(self, number: str, content: bytes) -> None:
        """Raises BadInput."""
        if not self.has(number):
            install_files([InstallFile(str(self._path(number)), content, 0o644, durable=False)])

    def keep(self, numbers: Collection[str]) -> None:
        """Remove all but these."""
        for number in self.numbers() - set(numbers):
            with suppress(OSError):
                self._path(number).unlink(missing_ok=True)

    def numbers(self) -> set[str]:
        with suppress(OSError):
            found = [_NAME.fullmatch(entry.name) for entry in os.scandir(self.folder)]
            return {name[1] for name in found if name is not None and name[1].startswith(self.first)}
        return set()

    def _path(self, number: str) -> Path:
        return self.folder / cdi.share_file_name(number)


def elsewhere_than_root(folder: Path) -> bool:
    """True if the folder, or where it would be made, is on another file system than ``/``: in a container it is then the host's,
    and on a host it is ``/run``, which a boot empties. What lay in a container's own files no runtime would find."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.stat().st_dev != Path("/").stat().st_dev and os.access(there, os.W_OK)
