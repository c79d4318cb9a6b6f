"""The declaration of a command's options beside its function: ``memory: Annotated[str, flags.Option(help="...")] = ""``.

An ``App`` is one command or a group of them. Its ``build`` makes of it the table from which the parser, the help (both in
``reading.py``), the completion and the pages of documentation are made.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

F = TypeVar("F", bound=Callable[..., None])
Rewrite = Callable[["Command", list[str]], list[str]]


@dataclass(slots=True)
class Context:
    """The context that a command receives by a parameter of this type. ``given``: the options that stood on the command line;
    ``defaults``: by parameter, in place of the function's own; ``rest``: words that nobody knows, where these may be."""

    given: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)


class OptionSpec:
    """The declaration of an option or an argument: everything that its type and default do not say."""

    def __init__(self, *names: str, help: str = "", envvar: str | Sequence[str] = (), min: float | None = None,
                 max: float | None = None, metavar: str = "", show_default: bool | str = True, hidden: bool = False,
                 first: Callable[[Context, Any], Any] | None = None, read: Callable[[str], Any] | None = None,
                 bare: bool = False) -> None:  # fmt: skip
        """``first``: called with the value before any other is read, and gives the value that counts. ``read``: makes a value of
        a word, in place of the type; BadInput says why none. ``bare``: the option may stand alone, for the empty word."""
        self.names, self.help, self.metavar, self.hidden, self.first = names, help, metavar, hidden, first
        self.read, self.bare = read, bare
        self.envvars = (envvar,) if isinstance(envvar, str) else tuple(envvar)
        self.least, self.most, self.show_default = min, max, show_default


class Option(OptionSpec):
    """Its names are ``--name`` and, of a switch, ``--no-name``, unless others are given, as ``"-n", "--on/--off"``."""


class Argument(OptionSpec):
    """Without names."""


class Parameter(Struct, frozen=True):
    """One option (it has ``names``) or argument. ``off``: the names by which a switch is off."""

    name: str
    spec: OptionSpec
    kind: type
    many: bool
    default: Any
    required: bool
    names: tuple[str, ...] = ()
    off: tuple[str, ...] = ()

    @property
    def is_switch(self) -> bool:
        return self.kind is bool

    @property
    def choices(self) -> list[str]:
        return [str(member.value) for member in self.kind] if issubclass(self.kind, Enum) else []

    @property
    def shown(self) -> str:
        """As help calls its value, or the argument."""
        if self.spec.metavar:
            return self.spec.metavar
        if not self.names:
            return "|".join(self.choices) or self.name.upper()
        return f"<{'|'.join(self.choices) or ('path' if issubclass(self.kind, Path) else self.kind.__name__)}>"

    @property
    def called(self) -> str:
        """As a mistake names it."""
        return " / ".join(f"'{name}'" for name in self.names) or f"'{self.shown}'"

    @property
    def written(self) -> str:
        """As a list of options begins its line."""
        names = ", ".join(self.names)
        if self.is_switch:
            return f"{names} / {', '.join(self.off)}" if self.off else names
        return " ".join(filter(None, (names, self.shown, "..." if self.many else "")))

    @property
    def meaning(self) -> str:
        """Its help, and what else is known of it."""
        spec, known = self.spec, []
        if spec.envvars:
            known.append(f"env var: {', '.join(spec.envvars)}")
        if default := self._default():
            known.append(f"default: {default}")
        if spec.least is not None or spec.most is not None:
            known.append(self.range)
        if self.required:
            known.append("required")
        return "  ".join(filter(None, (spec.help, f"[{'; '.join(known)}]" if known else "")))

    @property
    def range(self) -> str:
        low, high = self.spec.least, self.spec.most
        return f"{low}<=x<={high}" if low is not None and high is not None else f"x>={low}" if high is None else f"x<={high}"

    def _default(self) -> str:
        shown, value = self.spec.show_default, self.default
        if isinstance(shown, str):
            return f"({shown})"
        if not shown or value is None or value in ("", [], ()):
            return ""
        if self.is_switch:
            return (self.names if value else self.off)[0].lstrip("-") if self.off else ""
        return str(value.value if isinstance(value, Enum) else value)


