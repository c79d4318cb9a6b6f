"""Play the records of a journal through an engine, and compare what it decides with what is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest
from typing import Any

import msgspec

from pumice.effects.vocabulary import Bind, SchedulerEffect
from pumice.journal.folding import Unfolder, digest, told_of
from pumice.journal.freezing import Unreadable, thaw
from pumice.journal.reading import Part
from pumice.journal.recorder import Drawn
from pumice.journal.records import Decided
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import Input
from pumice.scheduler.state.state import State
from pumice.wire.times import stamp

LAST = 253_402_300_800.0
"""Seconds until the year 10000, of which no time stamp is written."""


@dataclass(frozen=True, slots=True)
class Played:
    """A cycle that was played. ``differs`` says in which the first of its decisions differs from what is written; empty where
    all are the same, bit for bit."""

    wall: float
    decided: Decided
    effects: Sequence[SchedulerEffect]
    differs: str = ""


class Broken(Exception):
    """The records cannot be played on: what they say does not go together."""


def engine_of(part: Part) -> Engine:
    """The engine that a part of a journal begins with. Raises Broken."""
    if part.snapshot is not None:
        try:
            return thaw(part.snapshot.engine)
        except Unreadable as error:
            raise Broken(f"its snapshot cannot be read: {error}") from None
    head = part.head
    return Engine(state=State(
        scheduler_names=frozenset(head.scheduler_names), default_queue=head.default_queue, implicit_groups=head.implicit_groups,
        names_groups=head.names_groups,
    ))  # fmt: skip


def inputs_of(part: Part) -> Iterator[Input | Decided]:
    """The inputs and decisions of a part in turn. Raises Broken."""
    unfolder = Unfolder(part.snapshot.pods if part.snapshot is not None else ())
    try:
        yield from unfolder.unfold(part.records)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Broken(f"a record cannot be read: {type(error).__name__}: {error}") from None


def play(part: Part) -> Iterator[Played]:
    """Play a part from its beginning; each cycle is yielded. Raises Broken."""
    engine = engine_of(part)
    for found in inputs_of(part):
        if not isinstance(found, Decided):
            apply(engine, found)
            continue
        if not 0 <= found.wall < LAST:
            raise Broken(f"a cycle at {found.wall:g} s since 1970")
        try:
            effects = engine.cycle(found.now, Drawn(found.bits), wall=found.wall, heard=_given(found.answers)).effects
            played = Played(found.wall, found, effects, _difference(engine, found, effects))
        except Exception as error:  # an engine is told what no scheduler has told one
            raise Broken(f"the cycle of {stamp(found.wall)} cannot be played: {type(error).__name__}: {error}") from None
        yield played


def apply(engine: Engine, found: Input) -> None:
    """Tell an engine. What it could not read then, it cannot read now, and was set aside."""
    with contextlib.suppress(Exception):
        found.apply(engine)


class _given:
    """The answers as they were noted; after the last of them there is time."""

    def __init__(self, runs: Iterable[int]) -> None:
        turns = ((number % 2 == 1, many) for number, many in enumerate(runs))
        self._next = chain(chain.from_iterable(repeat(answer, many) for answer, many in turns), repeat(False)).__next__

    def __call__(self, _: bool) -> bool:
        return self._next()


def _difference(engine: Engine, decided: Decided, effects: Sequence[SchedulerEffect]) -> str:
    if digest(told_of(effects)) == decided.digest:
        return ""
    binds = [(effect.uid, effect.node) for effect in effects if isinstance(effect, Bind)]
    for then, now in zip_longest(decided.binds, binds):
        if then != now:
            return f"{_bind(engine, then)} then, {_bind(engine, now)} now"
    others = [(type(effect).__name__, effect) for effect in effects if not isinstance(effect, Bind)]
    for then_other, now_other in zip_longest(decided.others, others):
        was = _other(then_other)
        if was != (found := _other(now_other)):
            return f"{_said(was)} then, {_said(found)} now"
    name = next((f"{effect.namespace}/{effect.name} on node {effect.node}" for effect in effects if isinstance(effect, Bind)), "")
    return f"the same pods and nodes, with other annotations or cards, at {name} or later"


def _bind(engine: Engine, found: tuple[Any, str] | None) -> str:
    return "nothing placed" if found is None else f"pod {engine.state.pods.name_of(str(found[0]))} on node {found[1]}"


def _other(found: tuple[str, Any] | None) -> tuple[str, Any] | None:
    return None if found is None else (found[0], msgspec.msgpack.decode(msgspec.msgpack.encode(found[1])))


def _said(found: tuple[str, Any] | None) -> str:
    if found is None:
        return "nothing"
    kind, value = found
    about = "/".join(filter(None, (value.get("namespace", ""), value.get("name", ""))))
    return " ".join(filter(None, (kind, about, str(value.get("node") or value.get("message") or value.get("phase") or ""))))
