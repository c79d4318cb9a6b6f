"""The result of a play as plain data, and the differences between two of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from pumice.audit.amounts import requests
from pumice.audit.auditor import Books
from pumice.audit.card_rules import wants
from pumice.simulation.meter import AMOUNTS, Sample, Shape, lost, shapes_of
from pumice.simulation.play import PodRun, Simulation
from pumice.wire import names

CLASSES = ("no card", "share of a card", "one card", "several cards")


@dataclass(frozen=True, slots=True)
class Part:
    """The pods of a queue or a class, or all of them. Waits are in seconds, and count what who has no place has waited so far."""

    pods: int
    placed: int
    wait_p50: float
    wait_p99: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one variant. ``mean`` and ``end`` are per cent of all: over the time in which pods arrived, and when the last
    one had come. ``fits_no_node``: pods larger than any node, were it empty."""

    variant: str
    whole: Part
    seconds: float
    interrupted: bool
    evictions: int
    failures: int
    mean: Mapping[str, float]
    end: Mapping[str, float]
    queues: Mapping[str, Part]
    classes: Mapping[str, Part]
    fits_no_node: Sequence[str]
    violations: Sequence[str]
    samples: Sequence[Sample] = ()
    starts: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    """Of each pod that got a place: seconds that it waited, and the node."""
    waits: Sequence[str] = ()
    """Pods without a place at the end."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The pods that fare otherwise in ``variant`` than in ``base``."""

    base: str
    variant: str
    placed_only_there: Sequence[str]
    placed_only_in_base: Sequence[str]
    sooner: Sequence[str]
    later: Sequence[str]


def outcome_of(variant: str, simulation: Simulation, submitted: int, arrived: int) -> Outcome:
    """Sum a play up, of which so many submissions had arrived when it ended."""
    runs, meter, now = simulation.runs, simulation.meter, simulation.now - simulation.begin
    card = max((card.total for card in simulation.books.cards.values()), default=0)
    queues: dict[str, list[PodRun]] = defaultdict(list)
    classes: dict[str, list[PodRun]] = {name: [] for name in CLASSES}
    kinds: dict[int, str] = {}
    for run in runs:
        queues[_queue(run)].append(run)
        kind = kinds.get(id(run.template)) or kinds.setdefault(id(run.template), class_of(run.template, card))
        classes[kind].append(run)
    stranded = [sample.stranded for sample in meter.samples]
    return Outcome(
        variant, _part(runs, now), now, arrived < submitted, simulation.evictions, simulation.failures,
        {**{name: _percent(meter.mean(name)) for name in AMOUNTS},
         "fragmentation": _percent(sum(stranded) / len(stranded) if stranded else 0.0)},
        {**{name: _percent(meter.last(name)) for name in AMOUNTS}, "fragmentation": _percent(stranded[-1] if stranded else 0.0)},
        {name: _part(queues[name], now) for name in sorted(queues)},
        {name: _part(found, now) for name, found in classes.items() if found},
        too_large(simulation.books, runs), simulation.violations, meter.samples,
        {run.key: (round(run.started - run.arrived, 3), run.node) for run in runs if run.started is not None},
        [run.key for run in runs if run.started is None],
    )  # fmt: skip


def difference(base: Outcome, other: Outcome, by: float = 1.0) -> Difference:
    """Compare the pods of two plays; sooner and later mean by more than so many seconds."""
    both = base.starts.keys() & other.starts.keys()
    gain = {key: base.starts[key][0] - other.starts[key][0] for key in base.starts if key in both}
    return Difference(
        base.variant, other.variant,
        [key for key in other.starts if key not in both],
        [key for key in base.starts if key not in both],
        [key for key in sorted(gain, key=gain.__getitem__, reverse=True) if gain[key] > by],
        [key for key in sorted(gain, key=gain.__getitem__) if gain[key] < -by],
    )  # fmt: skip


def class_of(template: Mapping[str, Any], card: int) -> str:
    """Return which class a pod is of, by the memory of a card."""
    asked = wants(template)
    number = sum(want.number for want in asked)
    if number != 1:
        return CLASSES[3] if number else CLASSES[0]
    whole = asked[0].percent >= 100 or asked[0].cores >= 100 or asked[0].memory >= card
    return CLASSES[2] if whole else CLASSES[1]


def too_large(books: Books, runs: Iterable[PodRun]) -> list[str]:
    """The pods without a place that are larger than any node, were it empty."""
    waiting: dict[int, list[PodRun]] = defaultdict(list)
    for run in runs:
        if run.started is None:
            waiting[id(run.template)].append(run)
    empty = Books(books.nodes.values())
    return [run.key for same in waiting.values() if not _fits_some(empty, same[0].template) for run in same]


def _fits_some(empty: Books, template: Mapping[str, Any]) -> bool:
    asked = requests(template)
    shape: Shape | None = next(iter(shapes_of([template])), None)
    for name, have in empty.have.items():
        if asked["cpu"] > have["cpu"] or asked["memory"] > have["memory"]:
            continue
        cards = empty.cards_on[name]
        if shape is None or any(card.mig for card in cards) or (cards and lost(shape.want, cards) < sum(c.total for c in cards)):
            return True
    return False


def _queue(run: PodRun) -> str:
    notes: Mapping[str, str] = run.template["metadata"].get("annotations", {})
    return notes.get(names.QUEUE_NAME, names.DEFAULT_QUEUE)


def _part(runs: Sequence[PodRun], now: float) -> Part:
    waits = sorted((run.started if run.started is not None else run.ended if run.ended is not None else now) - run.arrived
                   for run in runs)  # fmt: skip
    placed = sum(1 for run in runs if run.started is not None)
    return Part(len(runs), placed, _quantile(waits, 0.5), _quantile(waits, 0.99))


def _quantile(ordered: Sequence[float], part: float) -> float:
    """By nearest rank; 0 of nothing."""
    return round(ordered[max(0, ceil(part * len(ordered)) - 1)], 3) if ordered else 0.0


def _percent(part: float) -> float:
    return round(100 * part, 2)
