"""The files of prepared claims: the CDI file, a record, and what a device type has for each request.

What lies there of a claim that is not booked was never answered, or is of an earlier boot, and goes when the driver starts.
"""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from pumice.adapters.bookings import claims as book
from pumice.adapters.kubelet.claim_driver import PreparedDevice
from pumice.adapters.region.folders import ClaimFolders
from pumice.adapters.region.reports import ReportReader
from pumice.apps.node.files import install_files
from pumice.effects.vocabulary import InstallFile
from pumice.model.errors import BadInput
from pumice.node.claims import ClaimShare, PreparedClaim
from pumice.ports.region import BadRegion
from pumice.wire import cdi, names

_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True)
class ClaimFiles(ABC):
    """Paths are the host's. ``root``: the folder of records. ``pool``: the pool of this node."""

    root: Path
    cdi_folder: Path
    pool: str

    kind: ClassVar[str] = f"{names.OUR_DOMAIN}/claim"
    """Of its CDI devices."""

    @abstractmethod
    def edits(self, claim: PreparedClaim, request: str, shares: Sequence[ClaimShare]) -> cdi.Edits:
        """Return the changes to a container of the request. Raises PumiceError."""

    def write(self, claim: PreparedClaim) -> None:
        """Pages, regions, the record and the CDI file. What is there and whole stays: containers may run. Raises PumiceError."""
        _check(claim.uid)
        devices = []
        for request in dict.fromkeys(share.request for share in claim.shares):
            shares = [one for one in claim.shares if one.request == request]
            devices.append(cdi.Device(_device_name(claim, request), self.edits(claim, request, shares)))
        install(self.folders.record(claim.uid), book.record(claim))
        spec = cdi.Specification(cdi.VERSION, self.kind, tuple(devices))
        install(self._cdi_file(claim.uid), cdi.render(spec))

    def remove(self, uid: str) -> None:
        """Raises BadInput where this is no UID, and OSError."""
        _check(uid)
        self._cdi_file(uid).unlink(missing_ok=True)
        for folder in (self.folders.regions(uid), self.folders.pages(uid)):
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)

    def answer(self, claim: PreparedClaim) -> list[PreparedDevice]:
        """A request's CDI device goes with the first of its devices: edits that come twice would be mounted twice."""
        seen: set[str] = set()
        found = []
        for share in claim.shares:
            ids = () if share.request in seen else (f"{self.kind}={_device_name(claim, share.request)}",)
            seen.add(share.request)
            found.append(PreparedDevice(share.request, self.pool, share.device, ids, share.share))
        return found

    def used(self, uid: str, share: ClaimShare) -> int | None:
        """Return the bytes of its card that the containers of a share use by their region; None before the first has begun."""
        try:
            found = ReportReader().read(self.folders.region(uid, share.request), [share.card]).cards.get(share.card)
        except (BadRegion, OSError):  # empty until a container begins, and tenants may have filled it with anything
            return None
        return None if found is None else found.use.total

    def answered(self) -> tuple[list[PreparedClaim], list[str]]:
        """Return the claims that were answered in this boot, by their records, and the UIDs of files without a good record."""
        claims, unknown = [], []
        for uid in sorted(self._there()):
            try:
                claim = book.recorded(self.folders.record(uid))
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
        for folder in (self.folders.regions("-"), self.folders.pages("-")):
            found |= {path.name for path in folder.parent.glob("*")}
        return {uid for uid in found if _UID.fullmatch(uid)}

    @property
    def folders(self) -> ClaimFolders:
        return ClaimFolders(self.root)

    def _cdi_file(self, uid: str) -> Path:
        return self.cdi_folder / f"{self.kind.replace('/', '-')}_{uid}.json"

def _check(uid: str) -> None:
    if not _UID.fullmatch(uid):
        raise BadInput(f"{uid!r} is no claim's uid")


def _device_name(claim: PreparedClaim, request: str) -> str:
    return f"{claim.uid}-{request.replace('/', '_')}"


def install(path: Path, content: bytes) -> None:
    """Put it there unless it is: the same bytes are not replaced under containers that run, and half of them are."""
    try:
        if path.read_bytes() == content:
            return
    except OSError:
        pass
    install_files([InstallFile(str(path), content, 0o644, durable=False)])
