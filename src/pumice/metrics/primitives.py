"""Counters and histograms with fixed buckets, rendered as Prometheus text (spec volcano-core 22)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]


def exponential(low: float, high: float, count: int) -> tuple[float, ...]:
    """``count`` bucket edges from ``low`` to ``high``, each a fixed factor above the one before."""
    factor = (high / low) ** (1 / (count - 1))
    return tuple(low * factor**step for step in range(count))


@dataclass(slots=True)
class Histogram:
    """One histogram family; label values are given in the order of ``labels``."""

    name: str
    help: str
    edges: tuple[float, ...]
    labels: tuple[str, ...] = ()
    _series: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    _sums: dict[tuple[str, ...], float] = field(default_factory=dict)

    def observe(self, value: float, *labels: str) -> None:
        counts = self._series.get(labels)
        if counts is None:
            counts = self._series[labels] = [0] * (len(self.edges) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self.edges, value)] += 1
        self._sums[labels] += value

    def forget(self, *labels: str) -> None:
        self._series.pop(labels, None)
        self._sums.pop(labels, None)

    def lines(self) -> Iterable[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} histogram"
        series = self._series if self._series or self.labels else {(): [0] * (len(self.edges) + 1)}
        for values, counts in series.items():
            named = [*zip(self.labels, values, strict=True)]
            total = 0
            for edge, count in zip((*self.edges, float("inf")), counts, strict=True):
                total += count
                bound = "+Inf" if edge == float("inf") else repr(edge)
                yield f"{self.name}_bucket{render_labels([*named, ('le', bound)])} {total}"
            yield f"{self.name}_sum{render_labels(named)} {self._sums.get(values, 0.0)}"
            yield f"{self.name}_count{render_labels(named)} {total}"


def family(name: str, kind: str, help_text: str, series: Iterable[tuple[Mapping[str, str], float]]) -> Iterable[str]:
    """A counter or gauge family from (labels, value)."""
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in series:
        yield f"{name}{render_labels(labels.items())} {number(value)}"


def render_labels(labels: Iterable[tuple[str, str]]) -> str:
    text = ",".join(f'{key}="{escape(value)}"' for key, value in labels)
    return f"{{{text}}}" if text else ""


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
