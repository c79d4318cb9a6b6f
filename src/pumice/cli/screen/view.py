"""Choices of a person at the screen, and the rows that these are: sorted, filtered, as a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pumice.cli.screen.samples import Part, Program, Sample

Key = Callable[[Program], object]
SORTS: Final[Mapping[str, tuple[Key, bool]]] = {
    "id": (lambda program: (not program.share, len(program.share), program.share, program.pid), False),
    "memory": (lambda program: program.memory, True),
    "cores": (lambda program: program.cores, True),
    "limit": (lambda program: program.near_limit, True),
    "user": (lambda program: program.user, False),
    "pid": (lambda program: program.pid, False),
    "started": (lambda program: program.started, True),
    "command": (lambda program: program.command, False),
}
"""By what, and whether the largest comes first. ``limit``: who is nearest to a limit of its own."""
TREES: Final = ("card", "user", "pod", "none")
NO_POD: Final = "no pod"


@dataclass(frozen=True, slots=True)
class View:
    """The choices. ``selected`` is a row, ``first`` the first one shown, ``tab`` a page by its name."""

    tab: str = ""
    sort: str = "id"
    reverse: bool = False
    tree: str = "card"
    filter: str = ""
    selected: str = ""
    first: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the programs' table: a head of the tree, or a program's part of one card. ``lead``: the program's first line."""

    key: str
    head: str = ""
    program: Program | None = None
    part: Part | None = None
    lead: bool = True


def rows(sample: Sample, view: View, pods: Mapping[str, str]) -> list[Row]:
    """The lines of the table. ``pods`` are names by UID."""
    by, falls = SORTS[view.sort]
    there = [program for program in sample.programs if matches(program, view.filter, pods)]
    there.sort(key=SORTS["id"][0])  # type: ignore[arg-type]  # a tie is settled by the id, whatever is sorted by
    there.sort(key=by, reverse=falls is not view.reverse)  # type: ignore[arg-type]
    found: list[Row] = []
    for head, members in _groups(there, sample, view.tree, pods):
        if head:
            found.append(Row(f"head {head}", head))
        for program in members:
            parts = [part for part in program.parts if view.tree != "card" or head == _card(part.card)]
            found += [Row(f"{head} {program.key} {part.uuid}", program=program, part=part, lead=at == 0)
                      for at, part in enumerate(parts)]  # fmt: skip
    return found


def matches(program: Program, words: str, pods: Mapping[str, str]) -> bool:
    """Return whether each of the words stands in what is told of the program."""
    told = f"{program.share} {program.pid} {program.user} {pod_name(program, pods)} {program.command}".lower()
    return all(word in told for word in words.lower().split())


def pod_name(program: Program, pods: Mapping[str, str]) -> str:
    """The pod by its name, or by its UID where nobody told the name; empty for a program of no pod."""
    return pods.get(program.pod, program.pod)


def _card(index: int) -> str:
    return f"card {index}"


def _groups(programs: Sequence[Program], sample: Sample, tree: str,
            pods: Mapping[str, str]) -> Iterator[tuple[str, list[Program]]]:  # fmt: skip
    if tree == "none":
        yield "", list(programs)
        return
    if tree == "card":
        known = {card.index for card in sample.cards} | {part.card for program in programs for part in program.parts}
        for index in sorted(known):
            here = [program for program in programs if any(part.card == index for part in program.parts)]
            if here:
                yield _card(index), here
        return
    name = (lambda program: program.user) if tree == "user" else (lambda program: pod_name(program, pods) or NO_POD)
    for head in sorted({name(program) for program in programs}, key=lambda head: (head == NO_POD, head)):
        yield head, [program for program in programs if name(program) == head]


def moved(view: View, table: Sequence[Row], by: int, height: int) -> View:
    """The view with another row selected, so many further, and that row in sight. Heads are passed over."""
    there = [row.key for row in table if row.program]
    if not there:
        return replace(view, selected="", first=0)
    at = there.index(view.selected) if view.selected in there else -1 if by > 0 else 0
    return in_sight(replace(view, selected=there[max(0, min(len(there) - 1, at + by))]), table, height)


def in_sight(view: View, table: Sequence[Row], height: int) -> View:
    """The view scrolled so far that the selected row is among ``height``, with its head where that is the line above it."""
    keys = [row.key for row in table]
    last = max(0, len(keys) - height)
    if view.selected not in keys:
        return replace(view, first=min(view.first, last))
    at = keys.index(view.selected)
    top = at - 1 if at and table[at - 1].head else at
    return replace(view, first=min(last, min(max(view.first, at - height + 1), top)) if height > 1 else at)


def selected(view: View, table: Sequence[Row]) -> Program | None:
    """The program that is selected; None where none is, or it is gone."""
    return next((row.program for row in table if row.key == view.selected), None)


def next_of(names: Sequence[str], now: str, by: int = 1) -> str:
    """The name after this one, and after the last one the first."""
    return names[(names.index(now) + by) % len(names)] if now in names else names[0]
