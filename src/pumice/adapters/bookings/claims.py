"""The shares of claims on one machine (Dynamic Resource Allocation): what their driver has prepared.

The file is replaced by a rename, and counts for the boot in which it was written. Plugins and `pumice run` read it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from pumice.adapters.bookings.processes import boot
from pumice.adapters.regular_files import content_of
from pumice.model.errors import BadInput, Unavailable
from pumice.node.claims import PreparedClaim

BOOK: Final = "claims.json"


class _File(msgspec.Struct):
    boot: str = ""
    claims: list[PreparedClaim] = []


def prepared(folder: Path) -> list[PreparedClaim]:
    """Return the claims that hold something here. Raises BadInput on a damaged file."""
    path = folder / BOOK
    try:
        content = msgspec.json.decode(content_of(path), type=_File)
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{path}: damaged ({error})") from error
    return content.claims if content.boot == boot() else []


def write(folder: Path, claims: Sequence[PreparedClaim]) -> None:
    """Raises Unavailable; then the old file stands."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(prefix=f".{BOOK}.", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(msgspec.json.format(msgspec.json.encode(_File(boot(), list(claims))), indent=1))
                out.flush()
                os.fchmod(out.fileno(), 0o644)
                os.fsync(out.fileno())
            os.rename(draft, folder / BOOK)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft)
            raise
    except OSError as error:
        raise Unavailable(f"{folder / BOOK} cannot be written: {error.strerror}") from error


def held_by_claims(folders: Iterable[Path]) -> dict[str, str]:
    """Return by UUID why a card is not free: which claims hold how much of it. A file that is damaged closes nothing; its driver,
    which begins anew by the API server, says so."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        with suppress(BadInput):
            for claim in prepared(folder):
                for share in claim.shares:
                    what = "all of it" if share.whole else f"{share.memory >> 20} MiB, {share.cores} % of the cores"
                    found.setdefault(share.card, []).append(f"{claim.key} ({what})")
    return {card: f"held by claims: {', '.join(dict.fromkeys(holders))}" for card, holders in found.items()}
