"""``pumice completion SHELL``: words that a shell offers, asked of the very commands that will read them."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Annotated, Any, get_args, get_type_hints

import typer

from pumice.cli.asking import ASK_FOR_WORDS

app = typer.Typer(add_completion=False)
Word = tuple[str, str]  # and what it means


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SCRIPTS = {
    Shell.BASH: """\
_{function}() {{
    local IFS=$'\\n'
    COMPREPLY=($({asked} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null | cut -f 1))
}}
complete -o bashdefault -o default -F _{function} {called}
""",
    Shell.ZSH: """\
#compdef {called}
_{function}() {{
    local -a found shown
    found=("${{(@f)$({asked} "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    shown=("${{(@)${{(@)found//:/\\\\:}}/$'\\t'/:}}")
    if [[ -n "$found" ]]; then _describe {called} shown; else _files; fi
}}
compdef _{function} {called}
""",
    Shell.FISH: """\
function _{function}
    set -l words (commandline -opc) (commandline -ct)
    {asked} $words[2..] 2>/dev/null
end
complete -c {called} -f -a '(_{function})'
complete -c {called} -n 'test -z "$(_{function})"' -F
""",
}
HOW = {
    Shell.BASH: "# In ~/.bashrc: source <({program} completion bash)",
    Shell.ZSH: "# In ~/.zshrc, after compinit: source <({program} completion zsh)",
    Shell.FISH: "# Once: {program} completion fish > ~/.config/fish/completions/{program}.fish",
}


@app.command(epilog="Example: source <(pumice completion bash)")
def completion(shell: Annotated[Shell, typer.Argument(help="Whose words to print.")]) -> None:
    """Print what makes a shell complete the words of pumice: commands, options, and their values."""
    print(script(shell, "pumice", ()), end="")


def script(shell: Shell, program: str, short: Sequence[str]) -> str:
    """``short``: further programs, about which ``program`` is asked as if they were commands of its own."""
    parts = [HOW[shell].format(program=program) + "\n"]
    for called in (program, *short):
        asked = " ".join(["command", program, ASK_FOR_WORDS, *([called] if called != program else [])])
        parts.append(SCRIPTS[shell].format(called=called, function=f"{called}_words", asked=asked))
    return "".join(parts)


def answer(words: Sequence[str], commands: Mapping[str, tuple[str, str]]) -> None:
    """Print what may stand in the place of the last of ``words``, a line each: the word, a tab, what it means.

    ``commands``: for each name that may come first where its command is, as ``module`` or ``module:app`` (empty: it takes no
    words), and what it does.
    """
    for word, meaning in _offered(list(words) or [""], commands):
        print(f"{word}\t{meaning}" if meaning else word)


def _offered(words: list[str], commands: Mapping[str, tuple[str, str]]) -> list[Word]:
    *before, begun = words
    if not before:
        return [(name, text) for name, (_, text) in sorted(commands.items()) if name.startswith(begun)]
    name, *given = before
    place = commands.get(name, ("", ""))[0]
    if not place or "--" in given:
        return []
    level = _Level.of(place)
    if given[-1:] == ["="] or begun == "=":  # bash takes --output=json for three words
        given, begun = (given[:-1], begun) if begun != "=" else (given, "")
    level, owed = level.after(given)
    flag, equals, start = begun.partition("=")
    if equals and flag.startswith("-"):
        return [(f"{flag}={value}", "") for value in level.values.get(flag, ()) if value.startswith(start)]
    if owed is not None:
        return [(value, "") for value in owed if value.startswith(begun)]
    found = level.options if begun.startswith("-") else [*level.commands.items(), *((word, "") for word in level.choices)]
    return [(word, text) for word, text in found if word.startswith(begun)]


class _Level:
    """What one command takes, whichever of the two parsers reads it."""

    def __init__(self) -> None:
        self.commands: dict[str, str] = {}
        self.options: list[Word] = [("--help", "Show this message and exit.")]
        self.values: dict[str, Sequence[str]] = {}  # of each option that takes a value: which, if there are only some
        self.choices: Sequence[str] = ()
        self._below: Mapping[str, Any] = {}

    @classmethod
    def of(cls, place: str) -> _Level:
        path, _, name = place.partition(":")
        module = importlib.import_module(path)
        if getattr(module, "PLAIN", False):
            return cls._of_argparse(module.parser())
        return cls._of_framework(typer.main.get_command(getattr(module, name or "app")))

    @classmethod
    def _of_framework(cls, command: Any) -> _Level:
        level = cls()
        level._below = {name: below for name, below in getattr(command, "commands", {}).items() if not below.hidden}
        level.commands = {name: below.get_short_help_str(80) for name, below in level._below.items()}
        chosen_from = _enumerated(command.callback)
        for parameter in command.params:
            choices = chosen_from.get(parameter.name, [])
            if parameter.param_type_name == "argument":
                level.choices = level.choices or choices
            elif not parameter.hidden:
                level._add([*parameter.opts, *parameter.secondary_opts], parameter.help, None if parameter.is_flag else choices)
        return level

    @classmethod
    def _of_argparse(cls, parser: argparse.ArgumentParser) -> _Level:
        level = cls()
        for action in parser._actions:
            if action.option_strings and action.dest != "help":
                takes = None if action.nargs == 0 else [str(choice) for choice in action.choices or ()]
                level._add(action.option_strings, action.help, takes)
        return level

    def _add(self, names: Sequence[str], text: str | None, values: Sequence[str] | None) -> None:
        if "--help" in names:
            return
        self.options += [(name, " ".join((text or "").split())) for name in names]
        if values is not None:
            self.values |= dict.fromkeys(names, values)

    def after(self, words: Sequence[str]) -> tuple[_Level, Sequence[str] | None]:
        """The level that these words lead to, and the values of the option that waits for one."""
        level: _Level = self
        rest: Iterator[str] = iter(words)
        for word in rest:
            if word in level.values:
                if next(rest, None) is None:
                    return level, level.values[word]
            elif word in level._below:
                level = _Level._of_framework(level._below[word])
        return level, None


def _enumerated(function: Callable[..., object] | None) -> dict[str, list[str]]:
    """The words of each parameter that is one of an enumeration. Read off the function: how the framework keeps them changes."""
    if function is None:
        return {}
    found = {}
    for name, hint in get_type_hints(inspect.unwrap(function)).items():
        for kind in (hint, *get_args(hint)):
            if isinstance(kind, type) and issubclass(kind, Enum):
                found[name] = [str(member.value) for member in kind]
    return found
