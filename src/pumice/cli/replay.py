"""``pumice replay``: repeat the decisions of a dump or a journal; and ``pumice diff``: what started earlier, later or never, of
two journals or of one under other configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.output import document, plain
from pumice.model.errors import BadInput
from pumice.wire.times import stamp

app = flags.App()
compared = flags.App()


@app.command(epilog="Examples: pumice replay case.json;  pumice replay journal --conf new.conf")
def replay(
    file: Annotated[Path, flags.Argument(help="A file written by `pumice dump`, or a journal: one of its files or its folder.")],
    conf: Annotated[
        list[Path] | None, flags.Option(help="Play a journal's world with this scheduler configuration; may be given again.")
    ] = None,
    output: Annotated[str, flags.Option("-o", "--output", help="text or json.")] = "text",
) -> None:
    """Repeat the decisions of a dump or of a scheduler's journal, and compare them with those that are written there.

    Of a dump it is one cycle; of a journal every cycle, bit for bit. Exit code 1 when they differ: another version of Pumice, or
    another configuration, decides otherwise. With --conf what arrived then arrives again, in simulated time, and is placed as
    that configuration places it. Each pod runs for its recorded time from its new start.
    """
    # Only here: help and completion need no engine.
    from pumice.cli.journal_plays import holds_journal

    if conf:
        from pumice.cli.journal_plays import compare, played_with, told_of

        story = told_of(file)
        compare(played_with(story, conf, recorded=True), output)
        return
    same = _journal(file, output) if holds_journal(file) else _dump(file, output)
    if not same:
        raise SystemExit(1)


def _dump(file: Path, output: str) -> bool:
    from pumice.cli.cluster_snapshot import decisions_of, load

    snapshot = load(file)
    now = decisions_of(snapshot)
    if output == "json":
        print(document({"same": now == snapshot.decisions, "decisions": now, "written": snapshot.decisions}))
        return now == snapshot.decisions
    for decision in now:
        mark = " " if decision in snapshot.decisions else "+"
        print(f"{mark} {sentence(decision)}")
    for decision in snapshot.decisions:
        if decision not in now:
            print(f"- {sentence(decision)}")
    print("the same decisions as in the file" if now == snapshot.decisions else "the decisions differ (+ now, - in the file)")
    return now == snapshot.decisions


def _journal(path: Path, output: str) -> bool:
    from pumice.cli.journal_plays import read_parts
    from pumice.journal.playing import Broken, Played, play

    cycles, placed, differing = 0, 0, 0
    first: Played | None = None
    begin = end = 0.0
    faults: list[str] = []
    for part in read_parts(path):
        try:
            for played in play(part):
                cycles, placed, end = cycles + 1, placed + len(played.decided.binds), played.wall
                begin = begin or played.wall
                if played.differs:
                    differing, first = differing + 1, first or played
                    break  # what follows rests on other decisions
        except Broken as error:
            faults.append(f"{part.segments[0].name}: {error}")
    difference = None if first is None else {"time": stamp(first.wall), "text": first.differs}
    if output == "json":
        print(document({"same": not differing and not faults, "cycles": cycles, "placed": placed, "begin": stamp(begin),
                        "end": stamp(end), "difference": difference, "faults": faults}))  # fmt: skip
        return not differing and not faults
    for fault in faults:
        print(plain(fault))
    span = f"{cycles:,} cycles with {placed:,} placements, {stamp(begin)} to {stamp(end)}"
    if difference is not None:
        print(plain(f"{span}: the first difference is at {difference['time']}: {difference['text']}"))
    elif not faults:
        print(f"{span}: every decision is the same, bit for bit")
    return not differing and not faults


def sentence(decision: dict[str, str]) -> str:
    """One decision as people read it."""
    if "waits" in decision:
        return f"{decision['pod']} waits: {decision['waits']}"
    devices = f" with {decision['devices']}" if decision.get("devices") else ""
    return f"{decision['pod']} -> {decision['node']}{devices}"


@compared.command(epilog="Examples: pumice diff monday tuesday;  pumice diff journal --conf new.conf")
def diff(
    journal: Annotated[Path, flags.Argument(help="A journal of a scheduler: one of its files or its folder.")],
    other: Annotated[Path | None, flags.Argument(help="Another one.")] = None,
    conf: Annotated[
        list[Path] | None, flags.Option(help="Instead of another one: the same, played with this configuration; again for more.")
    ] = None,
    output: Annotated[str, flags.Option("-o", "--output", help="table or json.")] = "table",
) -> None:
    """Compare two journals of schedulers, or one with itself under other configurations: which pods start earlier, later or never
    and why, the hours of cards that idle, and both by queue.

    Two journals are compared as they were, pod by pod where both know its name. With --conf both sides are played in
    simulated time, the first one with the journal's own configuration, so that nothing but the configuration differs.
    """
    # Only here: help and completion need no engine.
    from pumice.cli.journal_plays import as_it_was, compare, played_with, told_of

    if (other is None) == (not conf):
        raise BadInput("name another journal, or a configuration with --conf: one of them")
    if other is None:
        compare(played_with(told_of(journal), conf or []), output)
    else:
        compare([as_it_was(told_of(journal), str(journal)), as_it_was(told_of(other), str(other))], output)
