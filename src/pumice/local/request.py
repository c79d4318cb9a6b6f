"""The request of a command line, in units. Every mistake is one line that says what would be right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from pumice.model.amount import mebibytes
from pumice.model.errors import BadInput

AUTO, ALL = "auto", "all"
SLICE = "a MIG slice is a share already, which the hardware keeps; run the program on it without `pumice run`"
MEMORY = "MiB such as 3000, with a unit such as 3GiB, or a share of the card's such as 25%; without --memory it is all of it"
CARD = r"[0-9]{1,3}|GPU-[0-9A-Fa-f-]+"
MOST_CARDS = 16
"""As many as a region has entries (HAMi-core src/multiprocess/multiprocess_memory_limit.h)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A share of each of ``count`` cards: ``memory`` MiB or, where that is 0, ``percent`` of it; ``cores`` 0: no limit.

    ``cards`` are the ones to choose from, NVML's indices or UUIDs, none for any: those with the most room. ``count`` 0: all.
    ``each`` says instead what is wanted of each card, where that is not the same. ``source`` is what named the cards.
    """

    memory: int = 0
    percent: int = 0
    cores: int = 0
    cards: tuple[str, ...] = ("0",)
    count: int = 1
    priority: int = 1
    each: tuple[Request, ...] = ()
    source: str = "--gpu"

    @property
    def words(self) -> str:
        memory = f"{self.memory} MiB" if self.memory else f"{self.percent or 100} % of the memory"
        return f"{memory} and {self.cores} % of the cores" if self.cores else memory


def parse_memory(text: str) -> tuple[int, int]:
    """``3000`` (MiB), ``3GiB`` or ``25%`` as (MiB, percent), one of them 0. Raises BadInput."""
    if match := re.fullmatch(r"([0-9]{1,10})\s*%", text.strip()):
        percent = int(match[1])
        if not 1 <= percent <= 100:
            raise BadInput(f"--memory {text}: a percentage of the card's memory is 1% to 100%")
        return 0, percent
    return mebibytes("--memory", text, least=1, how=MEMORY), 0


def parse_shares(memory: str | None, cores: str, cards: Sequence[str], count: int, priority: int = 1,
                 source: str = "--gpu") -> Request:  # fmt: skip
    """``--memory`` and ``--cores``, one for all cards or, where ``cards`` are all wanted, ``3000,8000``: one for each.

    ``memory`` None: all of the card's. Raises BadInput.
    """
    if "," not in f"{memory}{cores}":
        amount, percent = (0, 100) if memory is None else parse_memory(memory)
        return Request(amount, percent, parse_cores(cores), tuple(cards), count, priority, source=source)
    if len(cards) != count:
        raise BadInput(f"{_several(memory, cores)}: one for each card, so name the cards with --gpu")
    memories = [memory] * count if memory is None else per_card("--memory", memory, count)
    each = [
        parse_shares(one, percent, [card], 1, priority, source)
        for one, percent, card in zip(memories, per_card("--cores", cores, count), cards, strict=True)
    ]
    return Request(cards=tuple(cards), count=count, priority=priority, each=tuple(each), source=source)


def per_card(option: str, text: str, count: int) -> list[str]:
    """One value for all of so many cards, or one for each. Raises BadInput."""
    values = text.split(",")
    if len(values) not in (1, count):
        there = "one card" if count == 1 else f"{count} cards"
        raise BadInput(f"{option} {text}: {len(values)} values for {there}; give one for all, or one for each")
    return values * (count // len(values))


def _several(memory: str | None, cores: str) -> str:
    return f"--memory {memory}" if memory is not None and "," in memory else f"--cores {cores}"


def parse_cores(text: str) -> int:
    """``50`` or ``50%``: percent of the card's compute. Raises BadInput."""
    match = re.fullmatch(r"([0-9]{1,10})%?", text.strip())
    if match is None or not 0 <= int(match[1]) <= 100:
        raise BadInput(f"--cores {text}: percent of the card's compute from 1 to 100; 0 sets no limit")
    return int(match[1])


