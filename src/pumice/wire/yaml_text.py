"""YAML as libyaml reads it, which takes a sixth of the time that PyYAML takes in Python. What it refuses is read again in Python,
whose words and lines are those that people are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

T = TypeVar("T")
Loader = Any
"""A loader of PyYAML's, whichever parser it has."""


def _quick() -> Callable[[str | bytes], Loader]:
    if not yaml.__with_libyaml__:
        return yaml.SafeLoader
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class Quick(Composer, CParser, SafeConstructor, Resolver):
        """Nodes are composed in Python: what nests too deeply is a RecursionError there, where C would have no stack left."""

        def __init__(self, text: str | bytes) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)

    return Quick


_QUICK: Final = _quick()


def read(text: str | bytes, look: Callable[[Loader], T]) -> T:
    """Return the result of ``look`` on a loader. Raises YAMLError as the loader in Python does, and what ``look`` raises."""
    try:
        return _with(_QUICK, text, look)
    except (yaml.YAMLError, UnicodeEncodeError):  # half of a surrogate pair has no bytes that libyaml could read
        return _with(yaml.SafeLoader, text, look)


def has_key(text: str, *keys: str) -> bool:
    """Return whether a line begins with one of these keys, whatever else stands there."""
    return any(f"\n{key}:" in f"\n{text}" for key in keys)


def safe_load(text: str | bytes) -> Any:
    """One document, as ``yaml.safe_load`` reads it."""
    return read(text, lambda loader: loader.get_single_data())


def safe_load_all(text: str | bytes) -> list[Any]:
    """Every document, as ``yaml.safe_load_all`` reads them."""

    def all_of(loader: Loader) -> list[Any]:
        found = []
        while loader.check_data():
            found.append(loader.get_data())
        return found

    return read(text, all_of)


def _with(make: Callable[[str | bytes], Loader], text: str | bytes, look: Callable[[Loader], T]) -> T:
    loader = make(text)
    try:
        return look(loader)
    finally:
        loader.dispose()
