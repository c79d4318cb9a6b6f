"""The folders of a node's containers, ``<pod UID>_<container>``, each with a region once a card is used."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pumice.ports.region import BadRegion
from pumice.wire import limits_page

MANY = 64
"""Files of one folder that are looked at; a container may have filled its folder with anything."""


class ContainerFolders:
    """The folders with the regions of one node's containers. Nothing is kept between calls."""

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


@dataclass(frozen=True, slots=True)
class ClaimFolders:
    """The folders with the files of prepared claims, beside the folders of containers. Containers write ``regions`` and
    nothing else."""

    root: Path

    def regions(self, uid: str) -> Path:
        return self.root / "claims" / uid

    def pages(self, uid: str) -> Path:
        return self.root / "claim-limits" / uid

    def page(self, uid: str, request: str) -> Path:
        """The limits page of a request."""
        return self.pages(uid) / request.replace("/", "_") / "limits"

    def record(self, uid: str) -> Path:
        return self.pages(uid) / "claim.json"

    def region(self, uid: str, request: str) -> Path:
        """The region that all containers of a request have together."""
        return self.regions(uid) / request.replace("/", "_") / f"{uid}.cache"


# -- The limits pages of a node's containers, on the host -------------------------------------------------------------

# Beside the folders of their regions, which the containers write.


def page_beside(region: Path) -> Path:
    """The page of the container that has this region: ``limits/<pod UID>_<container>/limits`` beside ``containers``; of a
    claim's request the one beside ``claims``."""
    folder = region.parent
    folders, uid = ClaimFolders(folder.parent.parent.parent), folder.parent.name
    if region == folders.region(uid, folder.name):
        return folders.page(uid, folder.name)
    return folder.parent.parent / "limits" / folder.name / "limits"


def pages_folder(containers: Path) -> Path:
    return containers.parent / "limits"


def held_by_mps(containers: Path, container: str) -> bool:
    """Return whether this container (``<pod UID>_<name>``) has no region, because an MPS server holds its limits."""
    return (pages_folder(containers) / container / limits_page.MPS_NOTE).exists()


def region_named(folder: Path) -> Path | None:
    """The region of the container that has this folder, by its page; None where there is no page. The container may have made
    other files there."""
    try:
        page = limits_page.parse(page_beside(folder / "region").read_bytes())
    except OSError:
        return None
    name = page.region.rpartition("/")[2] if page is not None else ""
    return folder / name if name else None


def core_limits_on(region: Path) -> bool | None:
    """Return whether the page has the core limits in force; None: there is no page, and the region says."""
    try:
        page = limits_page.parse(page_beside(region).read_bytes())
    except OSError:
        return None
    return None if page is None else not page.lifted


def hold_back(region: Path, percent: int, every: float, burst: int = 0) -> bool:
    """One more beat of what holds the container back to this percent of its cards' time, or lets it have ``burst`` in place of
    its cores, the next in ``every`` seconds; 0: nothing does any more. False: there is no page that says so, and the region
    does."""
    try:
        descriptor = os.open(page_beside(region), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        page = limits_page.parse(os.pread(descriptor, limits_page.BYTES + limits_page.MORE.size, 0))
        if page is None or page.priority is None:
            return False
        _, beats, _, _ = limits_page.HELD.unpack(os.pread(descriptor, limits_page.HELD.size, limits_page.HELD_AT))
        word = limits_page.HELD.pack(percent, (beats + 1) % 0xFFFFFFFF, max(1, round(1000 * every)), burst)
        os.pwrite(descriptor, word, limits_page.HELD_AT)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def grant(region: Path, cards: Sequence[tuple[int, int]]) -> None:
    """Bytes and percent of each card of the page, in its order, where there is a page: who follows it does so at once. By eight
    bytes at a time, for it is mapped. Raises OSError."""
    try:
        descriptor = os.open(page_beside(region), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        for at, (memory, cores) in enumerate(cards):
            place = limits_page.HEAD.size + at * limits_page.CARD.size + limits_page.MEMORY_AT
            os.pwrite(descriptor, struct.pack("<Q", memory), place)
            os.pwrite(descriptor, struct.pack("<Q", cores), place + 8)
    finally:
        os.close(descriptor)


def lift_core_limits(region: Path, lifted: bool) -> None:
    """The monitor's word on the page, where there is one."""
    with suppress(OSError):
        descriptor = os.open(page_beside(region), os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, struct.pack("<I", lifted), limits_page.LIFTED_AT)
        finally:
            os.close(descriptor)
