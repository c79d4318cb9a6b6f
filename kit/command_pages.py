"""The pages of commands, made of the table of their options: docs/reference/commands.md, and roff in docs/man/man1.

``python -m kit.command_pages`` writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pumice.cli import flags, main
from pumice.cli.reading import examples, usage
from pumice_jobs.cli import vcctl
from pumice_jobs.cli.short_forms import APPS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/commands.md"
MAN, OF_LABORATORY = ROOT / "docs/man/man1", ROOT / "lab/docs/man/man1"
Row = tuple[str, str]  # what is written, and what it means


@dataclass(frozen=True)
class Command:
    """The documentation of one command."""

    words: str
    usage: str
    about: Sequence[str]  # paragraphs
    arguments: Sequence[Row]
    options: Sequence[Row]
    examples: Sequence[Row]  # each with what it is for, which may be empty
    below: Sequence[Command]

    def all(self) -> Iterator[Command]:
        yield self
        for command in self.below:
            yield from command.all()


def groups() -> dict[str, list[Command]]:
    """All commands of `pumice`, as its overview has them, and the short forms of vcctl."""
    found = {title: [_of_module(name) for name in rows] for title, rows in main.GROUPS.items()}
    found["Short forms of vcctl"] = [_of_app(name, app) for name, app in APPS.items()]
    return found


def _of_module(name: str) -> Command:
    return _of_app(f"pumice {name}", main.load(name))


def _of_app(words: str, app: flags.App) -> Command:
    return _of_command(words, app.build())


def _of_command(words: str, command: flags.Command) -> Command:
    about = [" ".join(part.split()) for part in command.help.split("\n\n")]
    arguments, options = ([(one.written, one.meaning) for one in part] for part in (command.arguments, command.options))
    below = [_of_command(f"{words} {name}", one) for name, one in command.below.items()]
    return Command(words, usage(command, words), about, arguments, options, examples(command), below)


def markdown() -> str:
    parts = [HEAD]
    for title, commands in groups().items():
        parts.append(f"## {title}\n")
        for command in (one for top in commands for one in top.all()):
            parts.append(f"### {command.words}\n")
            parts += [f"{_marked(paragraph)}\n" for paragraph in command.about]
            parts.append(f"    {command.usage}\n")
            rows = [*command.arguments, *command.options]
            if rows:
                lines = [f"| `{written.replace('|', chr(92) + '|')}` | {_marked(meaning)} |" for written, meaning in rows]
                parts.append("\n".join(["| | |", "|---|---|", *lines]) + "\n")
            if command.examples:
                longest = max(len(line) for line, _ in command.examples)
                lines = [f"{line:<{longest}}  # {reported}" if reported else line for line, reported in command.examples]
                parts.append("\n".join(["```sh", *lines, "```"]) + "\n")
    return "\n".join(parts)


HEAD = """\
# Commands

Made of the commands' own parsers by `python -m kit.command_pages`, as are the man pages (`man pumice-run`). Every command
takes `-h`, `--help`. `pumice` is `kubectl pumice` as well. `vcctl` has `job`, `queue`, `jobflow`, `jobtemplate` and `pod` with
the same options; `kubectl inspect gpushare` is `pumice inspect gpushare`. Where an option has a variable (env var), the option
counts before it.

