"""Macros: loops over the elements of a list or the keys of a map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pumice.cel.running import Env, Run, boolean, decided
from pumice.cel.values import CelError, type_of

Element = tuple[tuple[Any, ...], list[Callable[[], Any]]]
"""The values of a macro's variables, and its parts to be worked out with them."""


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro of CEL. ``names``: how many variables it declares."""

    names: int
    fold: Callable[[Iterable[Element]], Any]


def folded(macro: Macro, over: Run, names: list[str], runs: list[Run], cost: int) -> Run:
    """``cost``: what its parts look at, for one element."""

    def run(env: Env) -> Any:
        def each() -> Iterable[Element]:
            for found in _elements(over(env), macro.names):
                env.budget.spend(cost)
                inner = env.inner(dict(zip(names, found, strict=True)))
                yield found, [partial(part, inner) for part in runs]

        return macro.fold(each())

    return run


def _elements(value: Any, names: int) -> Iterable[tuple[Any, ...]]:
    if isinstance(value, Mapping):
        return [(key,) for key in value] if names == 1 else list(value.items())
    if isinstance(value, list):
        return [(item,) for item in value] if names == 1 else list(enumerate(value))
    raise CelError(f"no such overload: a loop over {type_of(value)}")


def _any(decides: bool) -> Callable[[Iterable[Element]], bool]:
    return lambda elements: decided((part for _, (part,) in elements), decides)


def _one(elements: Iterable[Element]) -> bool:
    return sum(boolean(part()) for _, (part,) in elements) == 1


def _filtered(elements: Iterable[Element]) -> list[Any]:
    return [found[0] for found, (part,) in elements if boolean(part())]


def _mapped(elements: Iterable[Element]) -> list[Any]:
    return [parts[-1]() for _, parts in elements if len(parts) == 1 or boolean(parts[0]())]


def _map_of(elements: Iterable[Element]) -> dict[Any, Any]:
    return {found[0]: parts[-1]() for found, parts in elements if len(parts) == 1 or boolean(parts[0]())}


MACROS: Final = {
    ("all", 2): Macro(1, _any(False)), ("exists", 2): Macro(1, _any(True)),
    ("exists_one", 2): Macro(1, _one), ("existsOne", 2): Macro(1, _one),
    ("filter", 2): Macro(1, _filtered), ("map", 2): Macro(1, _mapped), ("map", 3): Macro(1, _mapped),
    ("all", 3): Macro(2, _any(False)), ("exists", 3): Macro(2, _any(True)), ("existsOne", 3): Macro(2, _one),
    ("transformList", 3): Macro(2, _mapped), ("transformList", 4): Macro(2, _mapped),
    ("transformMap", 3): Macro(2, _map_of), ("transformMap", 4): Macro(2, _map_of),
}  # fmt: skip
"""By name and number of arguments (cel-spec, "Macros"; its extension for two variables)."""
