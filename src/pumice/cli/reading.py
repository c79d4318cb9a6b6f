"""Reads the words of a command line by the table of a command (``flags``), as getopt_long does: options anywhere,
``--name=value``, ``-nvalue``, switches in one word, and nothing is an option after ``--``.

The help of a command, made of its table.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from pumice.cli.flags import Command, Context, Parameter
from pumice.model.errors import BadInput, nearest, nearest_word

ON, OFF = frozenset({"1", "true", "t", "yes", "y", "on"}), frozenset({"0", "false", "f", "no", "n", "off"})
HELP = ("-h", "--help")


class Mistake(Exception):
    """The command line has no meaning: a sentence of one line that begins small and has no end. ``words``: of the command
    below the one that was called, whose help would help."""

    words: Sequence[str] = ()

    def __str__(self) -> str:
        return super().__str__().replace("\n", "\\n")


class HelpWanted(Exception):
    """Help was asked for, or has to be shown. ``words``: of the command below the one that was called. ``unasked``: nothing
    was written, and something must be."""

    def __init__(self, command: Command, words: Sequence[str], unasked: bool = False) -> None:
        self.command, self.words, self.unasked = command, words, unasked


def run(command: Command, words: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
    """Call the function of the command that is meant. Raises Mistake and HelpWanted."""
    path: list[str] = []
    left = list(words)
    while command.run is None:
        if not left:
            raise HelpWanted(command, path, unasked=True)
        name = left.pop(0)
        if name in HELP:
            raise HelpWanted(command, path)
        if name not in command.below:
            what = f"option: {name}" if name.startswith("-") else f"command {name!r}"
            raise Mistake(f"no such {what}{_meant(name, command.below)}")
        command = command.below[name]
        path.append(name)
    try:
        values = _read(command, left, path, environment)
    except Mistake as mistake:
        mistake.words = path
        raise
    command.run(**values)


def _read(command: Command, left: list[str], path: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a command's function."""
    if command.rewrite is not None:
        left = command.rewrite(command, left)
    written, positional = _sorted(command, left, path)
    context = Context()
    if command.lenient or command.program:
        own = 0 if command.program else len(command.arguments)
        positional, context.rest = positional[:own], positional[own:]
    values = _values(command, written, positional, context, environment)
    context.given = {name: values[name] for name in written}
    if command.context:
        values[command.context] = context
    return values


def _sorted(command: Command, words: list[str], path: list[str]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the values of the given options, and the words that are no options."""
    options = {name: (one, True) for one in command.parameters for name in one.names}
    options |= {name: (one, False) for one in command.parameters for name in one.off}
    written: dict[str, list[Any]] = {}
    positional: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return written, positional + rest
        if word in HELP and word not in options:
            raise HelpWanted(command, path)
        if not word.startswith("-") or word == "-":
            positional.append(word)
            if command.program:
                return written, positional + rest
            continue
        name, equals, value = word.partition("=")
        if name not in options and not word.startswith("--") and word[:2] in options:
            name, value = word[:2], word[2:]
            equals = "=" if not options[name][0].is_switch else ""
            if not equals:
                rest.insert(0, f"-{value}")
        if name not in options:
            if not command.lenient:
                raise Mistake(f"no such option: {name}{_meant(name, options)}")
            positional.append(word)
            continue
        option, state = options[name]
        if option.is_switch:
            if equals:
                raise Mistake(f"option '{name}' does not take a value")
            written.setdefault(option.name, []).append(state)
        elif option.spec.bare and not equals and (not rest or rest[0].startswith("-")):
            written.setdefault(option.name, []).append("")
        elif equals or rest:
            written.setdefault(option.name, []).append(value if equals else rest.pop(0))
        else:
            raise Mistake(f"option '{name}' requires an argument")
    return written, positional


def _values(command: Command, written: Mapping[str, list[Any]], positional: list[str], context: Context,
            environment: Mapping[str, str]) -> dict[str, Any]:  # fmt: skip
    rest = list(positional)
    values: dict[str, Any] = {}
    for one in sorted(command.parameters, key=lambda one: one.spec.first is None):
        found = list(written.get(one.name, ()))
        if not one.names:
            found, rest = (rest, []) if one.many else (rest[:1], rest[1:])
        values[one.name] = _value(one, found, context, environment)
    if rest:
        raise Mistake(f"got unexpected extra argument{'s' if len(rest) > 1 else ''} ({' '.join(rest)})")
    return values


def _value(one: Parameter, found: list[Any], context: Context, environment: Mapping[str, str]) -> Any:
    """Command line, variable, what the context says, default: the first of them counts."""
    said = next((environment[name] for name in one.spec.envvars if environment.get(name)), None)
    if not found and said is not None:
        found = said.split() if one.many else [said]
    if not found and one.name in context.defaults:
        default = context.defaults[one.name]
        found = list(default) if isinstance(default, list | tuple) else [default]
    if not found:
        if one.required:
            raise Mistake(f"missing {'option' if one.names else 'argument'} {one.called}")
        value = one.default
    else:
        each = [_converted(one, word) for word in found]
        value = each if one.many else each[-1]
    return one.spec.first(context, value) if one.spec.first is not None else value


def _converted(one: Parameter, word: Any) -> Any:
    kind: Any = one.kind
    if one.spec.read is not None:
        try:
            return one.spec.read(str(word))
        except BadInput as error:
            raise Mistake(f"invalid value for {one.called}: {str(error).strip()}") from error
    if isinstance(word, kind) and not issubclass(kind, str):
        return word
    text = str(word)
    if issubclass(kind, Enum):
        if text not in one.choices:
            raise Mistake(f"invalid value for {one.called}: {text!r} is not one of {', '.join(map(repr, one.choices))}")
        return kind(text)
    if kind is bool:
        if text.lower() not in ON | OFF:
            raise Mistake(f"invalid value for {one.called}: {text!r} is not a valid boolean")
        return text.lower() in ON
    try:
        value = kind(text)
    except ValueError:
        raise Mistake(f"invalid value for {one.called}: {text!r} is not a valid {KINDS.get(kind, kind.__name__)}") from None
    low, high = one.spec.least, one.spec.most
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise Mistake(f"invalid value for {one.called}: {text} is not in the range {one.range}")
    return value


KINDS = {int: "integer", float: "number"}


def _meant(name: str, known: Mapping[str, Any]) -> str:
    if not name.startswith("-"):
        return nearest(name, known)
    near = nearest_word(name, known)
    return f"; did you mean {near}?" if near else ""


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
