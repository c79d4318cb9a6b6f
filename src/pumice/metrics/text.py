"""Prometheus' text format 0.0.4, rendered by ourselves: one upstream counter must keep its bare name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Final, Protocol

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Samples = Iterable[tuple[Mapping[str, str], float]]
"""Labels and value of each series."""


class Rendered(Protocol):
    """A metric with its series."""

    def text(self) -> str: ...


def render(families: Iterable[Rendered]) -> str:
    """The text of them all, in that order."""
    return "".join([family.text() for family in families])


@dataclass(slots=True)
class MetricFamily:
    """A counter or gauge with its samples in the order in which they were added; labels are shown in alphabetical order."""

    name: str
    kind: str
    help: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, labels: Mapping[str, str]) -> None:
        self.samples.append((labels, value))

    def text(self) -> str:
        made = [line(self.name, labels_text(sorted(labels.items())), value) for labels, value in self.samples]
        return head(self.name, self.kind, self.help) + "".join(made)


def gauge(name: str, text: str, samples: Samples = ()) -> MetricFamily:
    return MetricFamily(name, "gauge", text, list(samples))


def counter(name: str, text: str, samples: Samples = ()) -> MetricFamily:
    return MetricFamily(name, "counter", text, list(samples))


@dataclass(slots=True)
class Lines:
    """A gauge, or a counter, whose lines were made before."""

    name: str
    help: str
    lines: Iterable[str]
    kind: str = "gauge"

    def text(self) -> str:
        return head(self.name, self.kind, self.help) + "".join(self.lines)


@dataclass(slots=True)
class Histogram:
    """One histogram with fixed buckets; label values are given, and shown, in the order of ``labels``."""

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

    def text(self) -> str:
        made = [head(self.name, "histogram", self.help)]
        bounds = [*map(repr, self.edges), "+Inf"]
        series = self._series if self._series or self.labels else {(): [0] * len(bounds)}
        for values, counts in series.items():
            named = [*zip(self.labels, values, strict=True)]
            total = 0
            for bound, count in zip(bounds, counts, strict=True):
                total += count
                made.append(line(f"{self.name}_bucket", labels_text([*named, ("le", bound)]), total))
            labels = labels_text(named)
            made.append(line(f"{self.name}_sum", labels, repr(self._sums.get(values, 0.0))))
            made.append(line(f"{self.name}_count", labels, total))
        return "".join(made)


def exponential(low: float, high: float, count: int) -> tuple[float, ...]:
    """``count`` bucket edges from ``low`` to ``high``, each a fixed factor above the one before."""
    factor = (high / low) ** (1 / (count - 1))
    return tuple(low * factor**step for step in range(count))


# -- lines --------------------------------------------------------------------------------------------------------


def head(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {_escaped(text)}\n# TYPE {name} {kind}\n"


def line(name: str, labels: str, value: float | str) -> str:
    """One series, of labels that are text; a value that is text stands as it is."""
    shown = value if isinstance(value, str) else number(value)
    return f"{name}{{{labels}}} {shown}\n" if labels else f"{name} {shown}\n"


def labels_text(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join([f'{key}="{escape(value)}"' for key, value in labels])


def also(label: str, values: Iterable[str]) -> list[str]:
    """A further label of each line; its values need no escaping."""
    beginning = f',{label}="'
    return [f'{beginning}{value}"' for value in values]


def last(label: str, values: Iterable[str], shown: Iterable[int]) -> list[str]:
    """The last label of each line, whose values need no escaping, and the number."""
    beginning = f',{label}="'
    return [f'{beginning}{value}"}} {number}\n' for value, number in zip(values, shown, strict=True)]


def alike(name: str, labels: str, ends: Sequence[str]) -> str:
    """The lines of series whose first labels are the same. Joined by that beginning: pages hold them by the ten thousand."""
    beginning = f"{name}{{{labels}"
    return beginning + beginning.join(ends) if ends else ""


def ending(value: float) -> str:
    """The end of a line whose labels are complete."""
    return f"}} {number(value)}\n"


def each(name: str, labels: Iterable[str], endings: Iterable[str]) -> str:
    """A line for each of these labels, with these endings."""
    return alike(name, "", [*map(add, labels, endings)])


def escape(value: str) -> str:
    """A label's value between its quotes."""
    return _escaped(value).replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def number(value: float) -> str:
    """A whole number as one, whatever its type."""
    return str(int(value)) if isinstance(value, int) or (abs(value) < 1e15 and value == int(value)) else repr(float(value))


# -- The usual metrics of the process itself --------------------------------------------------------------------------

# By the names that every runtime's client library uses (Volcano pkg/scheduler/metrics).


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """Figures of a process from the system. ``started`` in Unix seconds."""

    cpu_seconds: float
    resident: int
    virtual: int
    started: float
    open_files: int
    most_files: int


def process_families(reading: ProcessReading | None) -> list[MetricFamily]:
    """None where the system does not tell."""
    if reading is None:
        return []
    return [
        counter("process_cpu_seconds_total", "User and system time", [({}, reading.cpu_seconds)]),
        gauge("process_resident_memory_bytes", "Resident memory", [({}, reading.resident)]),
        gauge("process_virtual_memory_bytes", "Virtual memory", [({}, reading.virtual)]),
        gauge("process_start_time_seconds", "Start, in Unix seconds", [({}, reading.started)]),
        gauge("process_open_fds", "Open file descriptors", [({}, reading.open_files)]),
        gauge("process_max_fds", "File descriptors that may be open", [({}, reading.most_files)]),
    ]