def parse_priority(text: str) -> int:
    """0 or 1: nothing else has a meaning on the wire (HAMi-core src). Raises BadInput."""
    if text.strip() not in ("0", "1"):
        raise BadInput(f"--priority {text}: 0 is high, 1 is low (the default)")
    return int(text)


class Chosen(NamedTuple):
    """The cards to choose from, how many of them (0: all), and what named them."""

    cards: tuple[str, ...]
    number: int
    source: str = "--gpu"


def parse_cards(gpu: str | None, gpus: str | None, visible: str | None = None) -> Chosen:
    """``--gpu`` and ``--gpus`` as cards to choose from and how many of them. Raises BadInput.

    ``--gpu`` names cards by index or UUID and wants all that it names; ``auto`` and ``--gpus N`` leave the choice, ``all`` takes
    every card. ``visible`` is CUDA_VISIBLE_DEVICES, None where it is not set: it bounds the choice where no card is named.
    """
    count = _parse_count(gpus)
    if gpu is None or gpu.strip().lower() in (AUTO, ALL):
        all_of_them = ALL in (gpu and gpu.strip().lower(), gpus and gpus.strip().lower())
        if gpu is not None and gpus is not None and all_of_them:
            raise BadInput(f"--gpu {gpu} --gpus {gpus}: say either how many cards or all of them")
        shown = _in_view(visible)
        if gpu is gpus is None:
            return Chosen(shown[:1] or ("0",), 1, _source(visible) if shown else "--gpu")
        return Chosen(shown, 0 if all_of_them else max(1, count), _source(visible))
    named = tuple(name.strip() for name in gpu.split(","))
    for name in named:
        if name.upper().startswith("MIG-"):
            raise BadInput(f"--gpu {name}: {SLICE}: CUDA_VISIBLE_DEVICES={name}")
        if not re.fullmatch(CARD, name):
            raise BadInput(f"--gpu {gpu}: the number of a card such as 0, its UUID (GPU-...), several as 0,1, {AUTO}, or {ALL}")
    if len(set(map(str.lower, named))) < len(named):
        raise BadInput(f"--gpu {gpu}: names a card twice")
    if len(named) > MOST_CARDS:
        raise BadInput(f"--gpu: {len(named)} cards, and a program may hold {MOST_CARDS}")
    if gpus is not None:
        raise BadInput(f"--gpu {gpu} --gpus {gpus}: the one names the cards and the other counts them; one of the two is enough")
    return Chosen(named, len(named))


def _in_view(visible: str | None) -> tuple[str, ...]:
    """The cards that CUDA_VISIBLE_DEVICES leaves in view, as CUDA reads it: up to the first name that is none. None for all.

    Raises BadInput where it leaves none."""
    if visible is None:
        return ()
    listed = [name.strip() for name in visible.split(",")]
    if listed[0].startswith("MIG-"):
        raise BadInput(f"{_source(visible)}: {SLICE}, or name a card that is not in MIG mode with --gpu")
    shown = tuple(takewhile(lambda name: re.fullmatch(CARD, name), listed))
    if not shown:
        raise BadInput(f"{_source(visible)}: CUDA shows a program no card then, so there is none to share; unset it, or name a "
                       "card with --gpu")  # fmt: skip
    return shown


def _source(visible: str | None) -> str:
    return f"CUDA_VISIBLE_DEVICES={visible or ''}"


def _parse_count(text: str | None) -> int:
    if text is None or text.strip().lower() == ALL:
        return 0
    if not re.fullmatch(r"[0-9]{1,3}", text.strip()) or not 1 <= int(text) <= MOST_CARDS:
        raise BadInput(f"--gpus {text}: how many cards, 1 to {MOST_CARDS} or {ALL}; --gpu names them")
    return int(text)
