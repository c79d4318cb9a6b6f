"""From windows of work done to shares of the card, and the statistics that the experiments speak in."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Any

CLOCK_DRIFT = 0.03  # a run during which the SM clock moved more is not compared


def rate(run: dict[str, Any], first_s: float, last_s: float | None = None) -> float:
    """Work per second of a span, in seconds of kernel time."""
    window = float(run["window_s"])
    windows = run["windows"][round(first_s / window) : None if last_s is None else round(last_s / window)]
    return float(sum(windows)) / 1e9 / (len(windows) * window) if windows else 0.0


def seconds(run: dict[str, Any], first_s: float) -> list[float]:
    """The rate of each whole second."""
    length = len(run["windows"]) * run["window_s"]
    starts = [first_s + step for step in range(int(length - first_s))]
    return [rate(run, start, start + 1) for start in starts]


def jain(values: Sequence[float]) -> float:
    """1 when all are equal, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def interval(pairs: Sequence[tuple[float, float]], draws: int = 2000) -> tuple[float, float, float]:
    """Median difference of (with, without) pairs and its 95 % interval by bootstrap."""
    differences = [ours - native for ours, native in pairs]
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(differences, k=len(differences))) for _ in range(draws))
    return statistics.median(differences), medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def union_ns(stamps: Sequence[Sequence[int]]) -> int:
    """Nanoseconds covered by [began, ended] intervals in order of beginning."""
    covered, reached = 0, 0
    for began, ended in stamps:
        covered += max(0, ended - max(began, reached))
        reached = max(reached, ended)
    return covered


def drifted(clocks: Sequence[int]) -> bool:
    """Return whether the SM clock moved too much for a comparison; unknown clocks do not count."""
    known = [clock for clock in clocks if clock > 0]
    return bool(known) and (max(known) - min(known)) / max(known) > CLOCK_DRIFT
