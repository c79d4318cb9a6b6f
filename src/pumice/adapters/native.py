"""Paths of the libraries that are built with the package, as the dynamic loader takes them."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from pumice.adapters.regular_files import replace_link
from pumice.model.errors import Unavailable

_DIVIDES = re.compile(r"[ :;$]")
"""Characters that end a path in LD_PRELOAD or LD_LIBRARY_PATH, or is replaced there (ld.so(8))."""


def vgpu_library() -> Path:
    """``libvgpu.so`` of this installation; whoever asks looks whether it was built."""
    return Path(__file__).resolve().parents[1] / "_native" / "vgpu" / "libvgpu.so"


def loadable(path: Path, environment: Mapping[str, str] = os.environ, user: int | None = None) -> Path:
    """The same file or folder by a path that can stand in a list for the loader: where its own cannot, through a link to its
    folder. Raises Unavailable when there is no place for the link."""
    if not _DIVIDES.search(str(path)):
        return path
    user = os.getuid() if user is None else user
    for place in _places(environment, user):
        link = place / f"native-{zlib.crc32(os.fsencode(path.parent)):08x}"
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True, mode=0o755)
            if _ours(place, user):
                _point(link, path.parent)
                return link / path.name
    raise Unavailable(f"{path}: the loader takes no path with a blank, colon or dollar, and there is no place for a link")


def _places(environment: Mapping[str, str], user: int) -> Iterator[Path]:
    """Nobody else may write there: what lies there is loaded. Root's is for whoever its programs become."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME", "/nonexistent"), ".cache")
    root = user == 0 and "XDG_CACHE_HOME" not in environment
    places = [*(["/run/pumice-native"] if root else []), os.path.join(cache, "pumice"), f"/tmp/pumice-native-{user}"]
    return (Path(place) for place in places if not _DIVIDES.search(place))


def _ours(place: Path, user: int) -> bool:
    facts = place.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == user and not facts.st_mode & 0o022


def _point(link: Path, folder: Path) -> None:
    if not link.is_symlink() or os.readlink(link) != str(folder):
        replace_link(link, str(folder))
