"""Files on the host that containers mount: those that run have the old ones mapped."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from pumice.adapters.regular_files import replace_file
from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.model.errors import BadInput
from pumice.wire import cdi


def digests(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of those of these files that are there."""
    found = {}
    for name in names:
        with suppress(OSError):
            found[name] = hashlib.sha256((directory / name).read_bytes()).hexdigest()
    return found


def install_files(files: Iterable[InstallFile]) -> None:
    """Write each file beside its place, sync it, and rename it there: who has the old one mapped keeps it, and a disk that is
    full leaves the old one. Raises BadInput."""
    for file in files:
        path = Path(file.path)
        if file.keep and path.exists():
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, file.content, file.mode, durable=file.durable)
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}") from error


def make_directory(effect: MakeDirectory) -> None:
    """Make the directory with exactly its mode, whatever the umask. Raises BadInput when a link or file is in the way."""
    path = Path(effect.path)
    if effect.fresh and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise BadInput(f"cannot make the directory {path}: {error.strerror}") from error
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != effect.mode:
            with suppress(PermissionError):  # somebody else's shared directory, as /tmp/vgpulock may be
                os.fchmod(descriptor, effect.mode)
    finally:
        os.close(descriptor)


# -- The folder of the files of CDI devices that are shares -----------------------------------------------------------

# One for each answer, never written twice.


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
