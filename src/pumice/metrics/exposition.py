"""Prometheus' text format 0.0.4, rendered by ourselves: one upstream counter must keep its bare name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Family:
    """One metric with its samples, in the order in which they were added."""

    name: str
    kind: str
    help: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, labels: Mapping[str, str]) -> None:
        self.samples.append((labels, value))


def render(families: Iterable[Family]) -> str:
    """The text of all families that have samples; labels in alphabetical order."""
    return "".join(_family(family) for family in families if family.samples)


def _family(family: Family) -> str:
    head = f"# HELP {family.name} {_escaped(family.help, quote=False)}\n# TYPE {family.name} {family.kind}\n"
    return head + "".join(f"{family.name}{_labels(labels)} {_number(value)}\n" for labels, value in family.samples)


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{key}="{_escaped(value, quote=True)}"' for key, value in sorted(labels.items()))
    return f"{{{inner}}}" if inner else ""


def _escaped(text: str, quote: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
