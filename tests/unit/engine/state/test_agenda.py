"""Who wakes and who sleeps is written in one place."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import pumice
from pumice.engine.state.scheduling_queue import Agenda

SOURCE = Path(pumice.__file__).parent
KEPT = {field.name for field in fields(Agenda)}
CHANGES = {"pop", "popitem", "clear", "update", "setdefault", "__setitem__", "__delitem__"}


def kept(node: ast.expr) -> bool:
    """Whether it is a field of an agenda, or something in one."""
    if isinstance(node, ast.Subscript):
        return kept(node.value)
    if not isinstance(node, ast.Attribute) or node.attr not in KEPT:
        return False
    of = node.value
    return (isinstance(of, ast.Name) and of.id == "agenda") or (isinstance(of, ast.Attribute) and of.attr == "agenda")


def writes(tree: ast.Module) -> Iterator[int]:
    """Lines that change what an agenda keeps."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()) if kept(node):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in CHANGES and kept(value):
                yield node.lineno


def test_nobody_but_the_agenda_writes_who_wakes_and_who_sleeps() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py") if path.name != "agenda.py"
        if "agenda" in (text := path.read_text())
        for line in writes(ast.parse(text))
    ]  # fmt: skip
    assert found == []


@pytest.mark.parametrize("line", [
    "state.agenda.released = True", "agenda.waiting[job] = 3.0", "del self.state.agenda.sleeping[cls]",
    "agenda.sleeping[cls].pop(job)", "self.agenda.dirty.clear()", "agenda.next_due += 1",
])  # fmt: skip
def test_every_way_to_write_is_found(line: str) -> None:
    assert list(writes(ast.parse(line))) == [1]


@pytest.mark.parametrize("line", [
    "agenda.waiting.get(job)", "x = agenda.sleeping[cls]", "agenda.activate(job)", "queue.waiting[0] = 1",
])  # fmt: skip
def test_reading_is_nobodys_harm(line: str) -> None:
    assert not list(writes(ast.parse(line)))
