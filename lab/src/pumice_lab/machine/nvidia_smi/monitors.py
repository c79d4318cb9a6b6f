"""``nvidia-smi dmon`` and ``pmon``: a line for each card, or for each process on it, again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from pumice_lab.machine.nvidia_smi.cards import MIB, Card, ask, process_name

HEADING_EVERY = 20
"""Looks after which the heading comes again."""
_KEPT_PROCESSES = 15_000_000
"""Microseconds back that a process's load is asked for."""


@dataclass(frozen=True)
class Column:
    """One column; ``read`` gives None where the card does not say."""

    name: str
    unit: str
    read: Callable[[Card], object | None]

    @property
    def width(self) -> int:
        return max(6, len(self.name))


def _engine(call: Callable[[Any], Any]) -> Callable[[Card], object | None]:
    return lambda card: ask(lambda: call(card.handle)[0])


def _of_load(part: int) -> Callable[[Card], object | None]:
    return lambda card: load[part] if (load := card.utilization()) else None


def _watts(card: Card) -> object | None:
    milliwatts = card.power_mw()
    return None if milliwatts is None else round(milliwatts / 1000)


def _used(card: Card) -> object | None:
    memory = card.memory()
    return memory[2] // MIB if memory else None


def _bar1(card: Card) -> object | None:
    bar1 = card.bar1()
    return bar1.bar1Used // MIB if bar1 else None


GROUPS: dict[str, tuple[Column, ...]] = {
    "p": (Column("pwr", "W", _watts), Column("gtemp", "C", Card.temperature), Column("mtemp", "C", lambda card: None)),
    "u": (
        Column("sm", "%", _of_load(0)), Column("mem", "%", _of_load(1)),
        Column("enc", "%", _engine(pynvml.nvmlDeviceGetEncoderUtilization)),
        Column("dec", "%", _engine(pynvml.nvmlDeviceGetDecoderUtilization)),
        Column("jpg", "%", _engine(pynvml.nvmlDeviceGetJpgUtilization)),
        Column("ofa", "%", _engine(pynvml.nvmlDeviceGetOfaUtilization)),
    ),
    "c": (
        Column("mclk", "MHz", lambda card: card.clock(pynvml.NVML_CLOCK_MEM)),
        Column("pclk", "MHz", lambda card: card.clock(pynvml.NVML_CLOCK_SM)),
    ),
    "m": (Column("fb", "MB", _used), Column("bar1", "MB", _bar1), Column("ccpm", "MB", lambda card: 0)),
}  # fmt: skip
"""Choices of ``dmon -s``."""


def cards_once(cards: Sequence[Card], groups: str, heading: bool) -> Iterator[str]:
    columns = [column for group in groups for column in GROUPS[group]]
    if heading:
        yield "# gpu " + " ".join(f"{column.name:>{column.width}}" for column in columns)
        yield "# Idx " + " ".join(f"{column.unit:>{column.width}}" for column in columns)
    for card in cards:
        yield f"{card.index:>5} " + " ".join(_cell(column.read(card), column.width) for column in columns)


def processes_once(cards: Sequence[Card], groups: str, heading: bool) -> Iterator[str]:
    """``groups``: u for load, m for memory."""
    names = [*(["sm", "mem", "enc", "dec", "jpg", "ofa"] if "u" in groups else []), *(["fb", "ccpm"] if "m" in groups else [])]
    units = [*(["%"] * 6 if "u" in groups else []), *(["MB"] * 2 if "m" in groups else [])]
    if heading:
        yield f"# gpu {'pid':>10} {'type':>6} " + " ".join(f"{name:>6}" for name in names) + "    command"
        yield f"# Idx {'#':>10} {'C/G':>6} " + " ".join(f"{unit:>6}" for unit in units) + "    name"
    for card in cards:
        loads = _loads(card) if "u" in groups else {}
        rows = card.processes()
        for kind, process in rows:
            cells: list[object | None] = [*loads.get(process.pid, [None] * 6)] if "u" in groups else []
            cells += [None if process.usedGpuMemory is None else process.usedGpuMemory // MIB, 0] if "m" in groups else []
            reported = " ".join(_cell(cell, 6) for cell in cells)
            yield f"{card.index:>5} {process.pid:>10} {kind:>6} {reported}    {process_name(process.pid).rpartition('/')[2]}"
        if not rows:
            yield f"{card.index:>5} {'-':>10} {'-':>6} " + " ".join(f"{'-':>6}" for _ in names) + "    -"


def _loads(card: Card) -> dict[int, list[object | None]]:
    samples = ask(pynvml.nvmlDeviceGetProcessUtilization, card.handle, 0) or []
    latest = max((sample.timeStamp for sample in samples), default=0)
    return {
        sample.pid: [sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil, None, None]
        for sample in samples
        if sample.timeStamp + _KEPT_PROCESSES > latest
    }


def _cell(value: object | None, width: int) -> str:
    return f"{'-' if value is None else value:>{width}}"