<!-- all run by tests/scenarios/test_examples_of_commands.py -->
"""


def _marked(text: str) -> str:
    """As a cell of a table: what would end it or would be taken for a tag is written out."""
    return re.sub(r"(`[^`]*`)|([|<*_])", lambda found: found[1] or "\\" + found[2], text)


def man_pages() -> dict[str, str]:
    """By file name."""
    short = [(f"{name}(1)", _of_app(name, app).about[0]) for name, app in APPS.items()]
    lists = {title: [(f"pumice-{name}(1)", text) for name, (_, text) in rows.items()] for title, rows in main.GROUPS.items()}
    pages = {"pumice.1": _program("pumice", _ABOUT, lists, main.EXAMPLES)}
    for command in (one for rows in groups().values() for one in rows):
        pages[f"{command.words.replace(' ', '-')}.1"] = _page(command)
    same = {f"vcctl {name}": f"{text}, as in pumice-{name}(1)" for name, text in vcctl.GROUPS.items()}
    own = {"vcctl completion": vcctl.COMPLETION, "vcctl version": vcctl.VERSION}
    pages["vcctl.1"] = _program("vcctl", "Volcano's command line: Jobs and queues", {
        "Commands": [*same.items(), *own.items()], "Short forms": short}, [("vcctl job list --all-namespaces", "")])  # fmt: skip
    pages["kubectl-pumice.1"] = ".so man1/pumice.1\n"
    pages["kubectl-inspect-gpushare.1"] = ".so man1/pumice-inspect.1\n"
    return pages


_ABOUT = "Fractions of GPUs and NPUs, on one machine or a Kubernetes cluster"


def _program(name: str, about: str, lists: Mapping[str, Sequence[Row]], examples: Sequence[Row]) -> str:
    lines = [*_head(name, about), ".SH SYNOPSIS", f"{_bold(name)} COMMAND [OPTIONS] [ARGUMENTS]"]
    for title, rows in lists.items():
        lines += [f".SH {_quoted(title.upper())}", *_rows(rows)]
    return "\n".join([*lines, *_examples(".SH", examples), ".SH EXIT STATUS", *_EXIT]) + "\n"


_EXIT = ("2 where a person has to change something, with one line on standard error that says what.",)


def _page(command: Command) -> str:
    lines = [*_head(command.words.replace(" ", "-"), command.about[0])]
    if not command.below:
        lines += [*_body(command, ".SH")]
    else:
        lines += [".SH SYNOPSIS", _bold(command.usage), ".SH COMMANDS"]
        lines += [*_rows([(one.words, one.about[0]) for one in command.below]), *_examples(".SH", command.examples)]
        for one in (below for top in command.below for below in top.all()):
            lines += [f".SH {_quoted(one.words.upper())}", *_body(one, ".SS")]
    parent = "vcctl(1)" if " " not in command.words else "pumice(1)"
    return "\n".join([*lines, ".SH SEE ALSO", parent]) + "\n"


def _body(command: Command, level: str) -> Iterator[str]:
    yield from (f"{level} SYNOPSIS", _bold(command.usage), f"{level} DESCRIPTION")
    for at, paragraph in enumerate(command.about):
        yield from ((".PP", _escaped(paragraph)) if at else (_escaped(paragraph),))
    for title, rows in (("ARGUMENTS", command.arguments), ("OPTIONS", command.options)):
        if rows:
            yield from (f"{level} {title}", *_rows(rows))
    yield from _examples(level, command.examples)


def _head(name: str, about: str) -> list[str]:
    first = re.split(r"(?<=\w)[.:](?: |$)", about)[0]
    return [f'.TH {_quoted(name.upper())} 1 "" "Pumice" "Pumice"', ".SH NAME", f"{_escaped(name)} \\- {_escaped(first)}"]


def _rows(rows: Sequence[Row]) -> Iterator[str]:
    for written, meaning in rows:
        yield from (".TP", _bold(written), _escaped(meaning) or "\\&")


def _examples(level: str, examples: Sequence[Row]) -> Iterator[str]:
    if examples:
        yield from (f"{level} EXAMPLES",)
        for line, reported in examples:
            yield from (*((".PP", _escaped(reported)) if reported else ()), ".PP", ".RS 4", ".nf", _escaped(line), ".fi", ".RE")


def _bold(text: str) -> str:
    return f"\\fB{_escaped(text)}\\fR"


def _quoted(text: str) -> str:
    return '"' + _escaped(text).replace('"', "\\(dq") + '"'


def _escaped(text: str) -> str:
    """As groff's groff_char(7) has it; a line that begins with a dot or an apostrophe would be a request."""
    for sign, written in (("\\", "\\e"), ("-", "\\-"), ("`", "\\(ga"), ("'", "\\(aq"), ("~", "\\(ti"), ("^", "\\(ha")):
        text = text.replace(sign, written)
    return f"\\&{text}" if text.startswith(".") else text


def every() -> dict[Path, str]:
    laboratorys = {f"pumice-{name}.1" for name, (module, _) in main.COMMANDS.items() if not module}
    pages = {(OF_LABORATORY if name in laboratorys else MAN) / name: text for name, text in man_pages().items()}
    return {PAGE: markdown(), **pages}


if __name__ == "__main__":
    for old in (*MAN.glob("*.1"), *OF_LABORATORY.glob("*.1")):
        old.unlink()
    for path, text in every().items():
        path.write_text(text, "utf-8")
