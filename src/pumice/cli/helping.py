"""The help of a command, made of its table."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from pumice.cli.flags import Command

BETWEEN_EXAMPLES = ";  "
ABOUT_EXAMPLE = "  # "
"""In the epilog of a command."""
WIDEST, NARROWEST, MARGIN, GAP, INDENT = 80, 50, 2, 2, 2
COLUMN = 30
"""Options that are longer than this have their help on the next line."""
ABOUT_HELP = ("-h, --help", "Show this message and exit.")


def help_of(command: Command, called: str) -> str:
    """``called``: the words before what help is about."""
    width = max(min(shutil.get_terminal_size().columns, WIDEST) - MARGIN, NARROWEST)
    parts = [f"Usage: {usage(command, called)}"]
    parts += [_filled(paragraph, width) for paragraph in command.help.split("\n\n") if paragraph]
    arguments = [(one.written, one.meaning) for one in command.arguments]
    below = [(name, one.summary) for name, one in command.below.items()]
    for title, rows in (("Arguments", arguments), ("Options", [*((o.written, o.meaning) for o in command.options), ABOUT_HELP]),
                        ("Commands", below)):  # fmt: skip
        if rows:
            parts.append("\n".join([f"{title}:", *_columns(rows, width)]))
    if lines := examples(command):
        shown = [f"{' ' * depth}{text}" for line, reported in lines for depth, text in ((4, line), (8, reported)) if text]
        parts.append("\n".join(["  Examples:" if len(lines) > 1 else "  Example:", *shown]))
    return "\n\n".join(parts)


def usage(command: Command, called: str) -> str:
    if command.run is None:
        return f"{called} [OPTIONS] COMMAND [ARGS]..."
    if command.program:
        return f"{called} [OPTIONS] -- COMMAND [ARGUMENTS]"
    words = [f"{one.shown if one.required else f'[{one.shown}]'}{'...' if one.many else ''}" for one in command.arguments]
    return " ".join([called, "[OPTIONS]", *words])


def examples(command: Command) -> list[tuple[str, str]]:
    """As they are typed, each with what it is for where that is said."""
    _, _, lines = command.epilog.partition(": ")
    found = [line.partition(ABOUT_EXAMPLE) for line in lines.split(BETWEEN_EXAMPLES)] if lines else []
    return [(line, reported) for line, _, reported in found]


def _filled(paragraph: str, width: int) -> str:
    return textwrap.fill(" ".join(paragraph.split()), width, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT,
                         break_on_hyphens=False)  # fmt: skip


def _columns(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    first = min(max(len(written) for written, _ in rows), COLUMN)
    lines = []
    for written, meaning in rows:
        reported = textwrap.wrap(meaning, width - INDENT - first - GAP, break_on_hyphens=False)
        if len(written) > first:
            lines.append(f"{'':{INDENT}}{written}")
        else:
            lines.append(f"{'':{INDENT}}{written:<{first + GAP}}{reported.pop(0) if reported else ''}".rstrip())
        lines += [f"{'':{INDENT + first + GAP}}{line}" for line in reported]
    return lines
