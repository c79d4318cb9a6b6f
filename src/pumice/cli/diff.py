"""``pumice diff``: what started earlier, later or never, of two journals or of one under other configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pumice.cli import flags

app = flags.App()


@app.command(epilog="Examples: pumice diff monday tuesday;  pumice diff journal --conf new.conf")
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
    from pumice.model.errors import BadInput

    if (other is None) == (not conf):
        raise BadInput("name another journal, or a configuration with --conf: one of them")
    if other is None:
        compare(played_with(told_of(journal), conf or []), output)
    else:
        compare([as_it_was(told_of(journal), str(journal)), as_it_was(told_of(other), str(other))], output)
