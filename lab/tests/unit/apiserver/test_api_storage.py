"""The log: revisions, history, compaction, restarts, and a process that is killed while it writes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.command_line import call

from pumice_lab.apiserver.disk import inspect
from pumice_lab.apiserver.storage import Gone, Stale, Storage, open_storage
from pumice_lab.cli.up import app

Json = dict[str, Any]


def value(name: str, **data: Any) -> Json:
    return {"metadata": {"name": name}, **data}


def names(storage: Storage, namespace: str = "") -> list[str]:
    return [stored.name for stored in storage.objects("things", namespace)]


def test_revisions_grow_by_one_and_survive_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        storage = open_storage(tmp_path / "db")
        revisions = [storage.put("things", "a", f"x{i}", value(f"x{i}")).revision for i in range(3)]
        revisions.append(storage.remove("things", "a", "x0", value("x0")).revision)
        assert revisions == [1, 2, 3, 4]
        await storage.durable()
        storage.close()

    async def second() -> None:
        storage = open_storage(tmp_path / "db")
        assert (storage.revision, names(storage)) == (4, ["x1", "x2"])
        assert storage.put("things", "a", "y", value("y")).value()["metadata"]["resourceVersion"] == "5"
        assert [e.change for e in storage.changes("things", 2)] == ["ADDED", "DELETED"]  # history came back too
        storage.close()

    asyncio.run(first())
    asyncio.run(second())


def test_a_writer_that_saw_another_revision_is_stale() -> None:
    async def main() -> None:
        storage = open_storage(":memory:")
        storage.put("things", "", "x", value("x"), expect=0)
        for expect in (0, 7):
            with pytest.raises(Stale):
                storage.put("things", "", "x", value("x"), expect=expect)
        with pytest.raises(Stale):
            storage.remove("things", "", "x", value("x"), expect=2)
        storage.remove("things", "", "x", value("x"), expect=1)
        storage.close()

    asyncio.run(main())


def test_watchers_hear_only_of_what_is_on_disk() -> None:
    async def main() -> None:
        storage = open_storage(":memory:")
        change = storage.next_change("things")
        storage.put("things", "", "x", value("x"))
        assert storage.changes("things", 0) == []
        assert not change.done()
        await storage.durable()
        assert change.done()
        assert [e.revision for e in storage.changes("things", 0)] == [1]
        storage.close()

    asyncio.run(main())


def test_writes_of_one_turn_are_one_transaction() -> None:
    async def main() -> None:
        storage = open_storage(":memory:")
        statements: list[str] = []
        storage._disk._db.set_trace_callback(statements.append)
        for i in range(50):
            storage.put("things", "", f"x{i}", value(f"x{i}"))
        await storage.durable()
        assert statements.count("COMMIT") == 1
        storage.close()

    asyncio.run(main())


def test_lists_are_in_the_order_of_namespace_and_name_and_begin_behind_a_key() -> None:
    async def main() -> None:
        storage = open_storage(":memory:")
        for namespace, name in (("b", "1"), ("a", "2"), ("a", "1"), ("ab", "0")):
            storage.put("things", namespace, name, value(name))
        assert [(s.namespace, s.name) for s in storage.objects("things")] == [
            ("a", "1"),
            ("a", "2"),
            ("ab", "0"),
            ("b", "1"),
        ]
        assert names(storage, "a") == ["1", "2"]
        assert names(storage, "c") == []
        storage.close()

    asyncio.run(main())


def test_the_history_is_bounded_and_the_disk_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        storage = open_storage(tmp_path / "db", window=100)
        for i in range(1000):
            storage.put("things", "", "busy", value("busy", n=i))
            storage.put("things", "", f"t{i}", value(f"t{i}"))
            storage.remove("things", "", f"t{i}", value(f"t{i}"))
            if i % 10 == 0:
                await storage.durable()
        await storage.durable()
        storage.put("things", "", "last", value("last"))  # takes the dead rows along
        await storage.durable()
        with pytest.raises(Gone):
            storage.changes("things", storage.oldest - 1)
        assert len(storage.changes("things", storage.oldest)) == 100
        rows = storage._disk._db.execute("SELECT count(*) FROM log").fetchone()[0]
        assert rows <= 110
        storage.close()
        again = open_storage(tmp_path / "db", window=100)
        assert names(again) == ["busy", "last"]
        with pytest.raises(Gone):
            again.changes("things", 5)
        again.close()

    asyncio.run(main())


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "turn", "restart"]), st.sampled_from("abcd"), st.sampled_from(["n1", "n2"])
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_every_moment_in_the_window_can_be_listed_again(
    tmp_path_factory: pytest.TempPathFactory, operations: list[Any]
) -> None:
    """Whatever happens, the log replayed is the state, and the state of each earlier revision can be had."""
    path = tmp_path_factory.mktemp("log") / "db"

    async def main() -> None:
        storage, model, past = open_storage(path), dict[tuple[str, str], int](), {0: list[tuple[str, str, int]]()}
        for number, (operation, name, namespace) in enumerate(operations):
            if operation == "put":
                model[namespace, name] = number
                storage.put("things", namespace, name, value(name, n=number))
            elif operation == "remove" and (namespace, name) in model:
                del model[namespace, name]
                storage.remove("things", namespace, name, value(name))
            elif operation == "turn":
                await storage.durable()
            elif operation == "restart":
                storage.close()
                storage = open_storage(path)
            past[storage.revision] = sorted((*key, n) for key, n in model.items())
        await storage.durable()
        for revision, wanted in past.items():
            seen = [(s.namespace, s.name, s.value()["n"]) for s in storage.objects_at("things", "", revision)]
            assert seen == wanted
        storage.close()

    asyncio.run(main())


WRITER = """
import asyncio, sys
from pumice_lab.apiserver.storage import open_storage
async def main():
    storage = open_storage(sys.argv[1])
    for i in range(100000):
        for j in range(5):
            storage.put("things", "", f"x{(i * 5 + j) % 50}", {"metadata": {"name": "x"}, "n": i * 5 + j})
        await storage.durable()
        print(storage.revision, flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("patience", [1, 20, 60])
def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path, patience: int) -> None:
    """SIGKILL at some point of writing: the last revision that was reported is there, and the log is whole."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "db")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = 0
    for _ in range(patience):
        acknowledged = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    rest = process.stdout.read().split()
    acknowledged = int(rest[-1]) if rest else acknowledged
    process.stdout.close()
    storage = open_storage(tmp_path / "db")
    assert storage.revision >= acknowledged
    for stored in storage.objects("things"):
        assert stored.value()["n"] == stored.revision - 1
    storage.close()


def test_a_disk_that_refuses_stops_the_server_from_promising() -> None:
    async def main() -> None:
        storage = open_storage(":memory:")
        storage._disk._db.execute("DROP TABLE log")
        storage.put("things", "", "x", value("x"))
        with pytest.raises(sqlite3.Error):
            await storage.durable()
        assert storage.changes("things", 0) == []

    asyncio.run(main())


def test_a_full_disk_takes_nothing_and_service_comes_back_with_room(tmp_path: Path) -> None:
    async def main() -> None:
        storage = open_storage(tmp_path / "db")
        storage.put("things", "", "old", value("old", n=1))
        storage.put("things", "", "doomed", value("doomed"))
        await storage.durable()
        pages = storage._disk._db.execute("PRAGMA page_count").fetchone()[0]
        storage._disk._db.execute(f"PRAGMA max_page_count={pages}")
        storage.put("things", "", "old", value("old", n=2))
        storage.remove("things", "", "doomed", value("doomed"))
        storage.put("things", "", "new", value("new", text="x" * 100_000))
        with pytest.raises(sqlite3.Error) as refused:
            await storage.durable()
        assert refused.value.sqlite_errorcode == sqlite3.SQLITE_FULL
        await storage.quiet()
        assert (names(storage), storage.revision) == (["doomed", "old"], 2)
        found = storage.get("things", "", "old")
        assert found is not None
        assert found.value()["n"] == 1
        storage._disk._db.execute("PRAGMA max_page_count=100000")
        storage.put("things", "", "new", value("new", text="x" * 100_000))
        await storage.durable()
        assert storage.failed is None
        assert [event.stored.name for event in storage.changes("things", 2)] == ["new"]
        storage.close()

    asyncio.run(main())
    again = open_storage(tmp_path / "db")
    assert names(again) == ["doomed", "new", "old"]
    again.close()


def test_a_damaged_row_is_set_aside_by_name_and_the_rest_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def write() -> None:
        storage = open_storage(tmp_path / "db")
        for n in range(2):
            for name in "abcd":
                storage.put("things", "ns", name, value(name, n=n))
        storage.remove("things", "ns", "d", value("d"))
        await storage.durable()
        storage.close()

    asyncio.run(write())
    outside = sqlite3.connect(tmp_path / "db")
    with outside:
        outside.execute("UPDATE log SET data = substr(data, 1, 9) WHERE revision IN (5, 9)")
        outside.execute("UPDATE log SET data = x'ff00' WHERE name = 'b'")
        outside.execute("UPDATE log SET data = CAST('{}' AS BLOB) WHERE revision = 7")
    outside.close()
    assert {line.partition(":")[0] for line in inspect(tmp_path / "db")} == {
        "row 2, things ns/b", "row 5, things ns/a", "row 6, things ns/b", "row 7, things ns/c", "row 9, things ns/d"}  # fmt: skip
    assert all("the next start" in line for line in inspect(tmp_path / "db"))
    for _ in range(2):
        storage = open_storage(tmp_path / "db")
        assert [(stored.name, stored.value()["n"]) for stored in storage.objects("things")] == [("a", 0), ("c", 0)]
        assert storage.revision == 9
        storage.close()
    for name in "abcd":
        assert sum(f"things ns/{name}: " in record.getMessage() for record in caplog.records) == (2 if name == "b" else 1)
    assert sum("has been set aside" in line for line in inspect(tmp_path / "db")) == 5


def test_a_look_for_damage_says_what_it_found_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    assert call(app, ["--check", "--data-dir", str(tmp_path)]).exit_code == 0
    (tmp_path / "api" / "state.db").write_bytes(b"no database" * 1000)
    found = call(app, ["--check", "--data-dir", str(tmp_path)])
    assert (found.exit_code, "SQLite: file is not a database" in found.stdout + found.stderr) == (1, True)
    assert (tmp_path / "api" / "state.db").read_bytes() == b"no database" * 1000


def test_the_secret_stays(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "db")
    secret = storage.secret("key")
    assert (len(secret), storage.secret("key"), storage.secret("other") == secret) == (32, secret, False)
    storage.close()
    again = open_storage(tmp_path / "db")
    assert again.secret("key") == secret
    again.close()


def test_random_keys_keep_their_order() -> None:
    async def main() -> None:
        storage, rng = open_storage(":memory:"), random.Random(1)
        keys = {(rng.choice("abc"), str(rng.randrange(100))) for _ in range(200)}
        for namespace, name in keys:
            storage.put("things", namespace, name, value(name))
        for namespace, name in list(keys)[::2]:
            storage.remove("things", namespace, name, value(name))
            keys.discard((namespace, name))
        assert [(s.namespace, s.name) for s in storage.objects("things")] == sorted(keys)
        storage.close()

    asyncio.run(main())
