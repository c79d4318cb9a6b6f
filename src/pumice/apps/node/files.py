"""Files on the host that containers mount: those that run have the old ones mapped."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.model.errors import BadInput


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
            descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as out:
                    out.write(file.content)
                    out.flush()
                    os.fchmod(out.fileno(), file.mode)
                    if file.durable:
                        os.fsync(out.fileno())
                os.rename(draft, path)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(draft)
                raise
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