@dataclass(slots=True)
class Command:
    """A command, or a group of them. ``run``: nothing of a group, which has ``below``. ``lenient``: words that nobody knows
    are the function's own. ``program``: the first word that is no option begins somebody else's command line."""

    run: Callable[..., None] | None
    help: str = ""
    epilog: str = ""
    parameters: Sequence[Parameter] = ()
    below: Mapping[str, Command] = field(default_factory=dict)
    rewrite: Rewrite | None = None
    lenient: bool = False
    program: bool = False
    context: str = ""  # the parameter that wants it

    @property
    def options(self) -> list[Parameter]:
        return [one for one in self.parameters if one.names and not one.spec.hidden]

    @property
    def arguments(self) -> list[Parameter]:
        return [one for one in self.parameters if not one.names]

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        first = self.help.split("\n\n")[0].replace("\n", " ")
        return first.partition(". ")[0].rstrip(".") + "."


@dataclass(slots=True)
class _Row:
    name: str
    function: Callable[..., None]
    epilog: str
    rewrite: Rewrite | None
    lenient: bool
    program: bool


class App:
    """The commands of a module. ``group``: the commands have names even where there is one alone."""

    def __init__(self, help: str = "", epilog: str = "", group: bool = False) -> None:
        self.help, self.epilog, self.group = help, epilog, group
        self._rows: list[_Row] = []

    def command(self, name: str = "", epilog: str = "", rewrite: Rewrite | None = None,
                lenient: bool = False, program: bool = False) -> Callable[[F], F]:  # fmt: skip
        """``rewrite``: what was written as the parser reads it."""

        def register(function: F) -> F:
            called = name or function.__name__.replace("_", "-")
            self._rows.append(_Row(called, function, epilog, rewrite, lenient, program))
            return function

        return register

    def build(self) -> Command:
        """Functions are looked at when somebody asks: one of a group, when it is chosen."""
        if self.group or len(self._rows) > 1:
            return Command(None, self.help, self.epilog, below={row.name: _of_row(row) for row in self._rows})
        (row,) = self._rows
        made = _of_row(row)
        made.help, made.epilog = made.help or self.help, made.epilog or self.epilog
        return made


def _of_row(row: _Row) -> Command:
    found, context = _parameters(row.function)
    text = inspect.cleandoc(row.function.__doc__ or "")
    return Command(row.function, text, row.epilog, found, rewrite=row.rewrite, lenient=row.lenient, program=row.program,
                   context=context)  # fmt: skip


def _parameters(function: Callable[..., None]) -> tuple[list[Parameter], str]:
    hints = typing.get_type_hints(function, include_extras=True)
    found, context = [], ""
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if hint is Context:
            context = name
        else:
            found.append(_parameter(name, hint, parameter.default))
    return found, context


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    spec = next(one for one in hint.__metadata__ if isinstance(one, OptionSpec))
    kind, many = _kind(hint.__origin__)
    required = default is inspect.Parameter.empty
    found = Parameter(name, spec, kind, many, None if required else default, required)
    if isinstance(spec, Argument):
        return found
    written = name.replace("_", "-")
    names = spec.names or ((f"--{written}/--no-{written}",) if kind is bool else (f"--{written}",))
    on = tuple(one.partition("/")[0].strip() for one in names)
    off = tuple(part.strip() for one in names if (part := one.partition("/")[2]))
    return Parameter(name, spec, kind, many, found.default, required, on, off)


def _kind(hint: Any) -> tuple[type, bool]:
    """The type of one value, and whether there may be several."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = (one for one in typing.get_args(hint) if one is not type(None))
    if typing.get_origin(hint) is list:
        return typing.get_args(hint)[0], True
    return hint, False
