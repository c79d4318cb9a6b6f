"""The shares of claims on one machine (Dynamic Resource Allocation): what their driver has prepared.

The file is replaced by a rename, and counts for the boot in which it was written. Plugins and `pumice run` read it. Each claim
that was answered has a record of its own beside its limits page: of those the driver makes the file anew where it was lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Final

import msgspec

from pumice.adapters.bookings.processes import boot
from pumice.adapters.regular_files import content_of, replace_file, try_lock
from pumice.model.errors import BadInput, Unavailable
from pumice.node.claims import PreparedClaim
from pumice.wire.our_devices import CARD_CLAIMS, CLAIM_DRIVERS

BOOK: Final = CARD_CLAIMS.book
DRIVERS: Final = {driver.book: driver.word for driver in CLAIM_DRIVERS.values()}
"""By the files of the drivers of one node, each of which has a lock beside it, who writes them."""
ANY: Final = ""
"""Stands for every card, where it is not known which ones are held."""


class _File(msgspec.Struct):
    boot: str = ""
    claims: list[PreparedClaim] = []


def read(folder: Path, book: str = BOOK) -> list[PreparedClaim] | None:
    """Return the claims that hold something here; None where there is no file. Raises BadInput on a damaged one."""
    path = folder / book
    try:
        content = msgspec.json.decode(content_of(path), type=_File)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{path}: damaged ({error})") from error
    return content.claims if content.boot == boot() else []


def prepared(folder: Path, book: str = BOOK) -> list[PreparedClaim]:
    """Return the claims that hold something here. Raises BadInput on a damaged file."""
    return read(folder, book) or []


def write(folder: Path, claims: Sequence[PreparedClaim], book: str = BOOK) -> None:
    """Raises Unavailable; then the old file stands."""
    content = msgspec.json.format(msgspec.json.encode(_File(boot(), list(claims))), indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / book, content, 0o644)
    except OSError as error:
        raise Unavailable(f"{folder / book} cannot be written: {error.strerror}") from error


def hold(folder: Path, book: str = BOOK) -> int | None:
    """Take the book for this process and return the descriptor that keeps it; None where another driver has it. Drafts that a
    killed one left go. Raises Unavailable."""
    lock = f".{book.removesuffix('.json')}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if not try_lock(descriptor):
            os.close(descriptor)
            return None
        for draft in folder.glob(f".{book}.*"):
            draft.unlink(missing_ok=True)
        return descriptor
    except OSError as error:
        raise Unavailable(f"{folder / lock} cannot be taken: {error.strerror}") from error


def record(claim: PreparedClaim) -> bytes:
    """Return a claim's own record."""
    return msgspec.json.encode(_File(boot(), [claim]))


def recorded(path: Path) -> PreparedClaim | None:
    """Return the claim of a record of this boot; None of an earlier boot's. Raises BadInput where it is missing or damaged."""
    try:
        content = msgspec.json.decode(content_of(path), type=_File)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{path}: damaged ({error})") from error
    return next(iter(content.claims), None) if content.boot == boot() else None


def held_by_claims(folders: Iterable[Path]) -> dict[str, str]:
    """Return by UUID why a card is not free: which claims hold how much of it. A damaged file closes every card, under the
    UUID ``ANY``."""
    found: dict[str, list[str]] = {}
    closed: dict[str, str] = {}
    for folder, book in product(folders, DRIVERS):
        try:
            claims = prepared(folder, book)
        except BadInput as error:
            closed[ANY] = (f"not known to be free of claims: {error}; `pumice dra-driver {DRIVERS[book]}` writes it anew. "
                           "Where that runs no more and no pod has a claim of it, remove the file")  # fmt: skip
            continue
        for claim in claims:
            for share in (one for one in claim.shares if not one.admin):
                what = "all of it" if share.whole else f"{share.memory >> 20} MiB, {share.cores} % of the cores"
                what = what if share.slice is None else f"slice {share.slice}"
                found.setdefault(share.card, []).append(f"{claim.key} ({what})")
    return closed | {card: f"held by claims: {', '.join(dict.fromkeys(holders))}" for card, holders in found.items()}


def unclaimed(cards: Iterable[str], claimed: Mapping[str, str]) -> list[str]:
    """Return those of the cards that are known to be free of claims."""
    return [card for card in cards if card not in claimed and ANY not in claimed]


def slice_owners(folders: Iterable[Path]) -> dict[str, str]:
    """Return the claims with MIG slices by what the journal calls them. Of a damaged file nothing: it closes every card."""
    found: dict[str, str] = {}
    for folder in folders:
        with suppress(BadInput):
            found |= {claim.owner: f"claim {claim.key}" for claim in prepared(folder)}
    return found
