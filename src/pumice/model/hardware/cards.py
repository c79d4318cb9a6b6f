"""Presets of cards by name (``cards.toml``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True)
class CardPreset:
    """One product.

    ``name`` is NVML's, ``memory`` what NVML reports as total and ``reserved`` what the driver keeps of it (MiB),
    ``l2`` the cache in MiB, ``bus`` the memory bus in bits, clocks in MHz, power in W, ``mig`` a table of ``mig.toml``
    or empty.
    """

    key: str
    name: str
    memory: int
    sms: int
    compute: tuple[int, int]
    architecture: str
    pci_id: int
    sm_clock: int
    memory_clock: int
    power: int
    reserved: int = 0
    l2: float = 0
    bus: int = 0
    nvlinks: int = 0
    mig: str = ""


@cache
def presets() -> dict[str, CardPreset]:
    """Every preset by its key, in the file's order."""
    rows = table("cards")
    return {key: _preset(key, row) for key, row in rows.items()}


def preset(key: str) -> CardPreset:
    """The preset called ``key``; raises ``KeyError`` when there is none."""
    return presets()[key]


def preset_names() -> tuple[str, ...]:
    return tuple(presets())


def presets_called(text: str) -> tuple[str, ...]:
    """Return the names of the presets that people mean by a text: the one of that name, or those in which all its words stand
    side by side. ``T4`` is one card, ``H100`` three, and ``A10`` none of them."""
    found = tuple(key for key in presets() if is_called(key, text))
    return next(((key,) for key in found if _words(key) == _words(text)), found)


def is_called(name: str, text: str) -> bool:
    """Say whether all words of a text stand side by side in the name of a card."""
    return bool(text.strip()) and f" {_words(text)} " in f" {_words(name)} "


def _words(text: str) -> str:
    return " ".join(text.casefold().replace("-", " ").split())


def _preset(key: str, row: dict[str, object]) -> CardPreset:
    facts = dict(row)
    major, minor = str(facts.pop("compute")).split(".")
    sm_clock, memory_clock = facts.pop("clocks")  # type: ignore[misc]
    return CardPreset(
        key=key,
        compute=(int(major), int(minor)),
        sm_clock=sm_clock,  # type: ignore[has-type]
        memory_clock=memory_clock,  # type: ignore[has-type]
        **facts,  # type: ignore[arg-type]
    )


# -- The tables of facts beside this file -----------------------------------------------------------------------------

# Their parser is loaded when a table is read first: most programs read none.


def table(name: str) -> dict[str, Any]:
    import tomllib
    from importlib import resources

    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))
