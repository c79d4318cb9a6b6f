"""Plays of journals: as they were, and with other configurations.

Journals as files: one of them, or a folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.adapters.segments import files_of
from pumice.cli.output import document, plain
from pumice.cli.simulate import print_outcomes
from pumice.journal.playing import Broken
from pumice.journal.reading import Part, parts_of, whole_of
from pumice.journal.records import MAGIC, is_journal
from pumice.model.errors import BadInput, nearest
from pumice.scheduler.inputs import Configure
from pumice.simulation.outcome import Outcome, difference, outcome_of
from pumice.simulation.recorded import AsItWas, Retold, Story, story_of
from pumice.simulation.report import why_lines
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.times import stamp

if TYPE_CHECKING:
    from pumice.journal.reading import Part


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


def told_of(path: Path) -> Story:
    """Return what a journal tells of: of one with gaps, the longest part. Raises BadInput."""
    if not holds_journal(path):
        raise BadInput(f"{path}: no journal of a scheduler; a dump is compared by `pumice simulate --from`")
    parts = read_parts(path)
    stories = [found for part in parts if (found := _story(part)) is not None]
    if not stories:
        raise BadInput(f"{path}: nothing of it can be played")
    longest = max(stories, key=lambda story: story.end - story.begin)
    if len(parts) > 1:
        print(plain(f"{path}: {len(parts)} parts with gaps between them; used is the longest, {stamp(longest.begin)} to "
                    f"{stamp(longest.end)}"), file=sys.stderr)  # fmt: skip
    return longest


def _story(part: Part) -> Story | None:
    try:
        found = story_of(part)
        stamp(found.begin), stamp(found.end)
    except (Broken, OSError, OverflowError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(plain(f"{part.segments[0].name}: {error}; left out"), file=sys.stderr)
        return None
    return found


def as_it_was(story: Story, name: str = "as it was") -> Outcome:
    return _outcome(AsItWas(story), name)


def played_with(story: Story, confs: Sequence[Path], recorded: bool = False) -> list[Outcome]:
    """Play with the journal's own configuration and with others. Raises BadInput where one cannot be used."""
    others = [(str(path), _configuration(path, story)) for path in confs]
    found = [_outcome(Retold(story), "its own configuration")]
    found += [_outcome(Retold(story, conf), name) for name, conf in others]
    return [*found, as_it_was(story)] if recorded else found


def _configuration(path: Path, story: Story) -> Configure:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from None
    parse_scheduler_conf(text, source=str(path))
    return Configure(text, str(path), False, story.conf.devices if story.conf is not None else None)


def _outcome(play: Retold, name: str) -> Outcome:
    play.tell()
    number = len(play.runs)
    return outcome_of(name, play, number, number)


def compare(outcomes: list[Outcome], output: str) -> None:
    """Print outcomes, and in which the others differ from the first. Exit code 1 where the auditor found a fault."""
    if output not in ("table", "text", "json"):
        raise BadInput(f"-o {output!r}: table or json{nearest(output, ('table', 'json'))}")
    first, *others = outcomes
    differences = [difference(first, other) for other in others]
    if output == "json":
        print(document({"variants": outcomes, "differences": differences}))
    else:
        print_outcomes(outcomes, differences)
        for other, found in zip(others, differences, strict=True):
            for line in why_lines(found, first, other):
                print(plain(line))
    for outcome in outcomes:
        for text in outcome.violations:
            print(plain(f"{outcome.variant}: {text}"), file=sys.stderr)
    if any(outcome.violations for outcome in outcomes):
        raise SystemExit(1)
