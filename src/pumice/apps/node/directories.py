"""Directories on the host that containers see: made without following what somebody else has planted there."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from pumice.effects.vocabulary import MakeDirectory
from pumice.model.errors import BadInput


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
