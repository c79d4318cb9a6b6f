"""The log on disk: an append-only table in SQLite, read once at the start and written in transactions.

A row that is no object any more (a bad sector, an editor) is set aside in the table ``damaged``, by name, and the rest is
served. Facts that belong to the database as a whole lie in ``facts``.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

log = logging.getLogger("pumice.cluster.apiserver.disk")
Row = tuple[int, str, str, str, str, bytes]
"""Revision, resource, namespace, name, change, and the object as JSON."""

_COLUMNS = (
    "revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,"
    " change TEXT NOT NULL, data BLOB NOT NULL"
)
_NAMES = "revision, resource, namespace, name, change, data"
_CHANGES = ("ADDED", "MODIFIED", "DELETED")


class _Named(msgspec.Struct, gc=False):
    name: str


class _Whole(msgspec.Struct, gc=False):
    metadata: _Named


_read = msgspec.json.Decoder(_Whole).decode


def problem_of(row: Row) -> str:
    """Return why a row is no object, or "" when it is one."""
    _, _, _, name, change, data = row
    if change not in _CHANGES or not isinstance(data, bytes) or not isinstance(name, str):
        return "its columns hold something else than they should"
    try:
        found = _read(data).metadata.name
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"its object is cut or changed: {error}"
    return "" if found == name else f"its object calls itself {found!r}"


def inspect(path: Path) -> list[str]:
    """Return the problems of a database, a line each; it is only read. Empty when all is well."""
    if not path.is_file():
        return []
    problems: list[str] = []
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
        try:
            problems += [f"SQLite: {text}" for (text,) in db.execute("PRAGMA integrity_check") if text != "ok"]
            for row in db.execute(f"SELECT {_NAMES} FROM log ORDER BY revision"):
                if problem := problem_of(row):
                    problems.append(f"row {row[0]}, {row[1]} {row[2]}/{row[3]}: {problem}; the next start sets it aside")
            for row in db.execute(f"SELECT {_NAMES}, problem FROM damaged ORDER BY revision"):
                problems.append(f"row {row[0]}, {row[1]} {row[2]}/{row[3]}: {row[6]}; it has been set aside")
        except sqlite3.Error as error:
            problems.append(f"SQLite: {error}")
    return problems


class Disk:
    """One database. Raises sqlite3.Error when it cannot be opened, read or written."""

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self._db.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-2000;"
            f"CREATE TABLE IF NOT EXISTS log({_COLUMNS});"
            f"CREATE TABLE IF NOT EXISTS damaged({_COLUMNS}, problem TEXT NOT NULL);"
            "CREATE TABLE IF NOT EXISTS facts(name TEXT PRIMARY KEY, value NOT NULL);"
        )

    @property
    def compacted(self) -> int:
        """Revisions below have lost rows; a reader that needs them must list again."""
        row = self._db.execute("SELECT value FROM facts WHERE name='compacted'").fetchone()
        return int(row[0]) if row else 0

    def rows(self) -> Iterator[tuple[Row, str]]:
        """Every row in the order of writing, and what is wrong with it."""
        for row in self._db.execute(f"SELECT {_NAMES} FROM log ORDER BY revision"):
            yield row, problem_of(row)

    @property
    def highest_damaged(self) -> int:
        """A revision that was given once, to a row that the log no longer has."""
        return int(self._db.execute("SELECT coalesce(max(revision), 0) FROM damaged").fetchone()[0])

    def set_aside(self, row: Row, problem: str, instead: bytes | None) -> None:
        """Moves a damaged row out of the way, where somebody may still look at it; ``instead`` is its object in the log."""
        log.error("row %d of %s is set aside: %s %s/%s: %s", row[0], self.path, *row[1:4], problem)
        self._db.execute("INSERT OR REPLACE INTO damaged VALUES(?,?,?,?,?,?,?)", (*row, problem))
        if instead is None:
            self._db.execute("DELETE FROM log WHERE revision=?", (row[0],))
        else:
            self._db.execute("UPDATE log SET data=? WHERE revision=?", (instead, row[0]))

    def write(self, rows: Iterable[Row], doomed: Sequence[tuple[int]], oldest: int) -> None:
        """Appends rows and forgets the doomed ones, all or nothing."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            db.executemany("INSERT INTO log VALUES(?,?,?,?,?,?)", rows)
            if doomed:
                db.executemany("DELETE FROM log WHERE revision=?", doomed)
                db.execute("INSERT OR REPLACE INTO facts VALUES('compacted', ?)", (oldest,))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # a full disk ends the transaction by itself
                db.execute("ROLLBACK")
            raise

    def secret(self, name: str) -> bytes:
        """Random bytes that stay the same for the life of the database."""
        self._db.execute("INSERT OR IGNORE INTO facts VALUES(?, ?)", (name, secrets.token_bytes(32)))
        return bytes(self._db.execute("SELECT value FROM facts WHERE name=?", (name,)).fetchone()[0])

    def close(self) -> None:
        self._db.close()
