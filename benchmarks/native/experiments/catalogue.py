"""The experiments by number, in order, with the minutes of a card that each takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.native.experiments import (
    accuracy,
    calls,
    exactness,
    facts,
    frameworks,
    reported,
    robustness,
    suites,
    tenants,
    witness,
)
from benchmarks.native.experiments.rig import Report, Rig


@dataclass(frozen=True, slots=True)
class Experiment:
    title: str
    minutes: float
    run: Callable[[Rig], Report]


EXPERIMENTS: dict[str, Experiment] = {
    "E0": Experiment("facts of the driver and the card", 1.5, facts.probe),
    "E1": Experiment("what a launch costs more", 4, calls.launches),
    "E2": Experiment("what an allocation costs more", 2, calls.allocations),
    "E3": Experiment("exactness of the memory limit", 4, exactness.exactness),
    "E4": Experiment("accuracy of the core limit", 5, accuracy.one_tenant),
    "E5": Experiment("shapes of launches", 3, accuracy.shapes),
    "E6": Experiment("several processes of a container", 1.5, accuracy.one_container),
    "E7": Experiment("several tenants", 5, tenants.shares),
    "E8": Experiment("live changes", 1.5, accuracy.live),
    "E9": Experiment("a decode loop beside training", 4, tenants.serving),
    "E10": Experiment("frameworks", 4, frameworks.frameworks),
    "E11": Experiment("starts, kills, forks", 3, robustness.robustness),
    "E12": Experiment("captures and compute-sanitizer", 1, robustness.sanitizer),
    "E13": Experiment("an independent witness of the memory", 1, witness.witness),
    "E14": Experiment("suites of tests", 1, suites.suites),
    "E15": Experiment("what programs are told, one after another", 0.5, reported.reported),
}
