"""``pumice completion SHELL``: words that a shell offers, asked of the very commands that will read them.

Words that no parser knows, offered where one is completed: names of objects, shares of this machine, models of cards.

A parameter says which it takes beside its option: ``Annotated[str, flags.Option(...), names_of(QUEUES)]``. Whoever presses the
tabulator waits, so what does not come at once is not offered; and no error is told in the middle of somebody's line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.model.errors import PumiceError

if TYPE_CHECKING:
    from pumice.ports.cluster import Cluster, Json, Resource
import importlib
import inspect
from dataclasses import replace
from enum import Enum, StrEnum
from typing import Annotated, get_args, get_type_hints

from pumice.cli import ASK_FOR_WORDS, flags

PATIENCE = 1.0
"""Seconds for an API server to answer."""


@dataclass(frozen=True, slots=True)
class Given:
    """The words before the one to complete. ``options`` by the names of their parameters; ``arguments``: what is of no option."""

    options: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    begun: str = ""


@dataclass(frozen=True, slots=True)
class Offers:
    """The candidates of a parameter's value, for completion."""

    words: Callable[[Given], Iterable[str]]

    def of(self, given: Given) -> list[str]:
        try:
            return list(self.words(given))
        except (PumiceError, OSError, ImportError):  # no server, no such file, or an extra that is not installed
            return []


def fixed(*words: str) -> Offers:
    return Offers(lambda _: words)


def names_of(resource: Resource) -> Offers:
    """Names of objects, in the namespace that is given."""
    return Offers(lambda given: names(resource, given))


def names(resource: Resource, given: Given) -> list[str]:
    from pumice.cli.question import ask

    namespace = "" if "all_namespaces" in given.options else given.options.get("namespace", "default")

    async def question(kube: Cluster) -> Json:
        async with asyncio.timeout(PATIENCE):
            return await kube.list(resource, namespace)

    kubeconfig = given.options.get("kubeconfig")
    found = ask(Path(kubeconfig) if kubeconfig else None, given.options.get("master", ""), question)
    return sorted({each["metadata"]["name"] for each in found["items"] or ()})


def _namespaces(given: Given) -> list[str]:
    from pumice.wire.kinds import NAMESPACES

    return names(NAMESPACES, given)


def _shares(given: Given) -> list[str]:
    from pumice.adapters.bookings.book import living
    from pumice.cli.local_view import places

    return [booking.id for place in places(given.options.get("emulated")) for booking in living(place.directory)]


def _models(_: Given) -> list[str]:
    from pumice.model.hardware import preset_names

    return list(preset_names())


NAMESPACES, SHARES, MODELS = map(Offers, (_namespaces, _shares, _models))


app = flags.App()
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
def completion(shell: Annotated[Shell, flags.Argument(help="Whose words to print.")]) -> None:
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
    if begun == "=":  # bash takes --output=json for three words
        given, begun = [*given, "="], ""
    level, known, owed = _Level.of(place).after([word for word in given if word != "="])
    flag, equals, start = begun.partition("=")
    if equals and flag.startswith("-"):
        return [(f"{flag}={value}", "") for value in level.values_of(flag, replace(known, begun=start))]
    if owed:
        return [(value, "") for value in level.values_of(owed, replace(known, begun=begun))]
    found = [*level.commands.items(), *((word, "") for word in level.next_of(replace(known, begun=begun)))]
    if begun.startswith("-") or not level.takes_words:
        found = level.options
    return [(word, text) for word, text in found if word.startswith(begun)]


class _Level:
    """The options and arguments of one command."""

    def __init__(self) -> None:
        self.commands: dict[str, str] = {}
        self.options: list[Word] = [("--help", "Show this message and exit.")]
        self._parameters: dict[str, str] = {}  # of each option: which it gives
        self._values: dict[str, Offers] = {}  # of each option that takes a value: which, as far as they are known
        self._arguments: list[Offers] = []
        self._below: Mapping[str, flags.Command] = {}

    @classmethod
    def of(cls, place: str) -> _Level:
        path, _, name = place.partition(":")
        module = importlib.import_module(path)
        app: flags.App = getattr(module, name or "app")
        return cls._of_command(app.build())

    @classmethod
    def _of_command(cls, command: flags.Command) -> _Level:
        level = cls()
        level._below = command.below
        level.commands = {name: below.summary for name, below in command.below.items()}
        known = _offers(command.run)
        level._arguments = [known.get(one.name, NOTHING) for one in command.arguments]
        for one in command.options:
            level._add(one.name, [*one.names, *one.off], one.spec.help, None if one.is_switch else known.get(one.name, NOTHING))
        return level

    def _add(self, parameter: str, names: Sequence[str], text: str | None, values: Offers | None) -> None:
        if "--help" in names:
            return
        self.options += [(name, " ".join((text or "").split())) for name in names]
        self._parameters |= dict.fromkeys(names, parameter)
        if values is not None:
            self._values |= dict.fromkeys(names, values)

    @property
    def takes_words(self) -> bool:
        """True if anything but options may follow."""
        return bool(self._below or self._arguments)

    def values_of(self, option: str, given: Given) -> list[str]:
        return [value for value in self._values.get(option, NOTHING).of(given) if value.startswith(given.begun)]

    def next_of(self, given: Given) -> list[str]:
        """Return the candidates of the next argument; the last one may be given again."""
        if not self._arguments:
            return []
        return self._arguments[min(len(given.arguments), len(self._arguments) - 1)].of(given)

    def after(self, words: Sequence[str]) -> tuple[_Level, Given, str]:
        """The level that these words lead to, what they give there, and the option that waits for its value."""
        level, options, arguments = self, dict[str, str](), list[str]()
        rest = iter(words)
        for word in rest:
            flag, equals, value = word.partition("=")
            if word in level._below:
                level, options, arguments = _Level._of_command(level._below[word]), {}, []
            elif flag not in level._parameters:
                arguments += [word] if not word.startswith("-") else []
            elif equals or flag not in level._values:
                options[level._parameters[flag]] = value
            elif (following := next(rest, None)) is not None:
                options[level._parameters[flag]] = following
            else:
                return level, Given(options, arguments), flag
        return level, Given(options, arguments), ""


NOTHING = fixed()


def _offers(function: Callable[..., object] | None) -> dict[str, Offers]:
    """The words of each parameter: those declared beside it, else the members of an enumeration."""
    if function is None:
        return {}
    found = {}
    for name, hint in get_type_hints(inspect.unwrap(function), include_extras=True).items():
        said = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Offers)), None)
        bare = hint.__origin__ if hasattr(hint, "__metadata__") else hint
        kinds = [kind for kind in (bare, *get_args(bare)) if isinstance(kind, type) and issubclass(kind, Enum)]
        if said is not None:
            found[name] = said
        elif kinds:
            found[name] = fixed(*(str(member.value) for member in kinds[0]))
    return found
