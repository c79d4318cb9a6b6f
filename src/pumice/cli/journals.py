"""Journals as files: one of them, or a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from pumice.adapters.segments import files_of
from pumice.cli.output import plain
from pumice.journal.reading import Part, parts_of, whole_of
from pumice.journal.records import MAGIC, is_journal
from pumice.model.errors import BadInput


def holds_journal(path: Path) -> bool:
    """Return whether a file begins as a journal's do, or is a folder. Raises BadInput where it cannot be read."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            return is_journal(file.read(len(MAGIC)))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def read_parts(path: Path) -> list[Part]:
    """Return the parts that can be played, and report the others on standard error. Raises BadInput where nothing can."""
    files = sorted(files_of(path)) if path.is_dir() else [path]
    if not files:
        raise BadInput(f"{path}: there is no file of a journal in it")
    try:
        whole, left_out = whole_of((str(file), file.read_bytes()) for file in files)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    parts, remarks = parts_of(whole)
    for remark in left_out + remarks:
        print(plain(remark), file=sys.stderr)
    if not parts:
        raise BadInput(f"{path}: nothing of it can be played from its beginning")
    return parts
