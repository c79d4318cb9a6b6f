"""The files of prepared claims: for each request a limits page and a region, the CDI file that names them, and a record.

What lies there of a claim that is not booked was never answered, or is of an earlier boot, and goes when the driver starts.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from pumice.adapters.bookings import claims as book
from pumice.adapters.kubelet.claim_driver import PreparedDevice
from pumice.adapters.region.claims import ClaimsReader
from pumice.adapters.region.folders import ClaimFolders
from pumice.apps.node.files import install_files, make_directory
from pumice.devices.nvidia_vgpu.node.answer import CACHE, LIBRARY, LOCK, PRELOAD
from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.model.errors import BadInput
from pumice.node.claims import ClaimShare, PreparedClaim
from pumice.ports.region import BadRegion
from pumice.wire import cdi, limits_page, names, variables
from pumice.wire.limits_page import GrantedCard, LimitsPage

CLAIM: Final = "claim"
KIND: Final = f"{names.OUR_DOMAIN}/{CLAIM}"
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True, slots=True)
class ClaimFiles:
    """Paths are the host's. ``pool``: the pool of this node. ``index``: NVML's index of a card."""

    hook_path: Path
    lock_dir: Path
    cdi_folder: Path
    pool: str
    index: Callable[[str], int]

    def write(self, claim: PreparedClaim) -> None:
        """Pages, regions, the record and the CDI file. What is there and whole stays: containers may run. Raises PumiceError."""
        _check(claim.uid)
        devices = []
        for request in dict.fromkeys(share.request for share in claim.shares):
            shares = sorted((one for one in claim.shares if one.request == request), key=lambda one: self.index(one.card))
            devices.append(cdi.Device(_device_name(claim, request), self._edits(claim, request, shares)))
        _install(self._folders.record(claim.uid), book.record(claim))
        spec = cdi.Specification(cdi.VERSION, KIND, tuple(devices))
        _install(self._cdi_file(claim.uid), cdi.render(spec))

    def remove(self, uid: str) -> None:
        """Raises BadInput where this is no UID, and OSError."""
        _check(uid)
        self._cdi_file(uid).unlink(missing_ok=True)
        for folder in (self._folders.regions(uid), self._folders.pages(uid)):
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)

    def answer(self, claim: PreparedClaim) -> list[PreparedDevice]:
        """A request's CDI device goes with the first of its devices: edits that come twice would be mounted twice."""
        seen: set[str] = set()
        found = []
        for share in claim.shares:
            ids = () if share.request in seen else (f"{KIND}={_device_name(claim, share.request)}",)
            seen.add(share.request)
            found.append(PreparedDevice(share.request, self.pool, share.device, ids, share.share))
        return found

    def used(self, uid: str, share: ClaimShare) -> int | None:
        """Return the bytes of its card that the containers of a share use by their region; None before the first has begun."""
        try:
            found = ClaimsReader().read(self._folders.region(uid, share.request), [share.card]).cards.get(share.card)
        except (BadRegion, OSError):  # empty until a container begins, and tenants may have filled it with anything
            return None
        return None if found is None else found.use.total

    def answered(self) -> tuple[list[PreparedClaim], list[str]]:
        """Return the claims that were answered in this boot, by their records, and the UIDs of files without a good record."""
        claims, unknown = [], []
        for uid in sorted(self._there()):
            try:
                claim = book.recorded(self._folders.record(uid))
            except BadInput:
                if self._cdi_file(uid).exists():
                    unknown.append(uid)
            else:
                claims += [claim] if claim is not None and claim.uid == uid else []
        return claims, unknown

    def sweep(self, booked: Collection[str]) -> list[str]:
        """Remove what lies here of claims that are not booked, and return their UIDs. Raises OSError."""
        stale = sorted(self._there() - set(booked))
        for uid in stale:
            self.remove(uid)
        return stale

    def _there(self) -> set[str]:
        prefix, suffix = self._cdi_file("\0").name.split("\0")
        found = {path.name.removeprefix(prefix).removesuffix(suffix) for path in self.cdi_folder.glob(f"{prefix}*{suffix}")}
        for folder in (self._folders.regions("-"), self._folders.pages("-")):
            found |= {path.name for path in folder.parent.glob("*")}
        return {uid for uid in found if _UID.fullmatch(uid)}

    @property
    def _folders(self) -> ClaimFolders:
        return ClaimFolders(self.hook_path / "vgpu")

    def _cdi_file(self, uid: str) -> Path:
        return self.cdi_folder / f"{names.OUR_DOMAIN}-{CLAIM}_{uid}.json"

    def _edits(self, claim: PreparedClaim, request: str, shares: Sequence[ClaimShare]) -> cdi.Edits:
        env = {variables.NVIDIA_VISIBLE_DEVICES: ",".join(dict.fromkeys(one.visible for one in shares))}
        if any(one.admin for one in shares):  # the runtime mounts NVML then, and nothing that computes
            env[variables.NVIDIA_DRIVER_CAPABILITIES] = "utility"
        if not any(one.limited for one in shares):
            return cdi.Edits(env=tuple(f"{key}={value}" for key, value in env.items()))
        file = self._folders.region(claim.uid, request)
        directory, region = file.parent, file.name
        page = self._folders.page(claim.uid, request)
        make_directory(MakeDirectory(str(directory)))
        path = f"{CACHE}/{region}"
        limits = LimitsPage(tuple(GrantedCard(one.card, one.memory, one.cores) for one in shares), path, priority=1)
        if not _says(page, limits):
            _install(page, limits_page.render(limits))
        install_files([InstallFile(str(file), b"", 0o666, keep=True, durable=False)])
        env |= {variables.memory_limit_of(at): f"{one.memory >> 20}m" for at, one in enumerate(shares)}
        env |= {variables.SM_LIMIT: str(shares[0].cores), variables.SHARED_CACHE: path}
        read_only = ("ro", "nosuid", "nodev", "bind")
        mounts = (
            cdi.Mount(f"{self.hook_path}/libvgpu.so", LIBRARY, read_only),
            cdi.Mount(f"{self.hook_path}/ld.so.preload", PRELOAD, read_only),
            cdi.Mount(str(page), limits_page.PATH, read_only),
            cdi.Mount(str(directory), CACHE, ("rw", "bind")),
            cdi.Mount(str(file), path, ("rw", "bind")),
            cdi.Mount(str(self.lock_dir), LOCK, ("rw", "bind")),
        )
        return cdi.Edits(env=tuple(f"{key}={value}" for key, value in env.items()), mounts=mounts)


def _check(uid: str) -> None:
    if not _UID.fullmatch(uid):
        raise BadInput(f"{uid!r} is no claim's uid")


def _device_name(claim: PreparedClaim, request: str) -> str:
    return f"{claim.uid}-{request.replace('/', '_')}"


def _says(path: Path, limits: LimitsPage) -> bool:
    """Return whether the page grants that, whatever the monitor has said there since: containers that run have it mapped."""
    try:
        found = limits_page.parse(path.read_bytes())
    except OSError:
        return False
    return found is not None and msgspec.structs.replace(found, lifted=False, held=0, burst=0) == limits


def _install(path: Path, content: bytes) -> None:
    """Put it there unless it is: the same bytes are not replaced under containers that run, and half of them are."""
    try:
        if path.read_bytes() == content:
            return
    except OSError:
        pass
    install_files([InstallFile(str(path), content, 0o644, durable=False)])
