"""The result of a play as plain data, and the differences between two of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from pumice.audit.card_rules import container_devices, wants
from pumice.simulation.meter import AMOUNTS, Sample
from pumice.simulation.play import PodRun, Simulation

CLASSES = ("no card", "share of a card", "one card", "several cards")


@dataclass(frozen=True, slots=True)
class Part:
    """The pods of a queue or a class, or all of them. Waits are in seconds, and count what who has no place has waited so far."""

    pods: int
    placed: int
    wait_p50: float
    wait_p99: float
    card_hours: float = 0.0
    """Hours of cards that their vGPUs were, by the part of a card's memory that each is; of a pod's last run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one variant. ``mean`` and ``end`` are per cent of all: over the time in which pods arrived, and when the last
    one had come. ``fits_no_node``: pods that no node would take, were it empty, and why."""

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
    fits_no_node: Mapping[str, str]
    violations: Sequence[str]
    samples: Sequence[Sample] = ()
    starts: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    """Of each pod that got a place: seconds that it waited, and the node."""
    waits: Sequence[str] = ()
    """Pods without a place at the end."""
    stayed: Sequence[str] = ()
    """Pods that have run since before the beginning."""
    idle_card_hours: float = 0.0
    """Hours of cards that nobody held, by the part of their memory."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a pod waits, or waited last, as it was said of it."""


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
    """Sum a play up, of which so many submissions had arrived when it ended. It cannot go on then."""
    runs, meter, now = simulation.runs, simulation.meter, simulation.now - simulation.begin
    card = max((card.total for card in simulation.books.cards.values()), default=0)
    queues: dict[str, list[PodRun]] = defaultdict(list)
    classes: dict[str, list[PodRun]] = {name: [] for name in CLASSES}
    kinds: dict[int, str] = {}
    for run in runs:
        queues[run.queue].append(run)
        kind = kinds.get(id(run.template)) or kinds.setdefault(id(run.template), class_of(run.template, card))
        classes[kind].append(run)
    sizes = {uuid: size.total for uuid, size in simulation.books.cards.items() if size.total}
    stranded = [sample.stranded for sample in meter.samples]
    return Outcome(
        variant, _part(runs, now, sizes), now, arrived < submitted, simulation.evictions, simulation.failures,
        {**{name: _percent(meter.mean(name)) for name in AMOUNTS},
         "fragmentation": _percent(sum(stranded) / len(stranded) if stranded else 0.0)},
        {**{name: _percent(meter.last(name)) for name in AMOUNTS}, "fragmentation": _percent(stranded[-1] if stranded else 0.0)},
        {name: _part(queues[name], now, sizes) for name in sorted(queues)},
        {name: _part(found, now, sizes) for name, found in classes.items() if found},
        simulation.fit_no_node(), simulation.violations, meter.samples,
        {run.key: (round(run.started - run.arrived, 3), run.node) for run in runs if run.started is not None},
        [run.key for run in runs if run.started is None], simulation.stayed(), round(meter.idle, 3),
        {run.key: run.reason for run in runs if run.reason},
    )  # fmt: skip


def difference(base: Outcome, other: Outcome) -> Difference:
    """Compare the pods of two plays; sooner and later mean by more than a second."""
    known = _known(base) & _known(other)  # where one was cut short, or a queue is gone, some are of one play alone
    here, there = ({*one.starts, *one.stayed} for one in (base, other))
    gain = {key: base.starts[key][0] - other.starts[key][0] for key in base.starts if key in other.starts}
    return Difference(
        base.variant, other.variant,
        [key for key in (*other.starts, *other.stayed) if key in known and key not in here],
        [key for key in (*base.starts, *base.stayed) if key in known and key not in there],
        [key for key in sorted(gain, key=gain.__getitem__, reverse=True) if gain[key] > 1.0],
        [key for key in sorted(gain, key=gain.__getitem__) if gain[key] < -1.0],
    )  # fmt: skip


def _known(outcome: Outcome) -> set[str]:
    return {*outcome.starts, *outcome.waits, *outcome.stayed}


def class_of(template: Mapping[str, Any], card: int) -> str:
    """Return which class a pod is of, by the memory of a card."""
    asked = wants(template)
    number = sum(want.number for want in asked)
    if number != 1:
        return CLASSES[3] if number else CLASSES[0]
    whole = asked[0].percent >= 100 or asked[0].cores >= 100 or asked[0].memory >= card
    return CLASSES[2] if whole else CLASSES[1]


def _part(runs: Sequence[PodRun], now: float, sizes: Mapping[str, int]) -> Part:
    """``sizes``: the memory of each card."""
    waits = sorted((run.started if run.started is not None else run.ended if run.ended is not None else now) - run.arrived
                   for run in runs)  # fmt: skip
    placed = [run for run in runs if run.started is not None]
    hours = sum(((run.ended if run.ended is not None else now) - (run.started or 0.0)) / 3600 * memory / sizes[uuid]
                for run in placed for uuid, _, memory, _ in container_devices(run.cards) if uuid in sizes)  # fmt: skip
    return Part(len(runs), len(placed), _quantile(waits, 0.5), _quantile(waits, 0.99), round(hours, 3))


def _quantile(ordered: Sequence[float], part: float) -> float:
    """By nearest rank; 0 of nothing."""
    return round(ordered[max(0, ceil(part * len(ordered)) - 1)], 3) if ordered else 0.0


def _percent(part: float) -> float:
    return round(100 * part, 2)
